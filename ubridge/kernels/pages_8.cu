// Pages of keys and values in 8 bits: `paged_append_<pool>_<type>` writes them,
// `sdpa_paged_<pool>_<type>` is `sdpa_paged` of attention.cu over them.
//
// A row is a head of a token: `width` elements of 8 bits, then a scale, an f32 in 4 elements. An
// element is its 8 bits times the scale. The largest magnitude of a row becomes the type's largest
// number, 127 or 448; elements are rounded to the nearest even. `width` is a multiple of 4.
#include "attention.h"

enum : u32 { SCALE_BYTES = 4 };

// Rows with a scale behind them.
template <class Q> struct ScaledRows {
    const Q *data;
    u32 head_dim;

    static DEVICE_METHOD u32 size(u32 head_dim) { return head_dim + SCALE_BYTES; }
    DEVICE_METHOD ScaledRows from(u64 at) const { return {data + at, head_dim}; }
    DEVICE_METHOD const Q *row(u64 at) const { return data + at; }
    DEVICE_METHOD f32 scaled(f32 number, u64 at) const {
        return number * *reinterpret_cast<const f32 *>(data + at + head_dim);
    }
};

template <class Q> constexpr f32 LARGEST = 127;
template <> constexpr f32 LARGEST<f8e4m3> = 448;

// A number of at most the type's largest magnitude; a NaN becomes 0, as its row's scale is a NaN.
template <class Q> DEVICE_FUNCTION Q rounded(f32 x) {
    const f32 bounded = x < -LARGEST<Q> ? -LARGEST<Q> : x > LARGEST<Q> ? LARGEST<Q> : x;
    const f32 number = is_nan(bounded) ? 0 : bounded;
    if constexpr (same_type<Q, i8>)
        return i8(rintf(number));
    else
        return Q(number);
}

// target[slots[t], head] = inp[t, head]; a token of slot -1 is skipped, other slots beyond the
// target are reported and skipped.
template <class T, class Q>
DEVICE_FUNCTION void append(BLOCK block, const char *entry, u64 rows, const i64 *slots,
                            const T *inp, Q *target, u64 capacity, u64 heads, u64 width) {
    GRID_STRIDE_OF(block, row, rows) {
        const u64 token = row / heads, head = row % heads;
        const i64 place = slots[token];
        if (place >= 0 && u64(place) < capacity) {
            const T *const from = inp + row * width;
            Q *const to = target + (u64(place) * heads + head) * (width + SCALE_BYTES);
            f32 most = 0;
            for (u64 i = 0; i < width; ++i)
                most = maximum(most, fabsf(widen(from[i])));
            const f32 scale = most / LARGEST<Q>;
            for (u64 i = 0; i < width; ++i)
                to[i] = rounded<Q>(scale == 0 ? 0 : widen(from[i]) / scale);
            *reinterpret_cast<f32 *>(to + width) = scale;
        } else if (place != -1 && head == 0) {
            report_index(entry, token, place, capacity);
        }
    }
}

#define PAGES(T, Q)                                                                                \
    KERNEL(paged_append_##Q##_##T, (u64 rows, const i64 *slots, const T *inp, Q *target,           \
                                    u64 capacity, u64 heads, u64 width)) {                         \
        append(THIS_BLOCK, "paged_append_" #Q "_" #T, rows, slots, inp, target, capacity, heads,   \
               width);                                                                             \
    }                                                                                              \
    KERNEL(sdpa_paged_##Q##_##T,                                                                   \
           (const T *q, const Q *k, const Q *v, const i64 *tables, const i64 *sequences,           \
            const i64 *positions, const f32 *bias, T *out, u32 heads, u32 kv_heads, u32 head_dim,  \
            u64 pages, u32 page_size, u64 table_rows, u64 table_pages, u64 window, f64 scale,      \
            f64 cap)) {                                                                            \
        const Texts texts = {"sdpa_paged_" #Q "_" #T,                                              \
                             tables,                                                               \
                             sequences,                                                            \
                             positions,                                                            \
                             bias,                                                                 \
                             heads,                                                                \
                             kv_heads,                                                             \
                             head_dim,                                                             \
                             pages,                                                                \
                             page_size,                                                            \
                             table_rows,                                                           \
                             table_pages,                                                          \
                             window,                                                               \
                             scale,                                                                \
                             cap};                                                                 \
        attend_paged(THIS_BLOCK, blockDim.x, q, ScaledRows<Q>{k, head_dim},                        \
                     ScaledRows<Q>{v, head_dim}, out, blockIdx.x, texts);                          \
    }

PAGES(bf16, i8)
PAGES(f16, i8)
PAGES(f32, i8)
PAGES(bf16, f8e4m3)
PAGES(f16, f8e4m3)
PAGES(f32, f8e4m3)
