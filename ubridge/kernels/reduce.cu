// Reductions, and kernels made of them: softmax, normalizations, rotary embeddings.
#include "normalize.h"
#include "reduction.h"
#include "rope.h"

#if defined(__CUDACC__)
#include "reduction_lanes.h"
#elif !KERNEL_ON_GPU
#include "reduction_columns.h"
#include "reduction_short.h"
#endif

// fast_<reduction>_<type>: dst[row] is the reduction of el_per_block elements. info holds dims and
// strides of src, the kept dims first and the reduced ones last; null when src is contiguous. Any
// grid is right; one block a row is fastest on a GPU. If rows are empty, their number is unknown.
// Each block then has one row and writes the start value (for a place, the mark for none).
template <class State, class T, class Out>
DEVICE_FUNCTION void reduce_rows(BLOCK block, u64 row, u64 blocks, u64 src_numel, u64 count,
                                 u64 num_dims, const u64 *info, const T *src, Out *dst)
{
    if (count == 0) {
        THREADS_OF(block, t) {
            if (t == 0)
                dst[row] = Out(State::initial().stored(1));
        }
        return;
    }
    const Operand<T> operand(src, num_dims, info, info + num_dims);
    const u64 last_dim = info == nullptr || num_dims == 0 ? count : info[num_dims - 1];
    const u64 rows = src_numel / count;
#if defined(__CUDACC__)
    const SideBySide<T> all(operand, count);
    if (all.exists && blockDim.x * blockDim.y * blockDim.z >= WARP_LANES)
        return reduce_side_by_side<State>(block, all, row, blocks, rows, count, last_dim, dst);
#elif !KERNEL_ON_GPU
    if (!operand.contiguous) {
        const ColumnGroups<T> groups(operand, count);
        if (groups.worthwhile())
            return reduce_columns<State>(groups, row, blocks, rows, count, last_dim, dst);
    }
    if constexpr (Fold<State>::exists) {
        const u64 share = (rows + blocks - 1) / blocks;
        if (count <= SHORT_ROW && share >= ROWS_TOGETHER) {
            const u64 first = row * share < rows ? row * share : rows;
            const u64 last = rows - first < share ? rows : first + share;
            return reduce_short_rows<State>(operand, first, last, count, src_numel, dst);
        }
    }
#endif
    ROLLED for (; row < rows; row += blocks) {
        const State state = reduce_row<State>(block, operand, row * count, count, Same{});
        THREADS_OF(block, t) {
            if (t == 0)
                dst[row] = Out(state.stored(last_dim));
        }
    }
}

#define FAST(entry, T, Out, State)                                                                 \
    KERNEL(entry, (u64 src_numel, u64 el_per_block, u64 num_dims, const u64 *info, const T *src,   \
                   Out *dst))                                                                      \
    {                                                                                              \
        const u64 rows_of_blocks = blockIdx.y + u64(gridDim.y) * blockIdx.z;                       \
        reduce_rows<State<Compute<T>>>(THIS_BLOCK, blockIdx.x + gridDim.x * rows_of_blocks,        \
                                       u64(gridDim.x) * gridDim.y * gridDim.z, src_numel,          \
                                       el_per_block, num_dims, info, src, dst);                    \
    }

#define REDUCTIONS(T)                                                                              \
    FAST(fast_sum_##T, T, T, Sum)                                                                  \
    FAST(fast_min_##T, T, T, Smallest)                                                             \
    FAST(fast_max_##T, T, T, Largest)                                                              \
    FAST(fast_argmin_##T, T, u32, PlaceOfSmallest)                                                 \
    FAST(fast_argmax_##T, T, u32, PlaceOfLargest)

REDUCTIONS(bf16)
REDUCTIONS(f16)
REDUCTIONS(f32)
REDUCTIONS(f64)
REDUCTIONS(u8)
REDUCTIONS(u32)
REDUCTIONS(i16)
REDUCTIONS(i32)
REDUCTIONS(i64)

// sum_<type>: adds the sums over some dims of inp to out. info holds dims and strides of inp, then
// lengths and strides of the num_sum_dims summed dims. These strides belong to a contiguous inp
// without the earlier summed dims. One work-item adds all elements of a result, so the order of
// additions never changes.
template <class T>
DEVICE_FUNCTION T sum_of_result(u64 result, u64 num_sum_dims, const u64 *lengths,
                                const u64 *strides, const Operand<T> &inp, T before)
{
    u64 terms = 1;
    ROLLED for (u64 d = 0; d < num_sum_dims; ++d)
        terms *= lengths[d];
    Sum<Compute<T>> sum = {widen(before), Compute<T>(0)};
    ROLLED for (u64 term = 0; term < terms; ++term) {
        u64 place = result;
        u64 rest = term;
        ROLLED for (u64 d = num_sum_dims; d-- > 0;) {
            u64 coordinate = rest;
            rest = split_off(coordinate, lengths[d]);
            const u64 outer = split_off(place, strides[d]);
            place += (outer * lengths[d] + coordinate) * strides[d];
        }
        sum.step(widen(inp[place]), term);
    }
    return narrow<T>(sum.result());
}

#define SUM(T)                                                                                     \
    KERNEL(sum_##T, (u64 numel, u64 num_dims, u64 num_sum_dims, const u64 *info, const T *inp,     \
                     T *out))                                                                      \
    {                                                                                              \
        const Operand<T> operand(inp, num_dims, info, info + num_dims);                            \
        const u64 *lengths = info + 2 * num_dims;                                                  \
        u64 results = numel;                                                                       \
        ROLLED for (u64 d = 0; d < num_sum_dims && results > 0; ++d)                               \
            results /= lengths[d];                                                                 \
        GRID_STRIDE(i, results) {                                                                  \
            out[i] = sum_of_result(i, num_sum_dims, lengths, lengths + num_sum_dims, operand,      \
                                   out[i]);                                                        \
        }                                                                                          \
    }

SUM(bf16)
SUM(f16)
SUM(f32)
SUM(f64)
SUM(u32)

// Contiguous rows of n_cols elements, one a block; block_size is Candle's and unused here.
// alpha and beta may be null.
#define ROWS(T)                                                                                    \
    KERNEL(softmax_##T, (const T *src, T *dst, i32 n_cols))                                        \
    {                                                                                              \
        const u64 start = u64(blockIdx.x) * u32(n_cols);                                           \
        softmax(THIS_BLOCK, u32(n_cols), src + start, dst + start);                                \
    }                                                                                              \
    KERNEL(rmsnorm_##T, (const T *src, T *dst, const T *alpha, i32 n_cols, i32 block_size,         \
                         f32 eps))                                                                 \
    {                                                                                              \
        (void)block_size;                                                                          \
        const u64 start = u64(blockIdx.x) * u32(n_cols);                                           \
        rms_norm(THIS_BLOCK, u32(n_cols), src + start, dst + start, alpha, eps);                   \
    }                                                                                              \
    KERNEL(layernorm_##T, (const T *src, T *dst, const T *alpha, const T *beta, i32 n_cols,        \
                           i32 block_size, f32 eps))                                               \
    {                                                                                              \
        (void)block_size;                                                                          \
        const u64 start = u64(blockIdx.x) * u32(n_cols);                                           \
        layer_norm(THIS_BLOCK, u32(n_cols), src + start, dst + start, alpha, beta, eps);           \
    }

ROWS(bf16)
ROWS(f16)
ROWS(f32)
ROWS(f64)

// bh = b * h and td = t * d, as Candle passes them.
#if KERNEL_ON_GPU
#define ROPE(T)                                                                                    \
    KERNEL(rope_i_##T, (const T *src, const T *cos, const T *sin, T *dst, u32 bh, u32 td,          \
                        u32 stride_b))                                                             \
    {                                                                                              \
        GRID_STRIDE(i, u64(bh) * td / 2) {                                                         \
            rope_interleaved(i, src, cos, sin, dst, td, stride_b);                                 \
        }                                                                                          \
    }                                                                                              \
    KERNEL(rope_##T, (const T *src, const T *cos, const T *sin, T *dst, u32 bh, u32 td, u32 d,     \
                      u32 stride_b))                                                               \
    {                                                                                              \
        GRID_STRIDE(i, u64(bh) * td / 2) {                                                         \
            rope_halves(i, src, cos, sin, dst, td, d, stride_b);                                   \
        }                                                                                          \
    }                                                                                              \
    KERNEL(rope_thd_##T, (const T *src, const T *cos, const T *sin, T *dst, u32 b, u32 t, u32 h,   \
                          u32 d, u32 stride_b))                                                    \
    {                                                                                              \
        GRID_STRIDE(i, u64(b) * t * h * d / 2) {                                                   \
            rope_by_position(i, src, cos, sin, dst, t, h, d, stride_b);                            \
        }                                                                                          \
    }
#else
#define ROPE(T)                                                                                    \
    KERNEL(rope_i_##T, (const T *src, const T *cos, const T *sin, T *dst, u32 bh, u32 td,          \
                        u32 stride_b))                                                             \
    {                                                                                              \
        rope_neighbors(THIS_BLOCK, u64(bh) * td / 2, src, cos, sin, dst, td, stride_b);            \
    }                                                                                              \
    KERNEL(rope_##T, (const T *src, const T *cos, const T *sin, T *dst, u32 bh, u32 td, u32 d,     \
                      u32 stride_b))                                                               \
    {                                                                                              \
        rope_runs(THIS_BLOCK, u64(bh) * td / 2, src, cos, sin, dst, d, [=](u64 pair) {             \
            return pair % (td / 2) + batch_angles(pair, stride_b, td / 2);                         \
        });                                                                                        \
    }                                                                                              \
    KERNEL(rope_thd_##T, (const T *src, const T *cos, const T *sin, T *dst, u32 b, u32 t, u32 h,   \
                          u32 d, u32 stride_b))                                                    \
    {                                                                                              \
        rope_runs(THIS_BLOCK, u64(b) * t * h * d / 2, src, cos, sin, dst, d, [=](u64 pair) {       \
            const u64 row = pair / (d / 2);                                                        \
            return row / h % t * (d / 2) + pair % (d / 2) +                                        \
                   batch_angles(pair, stride_b, u64(t) * d / 2);                                   \
        });                                                                                        \
    }
#endif

ROPE(bf16)
ROPE(f16)
ROPE(f32)
ROPE(f64)
