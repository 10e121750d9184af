// Matrix products, `matmul_<type>`: out[i, j] = sum over l of a[i, l] b[l, j], for each batch.
//
// Rows, columns and batches of a and b may lie at any distance, so that transposed and broadcast
// operands need no copy; out is row-major. Sums are taken in f32 for f16 and bf16; sums of integers
// wrap around. The grid is (ceil(n / 64), ceil(m / 64), batches); blocks of 256 are fastest.
//
// `matmul_vectors_<type>` multiplies a matrix by few vectors; its own comment describes it.
//
// A block makes a tile of 64 x 64, going through 16 columns of a and 16 rows of b at a time. On a
// GPU a work-item keeps 4 x 4 sums in registers; a CPU runs along the rows of the tile.
#include "number.h"

#include <uhal/vector.h>
#include <uhal/warp.h>

enum : u32 { TILE = 64, DEPTH = 16, PART = 4, PARTS = (TILE / PART) * (TILE / PART) };

// The type in which products are added; unsigned where integers wrap.
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
