// Attention over pages of keys and values, `sdpa_paged_<type>`, and pages of 8 bits.
//
// Tokens belong to several texts: q and out are (tokens, heads, head_dim), k and v (pages,
// page_size, kv_heads, head_dim). `tables` has the pages of each text in order, `table_pages` of
// them. A token has a sequence and a position, -1 for no token, whose result is zeros. It sees the
// keys up to its own. A key whose page is out of bounds is reported and hidden.
//
// `ancestors` is null or has 64 bits for each token: bit j says whether the token sees the key j
// places before its own. It sees all keys further back. Drafted tokens of a tree thus see the text
// and their ancestors. With a window, a token sees the last `window` of these keys and the first
// `sink_tokens` keys. Scores are bounded as in `sdpa_cached` of attention.cu. `bias` is null or
// (heads, capacity) and counts only keys that `ancestors` shows. `sinks` is null or has a score for
// each head, which takes its share of the softmax and has no value.
//
// With several blocks along y, each takes MAX_KEYS keys and leaves its sums in `parts`, which
// `sdpa_paged_merge_<type>` joins. Runs of keys are joined in the order of positions. So neither
// pages nor other tokens nor the number of blocks change a bit of a result.
//
// `sdpa_paged_<pool>_<type>` is for pages of 8 bits, which `paged_append_<pool>_<type>` writes. A
// row, a head of a token, is `width` elements of 8 bits, then a scale, an f32 in 4 elements. An
// element is its 8 bits times the scale. The largest magnitude of a row becomes the type's largest
// number, 127 or 448; elements are rounded to the nearest even. `width` is a multiple of 4.
#include "attention.h"

#include <uhal/report.h>

// Number of set bits.
DEVICE_FUNCTION u64 bits_in(u64 bits) {
    bits -= bits >> 1 & 0x5555555555555555;
    bits = (bits & 0x3333333333333333) + (bits >> 2 & 0x3333333333333333);
    bits = (bits + (bits >> 4)) & 0x0f0f0f0f0f0f0f0f;
    return bits * 0x0101010101010101 >> 56;
}

// The keys that a token sees: the first ones, and the last ones except hidden ones. Bit j of
// `hidden` hides the key j places before the last.
struct Shown : Span {
    u64 first;
    u64 hidden;

    DEVICE_METHOD Shown(i64 place, u64 capacity, u64 window, u64 sink_tokens, u64 ancestors) {
        const u64 own = place < 0 ? 0 : u64(place) + 1;
        hidden = own < 64 ? ~ancestors & ((u64(1) << own) - 1) : ~ancestors;
        u64 back = window;
        if (hidden != 0) {
            u64 seen = 0;
            back = 0;
            ROLLED for (; back < 64 && seen < window; ++back)
                seen += ~(hidden >> back) & 1;
            back += window - seen;
        }
        end = own < capacity ? own : capacity;
        begin = window == 0 || own < back ? 0 : own - back;
        first = sink_tokens < begin ? sink_tokens : begin;
    }
    DEVICE_METHOD u64 from(u64 key) const { return key < first || key > begin ? key : begin; }
    DEVICE_METHOD bool sees(u64 key) const {
        const u64 back = end - 1 - key;
        return (key < first || key >= begin) && (back >= 64 || (hidden >> back & 1) == 0);
    }
    DEVICE_METHOD u64 column(u64 key) const {
        const u64 back = end - 1 - key;
        return back >= 63 ? key : key - bits_in(hidden >> (back + 1));
    }
};

// Keys in pages. Shared memory holds the start of each key, for all columns of the values.
struct Paged {
    enum : u32 { NOTED = MAX_KEYS };
    const i64 *table;
    const char *entry;
    u64 pages;
    u32 page_size;
    u64 step;

    DEVICE_METHOD bool note(u64 *places, u32 i, u64 key) const {
        const u32 index = u32(key) / page_size;
        const i64 page = table[index];
        const bool is_there = page >= 0 && u64(page) < pages;
        if (!is_there)
            report_index(entry, index, page, pages);
        places[i] = is_there ? (u64(page) * page_size + u32(key) % page_size) * step : 0;
        return is_there;
    }
    DEVICE_METHOD u64 noted(const u64 *places, u32 i, u64) const { return places[i]; }
};

// A score without a value for a head, -infinity for none.
template <class C> DEVICE_FUNCTION C sink_of(const f32 *sinks, u32 head) {
    return sinks == nullptr ? -C(INFINITY) : C(sinks[head]);
}

// Tokens of several texts, and the pages of their keys.
struct Texts {
    const char *entry;
    const i64 *tables, *sequences, *positions, *ancestors;
    const f32 *bias, *sinks;
    u32 heads, kv_heads, head_dim;
    u64 pages;
    u32 page_size;
    u64 table_rows, table_pages, window, sink_tokens;
    f64 scale, cap;
};

// Whether a token has a row of the tables, or needs none.
DEVICE_FUNCTION bool has_table(i64 sequence, i64 position, u64 table_rows) {
    return position < 0 || (sequence >= 0 && u64(sequence) < table_rows);
}

// What a token sees of its keys; nothing without a table.
DEVICE_FUNCTION Shown shown_to(u64 token, const i64 *sequences, const i64 *positions,
                               const i64 *ancestors, u64 table_rows, u64 capacity, u64 window,
                               u64 sink_tokens) {
    const i64 position = positions[token];
    return Shown(has_table(sequences[token], position, table_rows) ? position : -1, capacity,
                 window, sink_tokens, ancestors == nullptr ? ~u64(0) : u64(ancestors[token]));
}

// A head of a token over the pages of its text, or over a part of them.
template <class T, class Keys>
DEVICE_FUNCTION void attend_paged(BLOCK block, u32 threads, u64 row, u32 index, u32 splits,
                                  const T *q, Keys k, Keys v, T *out, Compute<T> *parts,
                                  const Texts &texts) {
    typedef Compute<T> C;
    const u64 token = row / texts.heads;
    const u32 head = u32(row % texts.heads);
    const u64 capacity = texts.table_pages * texts.page_size;
    const i64 sequence = texts.sequences[token];
    const i64 position = texts.positions[token];
    const bool is_there = has_table(sequence, position, texts.table_rows);
    if (!is_there)
        report_index(texts.entry, token, sequence, texts.table_rows);
    else if (position >= i64(capacity))
        report_index(texts.entry, token, position, capacity);
    const Shown shown = shown_to(token, texts.sequences, texts.positions, texts.ancestors,
                                 texts.table_rows, capacity, texts.window, texts.sink_tokens);
    const u32 size = Keys::size(texts.head_dim);
    const Paged places{texts.tables +
                           (is_there && position >= 0 ? sequence : 0) * texts.table_pages,
                       texts.entry, texts.pages, texts.page_size, u64(texts.kv_heads) * size};
    const u64 kv = u64(head / (texts.heads / texts.kv_heads)) * size;
    const f32 *const own = texts.bias == nullptr ? texts.bias : texts.bias + head * capacity;
    attend_split(block, threads, MAX_KEYS, q, k.from(kv), v.from(kv), places, shown,
                 Bounded<C>{own, C(texts.scale), C(texts.cap)}, sink_of<C>(texts.sinks, head),
                 Target<T>{out, parts, row, index, splits, texts.head_dim});
}

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

template <class T> DEVICE_FUNCTION Rows<T> rows_of(const T *data, u32) { return {data}; }
DEVICE_FUNCTION ScaledRows<i8> rows_of(const i8 *data, u32 head_dim) { return {data, head_dim}; }
DEVICE_FUNCTION ScaledRows<f8e4m3> rows_of(const f8e4m3 *data, u32 head_dim) {
    return {data, head_dim};
}

#define SDPA_PAGED(NAME, T, C, Q)                                                                  \
    KERNEL_BOUNDED(NAME, MAX_KEYS,                                                                 \
                   (const T *q, const Q *k, const Q *v, const i64 *tables, const i64 *sequences,   \
                    const i64 *positions, const i64 *ancestors, const f32 *bias, const f32 *sinks, \
                    T *out, C *parts, u32 heads, u32 kv_heads, u32 head_dim, u64 pages,            \
                    u32 page_size, u64 table_rows, u64 table_pages, u64 window, u64 sink_tokens,   \
                    f64 scale, f64 cap)) {                                                         \
        const Texts texts = {                                                                      \
            #NAME,    tables,   sequences, positions, ancestors,  bias,        sinks,  heads,      \
            kv_heads, head_dim, pages,     page_size, table_rows, table_pages, window, sink_tokens,\
            scale,    cap};                                                                        \
        attend_paged(THIS_BLOCK, blockDim.x, blockIdx.x, blockIdx.y, gridDim.y, q,                 \
                     rows_of(k, head_dim), rows_of(v, head_dim), out, parts, texts);               \
    }

#define PAGES(T, C)                                                                                \
    SDPA_PAGED(sdpa_paged_##T, T, C, T)                                                            \
    KERNEL(sdpa_paged_merge_##T,                                                                   \
           (const C *parts, const i64 *sequences, const i64 *positions, const i64 *ancestors,      \
            const f32 *sinks, T *out, u32 heads, u32 head_dim, u64 table_rows, u64 capacity,       \
            u64 window, u64 sink_tokens, u32 splits)) {                                            \
        const u64 row = blockIdx.x;                                                                \
        const Shown shown = shown_to(row / heads, sequences, positions, ancestors, table_rows,     \
                                     capacity, window, sink_tokens);                               \
        merge(THIS_BLOCK, blockDim.x, parts + row * splits * part_width(head_dim),                 \
              out + row * head_dim, shown, MAX_KEYS, head_dim,                                     \
              sink_of<C>(sinks, u32(row % heads)));                                                \
    }

#define PAGES_OF_BYTES(T, Q)                                                                       \
    KERNEL(paged_append_##Q##_##T, (u64 rows, const i64 *slots, const T *inp, Q *target,           \
                                    u64 capacity, u64 heads, u64 width)) {                         \
        append(THIS_BLOCK, "paged_append_" #Q "_" #T, rows, slots, inp, target, capacity, heads,   \
               width);                                                                             \
    }                                                                                              \
    SDPA_PAGED(sdpa_paged_##Q##_##T, T, f32, Q)

PAGES(bf16, f32)
PAGES(f16, f32)
PAGES(f32, f32)
PAGES(f64, f64)
PAGES_OF_BYTES(bf16, i8)
PAGES_OF_BYTES(f16, i8)
PAGES_OF_BYTES(f32, i8)
PAGES_OF_BYTES(bf16, f8e4m3)
PAGES_OF_BYTES(f16, f8e4m3)
PAGES_OF_BYTES(f32, f8e4m3)
