// Matrix products, `matmul_<type>`: out[i, j] = sum over l of a[i, l] b[l, j], for each batch.
//
// Rows, columns and batches of a and b may lie at any distance, so that transposed and broadcast
// operands need no copy; out is row-major. Sums are taken in f32 for f16 and bf16; sums of integers
// wrap around. The grid is (ceil(n / 64), ceil(m / 64), batches); blocks of 256 are fastest.
//
// `matmul_vectors_<type>` multiplies a matrix by few vectors; its own comment describes it.
#include "product_tiles.h"

#include <uhal/warp.h>

// Rows of a or columns of b, `outer_step` apart; elements of one lie `depth_step` apart.
template <class T> struct Matrix {
    const T *data;
    u64 outer_step;
    u64 depth_step;

    struct Line {
        const T *data;
        u64 step;
        DEVICE_METHOD T at(u64 depth) const { return data[depth * step]; }
    };
    DEVICE_METHOD bool is_deep() const { return depth_step == 1; }
    DEVICE_METHOD Line line(u64 outer) const { return {data + outer * outer_step, depth_step}; }
};

template <class T> struct RowMajor {
    T *data;
    u64 columns;
    DEVICE_METHOD void store(u64 row, u64 column, T sum) const { data[row * columns + column] = sum; }
};

#define MATMUL(T)                                                                                  \
    KERNEL_BOUNDED(matmul_##T, 256,                                                                \
                   (const T *a, const T *b, T *out, u64 m, u64 n, u64 k, u64 a_batch, u64 a_row,   \
                    u64 a_column, u64 b_batch, u64 b_row, u64 b_column, u64 out_batch))            \
    {                                                                                              \
        const u64 first_row = u64(blockIdx.y) * TILE;                                              \
        const u64 first_column = u64(blockIdx.x) * TILE;                                           \
        if (first_row >= m || first_column >= n)                                                   \
            return;                                                                                \
        const Matrix<T> left = {a + blockIdx.z * a_batch, a_row, a_column};                        \
        const Matrix<T> right = {b + blockIdx.z * b_batch, b_column, b_row};                       \
        const RowMajor<T> results = {out + blockIdx.z * out_batch, n};                             \
        multiply_tile<T>(THIS_BLOCK, blockDim.x *blockDim.y *blockDim.z, left, right, results, m,  \
                         n, k, first_row, first_column, [](BLOCK, u32, u64) {});                    \
    }

MATMUL(bf16)
MATMUL(f16)
MATMUL(f32)
MATMUL(f64)
MATMUL(u8)
MATMUL(u32)
MATMUL(i16)
MATMUL(i32)
MATMUL(i64)

// -- few vectors ----------------------------------------------------------------------------------

// matmul_vectors_<type>: out[i, v] = sum over l of lines[i, l] vectors[v, l], for each batch.
// Elements of a line are neighbors, and so are elements of a vector. Lines lie `line_pitch` apart,
// vectors lie `vector_pitch` apart. out[i, v] lies at i * out_line + v * out_vector.
//
// The grid is (ceil(n / 8), ceil(m / 8), batches), of blocks of exactly (32, 8): a warp takes a line,
// for eight vectors at most. A lane reads 16 bytes at once where lines and vectors begin at multiples
// of 16 bytes.
enum : u32 { LINES = 8, MOST_VECTORS = 8 };

#if KERNEL_ON_GPU

template <class C> struct Sums8 {
    C at[MOST_VECTORS];
};

// Element `place` and the next ones of a line of `length`; zeros behind its end.
template <u32 EACH, class T>
DEVICE_FUNCTION void load_some(Compute<T> *values, const T *line, u64 place, u64 length,
                               bool aligned)
{
    if (aligned && place + EACH <= length) {
        const vec<T, EACH> loaded = load_vector<EACH>(line + place);
        for (u32 i = 0; i < EACH; ++i)
            values[i] = widen(loaded[i]);
        return;
    }
    for (u32 i = 0; i < EACH; ++i)
        values[i] = place + i < length ? widen(line[place + i]) : Compute<T>(0);
}

template <class T>
DEVICE_FUNCTION void multiply_vectors(BLOCK block, const T *lines, u64 line_pitch,
                                      const T *vectors, u64 vector_pitch, T *out, u64 out_line,
                                      u64 out_vector, u64 first_line, u64 n, u32 m, u64 k)
{
    typedef Compute<T> C;
    constexpr u32 EACH = 16 / sizeof(T);
    const bool aligned = ((reinterpret_cast<u64>(lines) | reinterpret_cast<u64>(vectors) |
                           (line_pitch | vector_pitch) * sizeof(T)) %
                          16) == 0;
    REGISTER_OF(block, Sums8<C>, sums, LINES * WARP_LANES);
    THREADS_OF(block, t) {
        Sums8<C> own = {};
        // A line past the end repeats the last one; its results are dropped.
        const u64 here = first_line + t / WARP_LANES;
        const T *const values = lines + (here < n ? here : n - 1) * line_pitch;
        ROLLED for (u64 place = t % WARP_LANES * EACH; place < k; place += WARP_LANES * EACH) {
            C down[EACH];
            load_some<EACH>(down, values, place, k, aligned);
#pragma unroll
            for (u32 v = 0; v < MOST_VECTORS; ++v) {
                if (v < m) {
                    C across[EACH];
                    load_some<EACH>(across, vectors + v * vector_pitch, place, k, aligned);
                    for (u32 i = 0; i < EACH; ++i)
                        own.at[v] += down[i] * across[i];
                }
            }
        }
        sums(t) = own;
    }
#pragma unroll
    for (u32 v = 0; v < MOST_VECTORS; ++v) {
        if (v < m) {
            REGISTER_OF(block, C, sum, LINES * WARP_LANES);
            THREADS_OF(block, t) sum(t) = sums(t).at[v];
            warp_reduce(block, sum, Add());
            THREADS_OF(block, t) {
                const u64 here = first_line + t / WARP_LANES;
                if (t % WARP_LANES == 0 && here < n)
                    out[here * out_line + v * out_vector] = narrow<T>(sum(t));
            }
        }
    }
}

#else

template <class T>
DEVICE_FUNCTION void multiply_vectors(BLOCK, const T *lines, u64 line_pitch, const T *vectors,
                                      u64 vector_pitch, T *out, u64 out_line, u64 out_vector,
                                      u64 first_line, u64 n, u32 m, u64 k)
{
    constexpr u32 LANES = 16;
    const u64 last = first_line + LINES < n ? first_line + LINES : n;
    for (u64 line = first_line; line < last; ++line)
        for (u32 v = 0; v < m; ++v) {
            const T *const left = lines + line * line_pitch;
            const T *const right = vectors + v * vector_pitch;
            // Sums in lanes, so that the loop becomes vector code.
            Compute<T> sums[LANES] = {};
            u64 first = 0;
            for (; first + LANES <= k; first += LANES)
                for (u32 lane = 0; lane < LANES; ++lane)
                    sums[lane] += widen(left[first + lane]) * widen(right[first + lane]);
            for (u32 lane = 0; first + lane < k; ++lane)
                sums[lane] += widen(left[first + lane]) * widen(right[first + lane]);
            for (u32 lane = 1; lane < LANES; ++lane)
                sums[0] += sums[lane];
            out[line * out_line + v * out_vector] = narrow<T>(sums[0]);
        }
}

#endif

#define MATMUL_VECTORS(T)                                                                          \
    KERNEL_BOUNDED(matmul_vectors_##T, 256,                                                        \
                   (const T *lines, const T *vectors, T *out, u64 n, u32 m, u64 k,                 \
                    u64 line_batch, u64 line_pitch, u64 vector_batch, u64 vector_pitch,            \
                    u64 out_batch, u64 out_line, u64 out_vector))                                  \
    {                                                                                              \
        const u32 first = blockIdx.y * MOST_VECTORS;                                               \
        multiply_vectors(THIS_BLOCK, lines + blockIdx.z * line_batch, line_pitch,                  \
                         vectors + blockIdx.z * vector_batch + first * vector_pitch, vector_pitch, \
                         out + blockIdx.z * out_batch + first * out_vector, out_line, out_vector,  \
                         u64(blockIdx.x) * LINES, n,                                               \
                         m - first < MOST_VECTORS ? m - first : MOST_VECTORS, k);                  \
    }

MATMUL_VECTORS(bf16)
MATMUL_VECTORS(f16)
MATMUL_VECTORS(f32)
MATMUL_VECTORS(f64)
