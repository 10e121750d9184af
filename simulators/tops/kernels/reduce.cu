/* Ubridge's reductions of the last axis, softmax and layer norm. */
#include "gcu.h"

namespace {

constexpr u64 most_rows = 32768; // results also kept in L2

template <class T, class Out, class Row>
void reduce(const Sips &sips, const T *in, Out *out, u64 elements, u64 columns, const Row &row) {
    const u64 rows = elements / columns;
    if (rows > most_rows) {
        throw std::length_error("a reduction keeps at most 32768 results");
    }
    each_element(sips, rows, [&](u64 i) { out[i] = row(in + i * columns, columns); });
}

template <class T> T sum(const T *row, u64 columns) {
    Wide<T> total = 0;
    for (u64 i = 0; i < columns; ++i) {
        total += wide(row[i]);
    }
    return T(total);
}

/* Index of the best element: `before` puts no other element before it. The first of equals. */
template <class T, class Before> u32 best(const T *row, u64 columns, const Before &before) {
    u64 found = 0;
    for (u64 i = 1; i < columns; ++i) {
        found = before(wide(row[i]), wide(row[found])) ? i : found;
    }
    return u32(found);
}

template <class T> void softmax(const Sips &sips, const T *in, T *out, u64 rows, u64 columns) {
    each_element(sips, rows, [&](u64 row) {
        const T *from = in + row * columns;
        T *to = out + row * columns;
        const f32 most = f32(from[best(from, columns, [](f32 x, f32 y) { return x > y; })]);
        f32 total = 0;
        for (u64 i = 0; i < columns; ++i) {
            to[i] = T(expf(f32(T(f32(from[i]) - most))));
            total += f32(to[i]);
        }
        for (u64 i = 0; i < columns; ++i) {
            to[i] = T(f32(to[i]) / total);
        }
    });
}

template <class T>
void layer_norm(const Sips &sips, const T *in, T *out, const T *weight, const T *bias, u64 rows,
                u64 columns, f32 epsilon, bool remove_mean, bool affine) {
    each_element(sips, rows, [&](u64 row) {
        const T *from = in + row * columns;
        T *to = out + row * columns;
        f32 mean = 0;
        for (u64 i = 0; remove_mean && i < columns; ++i) {
            mean += f32(from[i]) / f32(columns);
        }
        f32 variance = 0;
        for (u64 i = 0; i < columns; ++i) {
            const f32 centered = f32(from[i]) - mean;
            variance += centered * centered / f32(columns);
        }
        const f32 deviation = sqrtf(variance + epsilon);
        for (u64 i = 0; i < columns; ++i) {
            const T normal = T((f32(from[i]) - mean) / deviation);
            const T scaled = T(f32(normal) * f32(weight[i]));
            to[i] = affine ? T(f32(scaled) + f32(bias[i])) : scaled;
        }
    });
}

} // namespace

#define REDUCE(name, type, result, expression)                                                     \
    KERNEL(name, (type * in, result * out, u64 element_num, u64 reduce_dim_size)) {                \
        NEEDS_SHARED();                                                                            \
        reduce(SIPS, in, out, element_num, reduce_dim_size,                                        \
               [](const type *row, u64 columns) -> result { return expression; });                 \
    }
#define LARGEST best(row, columns, [](auto x, auto y) { return x > y; })
#define SMALLEST best(row, columns, [](auto x, auto y) { return x < y; })
#define REDUCES(suffix, type)                                                                      \
    REDUCE(fast_sum_##suffix, type, type, sum(row, columns))                                       \
    REDUCE(fast_min_##suffix, type, type, row[SMALLEST])                                           \
    REDUCE(fast_max_##suffix, type, type, row[LARGEST])                                            \
    REDUCE(fast_argmin_##suffix, type, u32, SMALLEST)                                              \
    REDUCE(fast_argmax_##suffix, type, u32, LARGEST)

REDUCES(f32, f32)
REDUCES(f16, f16)
REDUCES(bf16, bf16)
REDUCES(i8, i8)

#define NORMS(suffix, type)                                                                        \
    KERNEL(softmax_##suffix, (type * input, type * output, i32 batch, i32 chunks,                  \
                              i32 last_dim_size)) {                                                \
        NEEDS_SHARED();                                                                            \
        softmax(SIPS, input, output, (u64)batch *chunks, (u64)last_dim_size);                      \
    }                                                                                              \
    KERNEL(layernorm_##suffix, (type * input, type * output, type * weight, type * bias,           \
                                i32 batch, i32 chunks, i32 last_dim_size, f32 epsilon,             \
                                i32 remove_mean, i32 affine)) {                                    \
        layer_norm(SIPS, input, output, weight, bias, (u64)batch *chunks, (u64)last_dim_size,      \
                   epsilon, remove_mean != 0, affine != 0);                                        \
    }

NORMS(f32, f32)
NORMS(f16, f16)
NORMS(bf16, bf16)
