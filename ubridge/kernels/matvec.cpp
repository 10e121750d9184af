// Products of a matrix by a vector for CPUs, `matvec_<type>`: out[i] = sum over l of x[i, l] v[l],
// for each batch. Sums are taken in f32 and rounded once; the matrix is read once, without packing.
//
// Lines and elements of the matrix, and elements of the vector, may lie at any distance; out is
// contiguous. The grid is (pieces of the lines, 1, batches).
#include "vectors.h"

#include <stdlib.h>

#include <memory>
#include <new>

enum : u64 {
    TOGETHER = 4, // lines that share each element of the vector
    PART = 1024,  // lines whose sums are kept in the cache
};

struct Released {
    void operator()(void *memory) const { free(memory); }
};

// The sum of `count` vectors, and of the products from `first` on. Not inlined: its copies would be
// half of the module.
template <class T>
__attribute__((noinline)) static f32 total(const Floats *sums, u64 count, const T *x,
                                           const T *vector, u64 first, u64 depth)
{
    f32 sum = 0;
    for (u64 lane = 0; lane < LANES; ++lane)
        for (u64 each = 0; each < count; ++each)
            sum += sums[each][lane];
    for (u64 rest = first; rest < depth; ++rest)
        sum += f32(x[rest]) * f32(vector[rest]);
    return sum;
}

// The elements of each line are contiguous. Lines that are `apart` lines from each other share each
// load of the vector.
template <class T, u64 lines>
DEVICE_FUNCTION void sum_lines(const T *x, u64 step, u64 apart, const T *vector, u64 depth, T *out)
{
    constexpr u64 EACH = 4 / sizeof(T);
    const u32 ahead = looked_ahead(lines);
    Floats sums[lines][EACH] = {};
    u64 i = 0;
    for (; i + EACH * LANES <= depth; i += EACH * LANES) {
        Floats shared[EACH];
        for (u64 each = 0; each < EACH; ++each)
            shared[each] = widened(vector + i + each * LANES);
        for (u64 line = 0; line < lines; ++line) {
            const T *const here = x + line * apart * step + i;
            look_ahead<EACH * LANES * sizeof(T)>(here, ahead);
            for (u64 each = 0; each < EACH; ++each)
                sums[line][each] += widened(here + each * LANES) * shared[each];
        }
    }
    for (u64 line = 0; line < lines; ++line)
        out[line * apart] = T(total(sums[line], EACH, x + line * apart * step, vector, i, depth));
}

// Sums of `together` runs of neighboring lines; each run is read from memory in order. Returns the
// number of lines in all these runs.
template <class T, u64 together>
static inline u64 sum_runs(const T *x, u64 step, const T *vector, u64 depth, u64 lines, T *out)
{
    const u64 apart = lines / together;
    for (u64 line = 0; line < apart; ++line)
        sum_lines<T, together>(x + line * step, step, apart, vector, depth, out + line);
    return apart * together;
}

// `count` lines, at most PART, whose corresponding elements are contiguous.
template <class T>
static inline void sum_across(const T *x, u64 step, const T *vector, u64 depth, u64 count, T *out)
{
    f32 sums[PART] = {};
    for (u64 first = 0; first < depth; first += TOGETHER) {
        const u64 present = smaller(TOGETHER, depth - first);
        const T *rows[TOGETHER] = {};
        f32 factors[TOGETHER] = {};
        for (u64 i = 0; i < present; ++i) {
            rows[i] = x + (first + i) * step;
            factors[i] = f32(vector[first + i]);
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
static inline void multiply_lines(const T *x, u64 line_step, u64 depth_step, const T *vector,
                                  u64 depth, u64 lines, T *out)
{
    u64 line = 0;
    if (depth_step == 1) {
        if (looks_far())
            line += sum_runs<T, 4>(x, line_step, vector, depth, lines, out);
        line += sum_runs<T, 2>(x + line * line_step, line_step, vector, depth, lines - line,
                               out + line);
        sum_runs<T, 1>(x + line * line_step, line_step, vector, depth, lines - line, out + line);
    } else if (line_step == 1) {
        for (; line < lines; line += PART)
            sum_across(x + line, depth_step, vector, depth, smaller(PART, lines - line), out + line);
    } else {
        for (; line < lines; ++line) {
            f32 sum = 0;
            for (u64 i = 0; i < depth; ++i)
                sum += f32(x[line * line_step + i * depth_step]) * f32(vector[i]);
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
        const T *const from = vector + blockIdx.z * vector_batch;                                  \
        const std::unique_ptr<T, Released> gathered(                                               \
            step == 1 ? nullptr : static_cast<T *>(malloc((depth + 1) * sizeof(T))));              \
        if (step != 1 && gathered == nullptr)                                                      \
            throw std::bad_alloc();                                                                \
        for (u64 i = 0; step != 1 && i < depth; ++i)                                               \
            gathered.get()[i] = from[i * step];                                                    \
        multiply_lines<T>(x + blockIdx.z * x_batch + piece.first * line_step, line_step,           \
                          depth_step, step == 1 ? from : gathered.get(), depth, piece.length,      \
                          out + blockIdx.z * lines + piece.first);                                 \
    }

MATVEC(bf16)
MATVEC(f16)
MATVEC(f32)
