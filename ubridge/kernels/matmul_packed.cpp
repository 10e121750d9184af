// Products of matrices for CPUs, `matmul_packed_<type>`: out[i, j] = sum over l of a[i, l] b[l, j], for
// each batch. Floats are taken in f32 and rounded once.
//
// Rows, columns and batches of a and b may lie at any distance; out is row-major. The grid is
// (pieces of n, pieces of m, batches). A block computes its piece in parts that stay in a core's
// cache with their operands, which are packed for it (`packing.h`). A product of few rows by
// contiguous columns is bound by memory, so its columns are read without packing.
//
// If the CPU level has bf16 instructions (`uhal/images/cpu_level.py`), they multiply bf16. They
// add pairs of products in f32, and numbers below the least normal number, 1.2e-38, count as zero.
// f16 is always widened to f32, and so is bf16 on other levels.
#include "packed_product.h"

enum : u64 {
    AHEAD = 8 * LANES, // words by which prefetches run ahead
#if defined(__AVX512BF16__) && !defined(__AMX_BF16__)
    FEW = 2 * STRIP, // rows up to which the right operand is not packed, as measured with AVX-512
#else
    FEW = STRIP,
#endif
};

// Multiplies ROWS lines of x, from `line` on, by the first `vectors` vectors of a strip. The sums
// of column j go to out + j * step. Lines behind the last are zero and not written. `words` is a
// whole number of vectors.
template <class Scheme, u64 vectors, class T>
static inline void multiply_lines(const Operand<T> &x, u64 line, const u32 *strip, u64 words,
                                  T *out, u64 step, u64 columns)
{
    Floats made[ROWS][vectors] = {};
    for (u64 word = 0; word < words; word += LANES) {
        alignas(LaneWords) u32 left[ROWS][LANES];
        const bool is_whole = are_whole<Scheme>(x, line, ROWS, word);
        // A CPU cannot prefetch so many lines by itself. Lines follow one another in memory.
        const u64 ahead = word + AHEAD;
        const T *const soon = ahead < words
                                  ? x.data + line * x.line_step + ahead * Scheme::PER_WORD
                                  : x.data + (line + ROWS) * x.line_step +
                                        (ahead - words) * Scheme::PER_WORD;
        for (u64 row = 0; row < ROWS; ++row) {
            lanes_of_depth<Scheme>(left[row], x, line + row, word, is_whole);
            __builtin_prefetch(soon + row * x.line_step);
        }
        for (u64 i = 0; i < LANES; ++i) {
            const LaneWords *const right =
                reinterpret_cast<const LaneWords *>(strip + (word + i) * STRIP);
#pragma GCC unroll 12
            for (u64 row = 0; row < ROWS; ++row)
#pragma GCC unroll 2
                for (u64 j = 0; j < vectors; ++j)
                    made[row][j] = multiplied(made[row][j], left[row][i], right[j], Scheme());
        }
    }
    f32 sums[ROWS][vectors * LANES];
    memcpy(sums, made, sizeof sums);
    const u64 lines = smaller(ROWS, x.lines - line);
    for (u64 j = 0; j < columns; ++j)
        for (u64 row = 0; row < lines; ++row)
            out[j * step + row] = T(sums[row][j]);
}

// Multiplies few rows of a by contiguous columns of b, with the sides exchanged. All of a is
// packed. b is read only once, so it is not packed.
template <class Scheme, class T>
static void multiply_few(const Operand<T> &a, const Operand<T> &b, T *out, u64 out_step)
{
    const u64 words = whole_times((a.depth + Scheme::PER_WORD - 1) / Scheme::PER_WORD, LANES);
    const u64 columns = whole_times(a.lines, STRIP);
    const std::unique_ptr<u32, Released> strips(allocated(columns * words));
    pack_right<Scheme>(strips.get(), a, columns, words);
    for (u64 line = 0; line < b.lines; line += ROWS)
        for (u64 column = 0; column < a.lines; column += STRIP) {
            const u32 *const strip = strips.get() + column * words;
            T *const to = out + column * out_step + line;
            const u64 left = a.lines - column;
            if (left > LANES)
                multiply_lines<Scheme, 2>(b, line, strip, words, to, out_step,
                                          smaller(left, STRIP));
            else
                multiply_lines<Scheme, 1>(b, line, strip, words, to, out_step, left);
        }
}

#define MATMUL_PACKED(T)                                                                           \
    KERNEL(matmul_packed_##T, (const T *a, const T *b, T *out, u64 m, u64 n, u64 k, u64 a_batch,   \
                               u64 a_row, u64 a_column, u64 b_batch, u64 b_row, u64 b_column))     \
    {                                                                                              \
        const Piece rows(m, blockIdx.y, gridDim.y, STRIP);                                         \
        const Piece columns(n, blockIdx.x, gridDim.x, STRIP);                                      \
        if (rows.length == 0 || columns.length == 0)                                               \
            return;                                                                                \
        const Operand<T> left = {a + blockIdx.z * a_batch + rows.first * a_row, a_row, a_column,   \
                                 rows.length, k};                                                  \
        const Operand<T> right = {b + blockIdx.z * b_batch + columns.first * b_column, b_column,   \
                                  b_row, columns.length, k};                                       \
        T *const to = out + (blockIdx.z * m + rows.first) * n + columns.first;                     \
        if (rows.length <= FEW && b_row == 1)                                                      \
            multiply_few<SchemeOf_##T, T>(left, right, to, n);                                     \
        else                                                                                       \
            multiply_piece<SchemeOf_##T>(left, right, Matrix<T>{to, n});                           \
    }

MATMUL_PACKED(bf16)
MATMUL_PACKED(f16)
MATMUL_PACKED(f32)
