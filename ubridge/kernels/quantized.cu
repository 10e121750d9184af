// Weights of ggml's blocks under the names of Candle's module `quantized`: their elements, their
// rows, and their products with vectors of f32 and of Q8_1. Launch geometries are Candle's;
// exceptions are noted at the kernel. Sums are taken in f32.
//
// Blocks lie at a multiple of 2 bytes; blocks of q2_K, q4_K, q5_K and Q8_1 at a multiple of 4.
#include "block_tiles.h"

// -- elements -------------------------------------------------------------------------------------

// A block of the grid has 256 elements, or 512 where Candle's kernel has 512.
#define ELEMENTS_OF(format, T, Block, WIDTH, parameters, count)                                    \
    KERNEL(dequantize_block_##format##_##T, parameters)                                            \
    {                                                                                              \
        const u64 first = u64(blockIdx.x) * (WIDTH), all = (count);                                \
        const u64 last = first + (WIDTH) < all ? first + (WIDTH) : all;                            \
        const u32 threads = blockDim.x * blockDim.y * blockDim.z;                                  \
        THREADS(t) decode<Block>(vx, yy, first, last, t, threads);                                 \
    }

// Candle passes a count of 32-element blocks, a count of elements, or for 256 no count.
#define ELEMENTS_BY_BLOCKS(format, Block)                                                          \
    ELEMENTS_OF(format, f32, Block, 256, (const void *vx, f32 *yy, i32 nb32), u64(nb32) * 32)      \
    ELEMENTS_OF(format, f16, Block, 256, (const void *vx, f16 *yy, i32 nb32), u64(nb32) * 32)
#define ELEMENTS_BY_COUNT(format, Block)                                                           \
    ELEMENTS_OF(format, f32, Block, 512, (const void *vx, f32 *yy, i32 k), u64(k))                 \
    ELEMENTS_OF(format, f16, Block, 512, (const void *vx, f16 *yy, i32 k), u64(k))
#define ELEMENTS_OF_ALL(format, Block)                                                             \
    ELEMENTS_OF(format, f32, Block, 256, (const void *vx, f32 *yy), first + 256)                   \
    ELEMENTS_OF(format, f16, Block, 256, (const void *vx, f16 *yy), first + 256)

ELEMENTS_BY_BLOCKS(q4_0, BlockQ4_0)
ELEMENTS_BY_BLOCKS(q4_1, BlockQ4_1)
ELEMENTS_BY_COUNT(q5_0, BlockQ5_0)
ELEMENTS_BY_COUNT(q5_1, BlockQ5_1)
ELEMENTS_BY_BLOCKS(q8_0, BlockQ8_0)
ELEMENTS_OF_ALL(q2_K, BlockQ2_K)
ELEMENTS_OF_ALL(q3_K, BlockQ3_K)
ELEMENTS_OF_ALL(q4_K, BlockQ4_K)
ELEMENTS_OF_ALL(q5_K, BlockQ5_K)
ELEMENTS_OF_ALL(q6_K, BlockQ6_K)
ELEMENTS_OF_ALL(q8_K, BlockQ8_K)

// -- rows by their numbers ------------------------------------------------------------------------

#define NAMED_ROWS_OF(format, Block) ROWS_OF(get_rows_##format, Block)

FORMATS_OF_CANDLE(NAMED_ROWS_OF)

#define PLAIN_ROWS_OF(T)                                                                           \
    KERNEL(get_rows_##T, (const void *src0, const u32 *ids, f32 *dst, i64 ne00, u64 nb01))         \
    {                                                                                              \
        const u8 *const start = static_cast<const u8 *>(src0) + ids[blockIdx.x] * nb01;            \
        const T *const row = reinterpret_cast<const T *>(start);                                   \
        f32 *const out = dst + u64(blockIdx.x) * u64(ne00);                                        \
        const u64 threads = u64(blockDim.x) * blockDim.y * blockDim.z;                             \
        THREADS(t) {                                                                               \
            for (u64 i = blockIdx.y * threads + t; i < u64(ne00); i += gridDim.y * threads)        \
                out[i] = f32(row[i]);                                                              \
        }                                                                                          \
    }

PLAIN_ROWS_OF(f32)
PLAIN_ROWS_OF(f16)
PLAIN_ROWS_OF(bf16)

// -- products with f32 ----------------------------------------------------------------------------

PRODUCT(dequantize_mul_mat_vec_q4_0_cuda, BlockQ4_0)
PRODUCT(dequantize_mul_mat_vec_q4_1_cuda, BlockQ4_1)
PRODUCT(dequantize_mul_mat_vec_q5_0_cuda, BlockQ5_0)
PRODUCT(dequantize_mul_mat_vec_q5_1_cuda, BlockQ5_1)
PRODUCT(dequantize_mul_mat_vec_q8_0_cuda, BlockQ8_0)
PRODUCT(dequantize_mul_mat_vec_q2_k, BlockQ2_K)
PRODUCT(dequantize_mul_mat_vec_q3_k, BlockQ3_K)
PRODUCT(dequantize_mul_mat_vec_q4_k, BlockQ4_K)
PRODUCT(dequantize_mul_mat_vec_q6_k, BlockQ6_K)

// Candle's kernel has no number of rows; it follows from the grid.
KERNEL(dequantize_mul_mat_vec_q5_k, (const void *vx, const f32 *y, f32 *dst, i32 ncols))
{
    const u64 rows = u64(gridDim.x) * (blockDim.y * blockDim.z);
    multiply(THIS_BLOCK, static_cast<const BlockQ5_K *>(vx), y + u64(blockIdx.y) * u32(ncols),
             dst + blockIdx.y * rows, u32(ncols), rows);
}

// -- vectors of Q8_1 ------------------------------------------------------------------------------

#if KERNEL_ON_GPU
enum : u32 { QUANTIZED_EACH = 1 };
#else
enum : u32 { QUANTIZED_EACH = 32 };
#endif

// Quantizes rows of kx elements to rows of kx_padded elements, a multiple of 32; the padding is
// zero. Along x, each block of 256 work-items takes 256 elements; along y, each block takes a row.
KERNEL_BOUNDED(quantize_q8_1, 256, (const f32 *x, void *vy, i32 kx, i32 kx_padded))
{
    SHARED(f32, values, 256);
    const u64 first = u64(blockIdx.x) * blockDim.x, row = blockIdx.y;
    const f32 *const line = x + row * u64(kx);
    THREADS(t) {
        const u64 i = first + t;
        values[t] = i < u64(kx) ? line[i] : 0;
    }
    BARRIER();
    THREADS(t) {
        if (first + t < u64(kx_padded) && t % QUANTIZED_EACH == 0) {
            // All 32 work-items of a block of 32 elements add up the elements in the same order.
            const f32 *const group = values + t / 32 * 32;
            f32 largest = 0, sum = 0;
            for (u32 i = 0; i < 32; ++i) {
                largest = fmaxf(largest, fabsf(group[i]));
                sum += group[i];
            }
            const f32 d = largest / 127;
            BlockQ8_1 &block =
                static_cast<BlockQ8_1 *>(vy)[(row * u64(kx_padded) + first + t) / 32];
            for (u32 i = t; i < t + QUANTIZED_EACH; ++i)
                block.qs[i % 32] = u8(i8(largest == 0 ? 0 : i32(roundf(values[i] / d))));
            if (t % 32 == 0) {
                block.d = f16(d);
                block.s = f16(sum);
            }
        }
    }
}

// -- products with Q8_1 ---------------------------------------------------------------------------

// As in Candle: SUMS_OF_VECTORS_ for products with vectors, SUMS_OF_MATRICES_ with matrices.
#define SUMS_OF_VECTORS_q4_0 Sums::kept
#define SUMS_OF_VECTORS_q4_1 Sums::kept
#define SUMS_OF_VECTORS_q5_0 Sums::kept
#define SUMS_OF_VECTORS_q5_1 Sums::kept
#define SUMS_OF_VECTORS_q8_0 Sums::of_integers
#define SUMS_OF_VECTORS_q2_K Sums::of_integers
#define SUMS_OF_VECTORS_q3_K Sums::of_integers
#define SUMS_OF_VECTORS_q4_K Sums::of_integers
#define SUMS_OF_VECTORS_q5_K Sums::of_integers
#define SUMS_OF_VECTORS_q6_K Sums::of_integers

// A column of y has nrows_y elements with its padding; a column of dst has nrows_dst elements.
#define PRODUCT_Q8_1(format, Block, COLUMNS)                                                       \
    KERNEL_BOUNDED(mul_mat_vec_##format##_q8_1_cuda##COLUMNS, 128,                                 \
                   (const void *vx, const void *vy, f32 *dst, i32 ncols_x, i32 nrows_x,            \
                    i32 nrows_y, i32 nrows_dst))                                                   \
    {                                                                                              \
        constexpr u32 ROWS = COLUMNS == 1 ? 1 : 2;                                                 \
        multiply_q8_1<Block, SUMS_OF_VECTORS_##format, ROWS, COLUMNS>(                             \
            THIS_BLOCK, static_cast<const Block *>(vx), static_cast<const BlockQ8_1 *>(vy), dst,   \
            u64(blockIdx.x) * ROWS, u32(ncols_x), u32(nrows_x), u32(nrows_y) / 32,                 \
            u32(nrows_dst));                                                                       \
    }

#define PRODUCTS_Q8_1(format, Block)                                                               \
    PRODUCT_Q8_1(format, Block, 1)                                                                 \
    PRODUCT_Q8_1(format, Block, 2)                                                                 \
    PRODUCT_Q8_1(format, Block, 3)                                                                 \
    PRODUCT_Q8_1(format, Block, 4)                                                                 \
    PRODUCT_Q8_1(format, Block, 5)                                                                 \
    PRODUCT_Q8_1(format, Block, 6)                                                                 \
    PRODUCT_Q8_1(format, Block, 7)                                                                 \
    PRODUCT_Q8_1(format, Block, 8)

FORMATS_OF_CANDLE(PRODUCTS_Q8_1)

// A block takes a tile of ROWS rows, along x, and VECTORS columns of y, along y.
#define MATRIX_PRODUCT(format, Block, ROWS, VECTORS, sums)                                         \
    KERNEL_BOUNDED(mul_mat_##format, 128,                                                          \
                   (const void *vx, const void *vy, f32 *dst, i32 ncols_x, i32 nrows_x,            \
                    i32 ncols_y, i32 nrows_y, i32 nrows_dst))                                      \
    {                                                                                              \
        multiply_tile<Block, sums, ROWS, VECTORS>(                                                 \
            THIS_BLOCK, static_cast<const Block *>(vx), static_cast<const BlockQ8_1 *>(vy), dst,   \
            u32(ncols_x), u32(nrows_x), u32(ncols_y), u32(nrows_y) / 32, u32(nrows_dst));          \
    }

MATRIX_PRODUCT(q4_0, BlockQ4_0, 128, 64, Sums::kept)
MATRIX_PRODUCT(q4_1, BlockQ4_1, 128, 64, Sums::kept)
MATRIX_PRODUCT(q5_0, BlockQ5_0, 64, 128, Sums::of_integers)
MATRIX_PRODUCT(q5_1, BlockQ5_1, 64, 128, Sums::kept)
MATRIX_PRODUCT(q8_0, BlockQ8_0, 64, 128, Sums::of_integers)
MATRIX_PRODUCT(q2_K, BlockQ2_K, 128, 64, Sums::of_integers)
MATRIX_PRODUCT(q3_K, BlockQ3_K, 128, 128, Sums::of_integers)
MATRIX_PRODUCT(q4_K, BlockQ4_K, 128, 64, Sums::kept)
MATRIX_PRODUCT(q5_K, BlockQ5_K, 128, 64, Sums::kept)
MATRIX_PRODUCT(q6_K, BlockQ6_K, 64, 64, Sums::of_integers)

// -- experts --------------------------------------------------------------------------------------

// For each token (along y of the grid) and each of its experts (along z): a row of the expert's
// matrix (along x) times the token's vector. When input_dim1 is not 1, each pair of token and
// expert has its own vector.
#define EXPERTS(spelled, Block)                                                                    \
    KERNEL_BOUNDED(indexed_moe_forward_##spelled##_q8_1, 128,                                      \
                   (const void *all_weights, const void *all_inputs, const u32 *indices,           \
                    f32 *all_outputs, i32 n, i32 k, i32 batch, i32 topk, i32 k_padded,             \
                    i32 input_dim1))                                                               \
    {                                                                                              \
        (void)batch, (void)topk;                                                                   \
        const u64 task = u64(blockIdx.y) * gridDim.z + blockIdx.z;                                 \
        const u64 input = input_dim1 == 1 ? u64(blockIdx.y) : task;                                \
        const u64 y_blocks = u32(k_padded) / 32;                                                   \
        const Block *const weight = static_cast<const Block *>(all_weights) +                      \
                                    u64(indices[task]) * u32(n) * (u32(k) / Block::ELEMENTS);      \
        multiply_q8_1<Block, Sums::of_integers, 1, 1>(                                             \
            THIS_BLOCK, weight, static_cast<const BlockQ8_1 *>(all_inputs) + input * y_blocks,     \
            all_outputs + task * u32(n), blockIdx.x, u32(k), u32(n), y_blocks, u32(n));            \
    }

EXPERTS(q2k, BlockQ2_K)
EXPERTS(q3k, BlockQ3_K)
EXPERTS(q4k, BlockQ4_K)
EXPERTS(q5k, BlockQ5_K)
EXPERTS(q6k, BlockQ6_K)
EXPERTS(q8_0, BlockQ8_0)
