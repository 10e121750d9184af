// Products of a matrix by a vector for CPUs, `matvec_<type>`: out[i] = sum over l of x[i, l] v[l], for
// each batch. Sums are taken in f32 and rounded once; the matrix is read once, as it lies.
//
// Lines and elements of the matrix, and elements of the vector, may lie at any distance; out is
// contiguous. The grid is (pieces of the lines, 1, batches).
#include "vectors.h"

#include <stdlib.h>

#include <memory>
#include <new>

enum : u64 {
    TOGETHER = 4,  // lines that are multiplied by an element of the vector at a time
    PART = 1024,   // lines whose sums are kept in the cache
};

struct Released {
    void operator()(void *memory) const { free(memory); }
};

// The elements of each line lie together. Lines are taken from as many runs of neighbors, `apart` from
// one another: each run is read from memory in its order, which is what CPUs look ahead for.
template <class T, u64 lines>
DEVICE_FUNCTION void sum_lines(const T *x, u64 step, u64 apart, const f32 *vector, u64 depth, T *out)
{
    Floats sums[lines][2] = {};
    u64 i = 0;
    for (; i + 2 * LANES <= depth; i += 2 * LANES)
        for (u64 line = 0; line < lines; ++line) {
            const T *const here = x + line * apart * step + i;
            sums[line][0] += widened(here) * widened(vector + i);
            sums[line][1] += widened(here + LANES) * widened(vector + i + LANES);
        }
    for (u64 line = 0; line < lines; ++line) {
        f32 sum = 0;
        for (u64 lane = 0; lane < LANES; ++lane)
            sum += sums[line][0][lane] + sums[line][1][lane];
        for (u64 rest = i; rest < depth; ++rest)
            sum += f32(x[line * apart * step + rest]) * vector[rest];
        out[line * apart] = T(sum);
    }
}

// Neighboring lines lie together: `count` of them, at most PART.
template <class T>
static inline void sum_across(const T *x, u64 step, const f32 *vector, u64 depth, u64 count, T *out)
{
    f32 sums[PART] = {};
    for (u64 first = 0; first < depth; first += TOGETHER) {
        const u64 present = smaller(TOGETHER, depth - first);
        const T *rows[TOGETHER] = {};
        f32 factors[TOGETHER] = {};
        for (u64 i = 0; i < present; ++i) {
            rows[i] = x + (first + i) * step;
            factors[i] = vector[first + i];
        }
        u64 i = 0;
        if (present == TOGETHER)
            for (; i + LANES <= count; i += LANES) {
                Floats *const sum = reinterpret_cast<Floats *>(sums + i);
                *sum += factors[0] * widened(rows[0] + i) + factors[1] * widened(rows[1] + i) +
                        factors[2] * widened(rows[2] + i) + factors[3] * widened(rows[3] + i);
            }
        for (; i < count; ++i)
            for (u64 row = 0; row < present; ++row)
                sums[i] += factors[row] * f32(rows[row][i]);
    }
    for (u64 i = 0; i < count; ++i)
        out[i] = T(sums[i]);
}

template <class T>
static inline void multiply_lines(const T *x, u64 line_step, u64 depth_step, const f32 *vector,
                                  u64 depth, u64 lines, T *out)
{
    u64 line = 0;
    if (depth_step == 1) {
        const u64 apart = lines / TOGETHER;
        for (; line < apart; ++line)
            sum_lines<T, TOGETHER>(x + line * line_step, line_step, apart, vector, depth, out + line);
        for (line = apart * TOGETHER; line < lines; ++line)
            sum_lines<T, 1>(x + line * line_step, line_step, 1, vector, depth, out + line);
    } else if (line_step == 1) {
        for (; line < lines; line += PART)
            sum_across(x + line, depth_step, vector, depth, smaller(PART, lines - line), out + line);
    } else {
        for (; line < lines; ++line) {
            f32 sum = 0;
            for (u64 i = 0; i < depth; ++i)
                sum += f32(x[line * line_step + i * depth_step]) * vector[i];
            out[line] = T(sum);
        }
    }
}

#define MATVEC(T)                                                                                  \
    KERNEL(matvec_##T,                                                                             \
           (const T *x, const T *vector, T *out, u64 lines, u64 depth, u64 x_batch, u64 line_step, \
            u64 depth_step, u64 vector_batch, u64 step))                                           \
    {                                                                                              \
        const Piece piece(lines, blockIdx.x, gridDim.x, 32);                                       \
        if (piece.length == 0)                                                                     \
            return;                                                                                \
        const std::unique_ptr<f32, Released> wide(                                                 \
            static_cast<f32 *>(malloc((depth + 1) * sizeof(f32))));                                \
        if (wide == nullptr)                                                                       \
            throw std::bad_alloc();                                                                \
        for (u64 i = 0; i < depth; ++i)                                                            \
            wide.get()[i] = f32(vector[blockIdx.z * vector_batch + i * step]);                     \
        multiply_lines<T>(x + blockIdx.z * x_batch + piece.first * line_step, line_step,           \
                          depth_step, wide.get(), depth, piece.length,                             \
                          out + blockIdx.z * lines + piece.first);                                 \
    }

MATVEC(bf16)
MATVEC(f16)
MATVEC(f32)
