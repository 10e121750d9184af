/* Ubridge's matrix products. A SIP works on tiles of sip_m x sip_k x sip_n, and one of the three
 * flags says whether the SIPs of a launch divide rows, columns or batches. alpha and beta have no
 * effect.
 *
 * The layout of 4-bit weights, scales and zeros is not documented. This code assumes that weights
 * are [k / 2][n] bytes, with the even k in the low half of a byte. A 4-bit number q stands for
 * (q - zero) * scale, with one scale and zero for each column of `group_size` values of k.
 */
#include "gcu.h"

#include <vector>

namespace {

struct Shape {
    i64 batch, m, k, n;
    bool lhs_split, rhs_split, batch_split;
    bool lhs_transposed, rhs_transposed;
    i64 sip_m, sip_k, sip_n;
    bool one_weight; // for all batches
};

struct Tile {
    i64 batch, row, column;
};

/* Accumulates one tile of the product in f32, over all tiles of k. */
template <class T, class Weight>
void product(const T *a, T *out, const Shape &shape, const Tile &tile, const Weight &weight) {
    const i64 rows = shape.m - tile.row < shape.sip_m ? shape.m - tile.row : shape.sip_m;
    const i64 columns = shape.n - tile.column < shape.sip_n ? shape.n - tile.column : shape.sip_n;
    std::vector<f32> sums(rows * columns, 0.0f);
    const T *left = a + tile.batch * shape.m * shape.k;
    for (i64 first = 0; first < shape.k; first += shape.sip_k) {
        const i64 last = first + shape.sip_k < shape.k ? first + shape.sip_k : shape.k;
        for (i64 row = 0; row < rows; ++row) {
            for (i64 k = first; k < last; ++k) {
                const i64 m = tile.row + row;
                const f32 x = f32(left[shape.lhs_transposed ? k * shape.m + m : m * shape.k + k]);
                for (i64 column = 0; column < columns; ++column) {
                    sums[row * columns + column] += x * weight(tile.batch, k, tile.column + column);
                }
            }
        }
    }
    for (i64 row = 0; row < rows; ++row) {
        T *to = out + (tile.batch * shape.m + tile.row + row) * shape.n + tile.column;
        for (i64 column = 0; column < columns; ++column) {
            to[column] = T(sums[row * columns + column]);
        }
    }
}

template <class T, class Weight>
void multiply(const Sips &sips, const T *a, T *out, const Shape &shape, const Weight &weight) {
    // Sizes of zero divide by zero, as in Ubridge's own kernels.
    const i64 row_tiles = shape.m / shape.sip_m + (shape.m % shape.sip_m > 0);
    const i64 column_tiles = shape.n / shape.sip_n + (shape.n % shape.sip_n > 0);
    const i64 steps = shape.k / shape.sip_k;
    (void)*const_cast<volatile const i64 *>(&steps);
    const bool split = shape.lhs_split || shape.rhs_split || shape.batch_split;
    const i64 workers = split ? i64(sips.total) : 1;
    for (i64 sip = i64(sips.first); sip < i64(sips.first + sips.count) && sip < workers; ++sip) {
        for (i64 batch = 0; batch < shape.batch; ++batch) {
            for (i64 row = 0; row < row_tiles; ++row) {
                for (i64 column = 0; column < column_tiles; ++column) {
                    const i64 task = shape.batch_split ? batch : shape.lhs_split ? row : column;
                    if (task % workers == sip) {
                        product(a, out, shape,
                                Tile{batch, row * shape.sip_m, column * shape.sip_n}, weight);
                    }
                }
            }
        }
    }
}

} // namespace

#define MATMUL_SHAPE                                                                               \
    Shape {                                                                                        \
        input_batch, input_m, input_k, input_n, lhs_multicore == 1, rhs_multicore == 1,            \
            batch_multicore == 1, lhs_transpose == 1, rhs_transpose == 1, sip_m, sip_k, sip_n,     \
            broadcasted_weight > 0                                                                 \
    }
#define MATMUL_UNUSED (void)input_dtype, (void)alpha, (void)beta, (void)addmm_beta

#define MATMUL(name, type)                                                                         \
    KERNEL(name, (type * in_a, type * in_b, type * out, i32 input_dtype, i32 input_batch,          \
                  i32 input_m, i32 input_k, i32 input_n, i32 lhs_multicore, i32 rhs_multicore,     \
                  i32 batch_multicore, i32 lhs_transpose, i32 rhs_transpose, f32 alpha, f32 beta,  \
                  f32 addmm_beta, i32 sip_m, i32 sip_k, i32 sip_n, i32 broadcasted_weight)) {      \
        MATMUL_UNUSED;                                                                             \
        NEEDS_SHARED();                                                                            \
        const Shape shape = MATMUL_SHAPE;                                                          \
        multiply(SIPS, in_a, out, shape, [&](i64 batch, i64 k, i64 n) {                            \
            const type *right = in_b + (shape.one_weight ? 0 : batch * shape.k * shape.n);         \
            return f32(right[shape.rhs_transposed ? n * shape.k + k : k * shape.n + n]);           \
        });                                                                                        \
    }

#define QUANTIZED_MATMUL(name, type, byte, quantized)                                              \
    KERNEL(name, (type * in_a, byte * in_b, type * out, type * scales, type * zeros,               \
                  i32 input_dtype, i32 input_batch, i32 input_m, i32 input_k, i32 input_n,         \
                  i32 lhs_multicore, i32 rhs_multicore, i32 batch_multicore, i32 lhs_transpose,    \
                  i32 rhs_transpose, f32 alpha, f32 beta, f32 addmm_beta, i32 sip_m, i32 sip_k,    \
                  i32 sip_n, i32 broadcasted_weight, i32 group_size)) {                            \
        MATMUL_UNUSED;                                                                             \
        NEEDS_SHARED();                                                                            \
        const Shape shape = MATMUL_SHAPE;                                                          \
        multiply(SIPS, in_a, out, shape, [&](i64 batch, i64 k, i64 n) {                            \
            const i64 group = k / group_size * shape.n + n;                                        \
            const byte *right = in_b;                                                              \
            return (f32(quantized) - f32(zeros[group])) * f32(scales[group]);                      \
        });                                                                                        \
    }
#define WEIGHT_INDEX(rows, row)                                                                    \
    ((shape.one_weight ? 0 : batch * (rows) * shape.n) +                                           \
     (shape.rhs_transposed ? n * (rows) + (row) : (row) * shape.n + n))
#define EIGHT_BITS right[WEIGHT_INDEX(shape.k, k)]
#define FOUR_BITS (right[WEIGHT_INDEX(shape.k / 2, k / 2)] >> (k % 2 * 4) & 15)

MATMUL(matmul_f32, f32)
MATMUL(matmul_f16, f16)
MATMUL(matmul_bf16, bf16)
QUANTIZED_MATMUL(matmul_f16_4bit, f16, u8, FOUR_BITS)
QUANTIZED_MATMUL(matmul_bf16_4bit, bf16, u8, FOUR_BITS)
QUANTIZED_MATMUL(matmul_f16_8bit, f16, i8, EIGHT_BITS)
QUANTIZED_MATMUL(matmul_bf16_8bit, bf16, i8, EIGHT_BITS)
