// Matrix products, `matmul_<type>`: out[i, j] = sum over l of a[i, l] b[l, j], for each batch.
//
// Rows, columns and batches of a and b may lie at any distance, so that transposed and broadcast
// operands need no copy; out is row-major. Sums are taken in f32 for f16 and bf16; sums of integers
// wrap around. The grid is (ceil(n / 64), ceil(m / 64), batches); blocks of 256 are fastest.
//
// A block makes a tile of 64 x 64, going through 16 columns of a and 16 rows of b at a time. On a
// GPU a work-item keeps 4 x 4 sums in registers; a CPU runs along the rows of the tile.
#include "number.h"

#include <uhal/kernel.h>

enum : u32 { TILE = 64, DEPTH = 16, PART = 4, PARTS = (TILE / PART) * (TILE / PART) };

// In which type products are added: where integers wrap, without a sign.
template <class T, bool is_integer = Number<T>::is_integer> struct Sums {
    typedef Compute<T> Type;
};
template <class T> struct Sums<T, true> {
    typedef Modular<T> Type;
};

template <class T> struct Matrix {
    const T *data;
    u64 row_step;
    u64 column_step;

    DEVICE_METHOD T at(u64 row, u64 column) const
    {
        return data[row * row_step + column * column_step];
    }
};

// DEPTH x TILE values of a matrix, by lines of the summed dim; zeros beyond its end.
template <class T, class C>
DEVICE_FUNCTION void load_tile(BLOCK block, u32 threads, C *tile, const Matrix<T> &matrix,
                               bool lines_are_rows, u64 first_line, u64 lines, u64 first_place,
                               u64 places)
{
    // Neighboring work-items read neighboring elements.
    const u64 line_step = lines_are_rows ? matrix.row_step : matrix.column_step;
    const bool along_lines = line_step == 1;
    THREADS_OF(block, t) {
        for (u32 i = t; i < DEPTH * TILE; i += threads) {
            const u32 line = along_lines ? i % DEPTH : i / TILE;
            const u32 place = along_lines ? i / DEPTH : i % TILE;
            C value = 0;
            if (first_line + line < lines && first_place + place < places)
                value = C(widen(lines_are_rows
                                    ? matrix.at(first_line + line, first_place + place)
                                    : matrix.at(first_place + place, first_line + line)));
            tile[line * TILE + place] = value;
        }
    }
}

template <class T>
DEVICE_FUNCTION void multiply_tile(BLOCK block, u32 threads, const Matrix<T> &a,
                                   const Matrix<T> &b, T *out, u64 m, u64 n, u64 k, u64 first_row,
                                   u64 first_column)
{
    typedef typename Sums<T>::Type C;
    SHARED(C, a_tile, DEPTH * TILE);
    SHARED(C, b_tile, DEPTH * TILE);
#if KERNEL_ON_GPU
    // A small block makes the tile in several rounds.
    ROLLED for (u32 round = 0; round < PARTS; round += threads) {
        C sums[PART][PART] = {};
        ROLLED for (u64 first = 0; first < k; first += DEPTH) {
            load_tile(block, threads, a_tile, a, false, first, k, first_row, m);
            load_tile(block, threads, b_tile, b, true, first, k, first_column, n);
            BARRIER();
            THREADS_OF(block, t) {
                const u32 part = round + t;
                if (part >= PARTS)
                    continue;
                const C *const down = a_tile + part / (TILE / PART) * PART;
                const C *const across = b_tile + part % (TILE / PART) * PART;
                for (u32 line = 0; line < DEPTH; ++line)
                    for (u32 i = 0; i < PART; ++i)
                        for (u32 j = 0; j < PART; ++j)
                            sums[i][j] += down[line * TILE + i] * across[line * TILE + j];
            }
            BARRIER();
        }
        THREADS_OF(block, t) {
            const u32 part = round + t;
            if (part >= PARTS)
                continue;
            const u64 row = first_row + part / (TILE / PART) * PART;
            const u64 column = first_column + part % (TILE / PART) * PART;
            for (u32 i = 0; i < PART; ++i)
                for (u32 j = 0; j < PART; ++j)
                    if (row + i < m && column + j < n)
                        out[(row + i) * n + column + j] = narrow<T>(Compute<T>(sums[i][j]));
        }
    }
#else
    alignas(64) C sums[TILE][TILE] = {};
    const u64 rows = m - first_row < TILE ? m - first_row : u64(TILE);
    const u64 columns = n - first_column < TILE ? n - first_column : u64(TILE);
    for (u64 first = 0; first < k; first += DEPTH) {
        load_tile(block, threads, a_tile, a, false, first, k, first_row, m);
        load_tile(block, threads, b_tile, b, true, first, k, first_column, n);
        for (u64 i = 0; i < rows; ++i)
            for (u32 line = 0; line < DEPTH; ++line) {
                const C factor = a_tile[line * TILE + i];
                for (u32 j = 0; j < TILE; ++j)
                    sums[i][j] += factor * b_tile[line * TILE + j];
            }
    }
    for (u64 i = 0; i < rows; ++i)
        for (u64 j = 0; j < columns; ++j)
            out[(first_row + i) * n + first_column + j] = narrow<T>(Compute<T>(sums[i][j]));
#endif
}

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
        const Matrix<T> right = {b + blockIdx.z * b_batch, b_row, b_column};                       \
        multiply_tile(THIS_BLOCK, blockDim.x *blockDim.y *blockDim.z, left, right,                 \
                      out + blockIdx.z * out_batch, m, n, k, first_row, first_column);             \
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
