// Attention for CPUs, for types that are computed in f32. `sdpa_packed_<type>` attends over a
// cache and gives the results of `sdpa_cached_<type>` (attention.cu). `sdpa_whole_<type>` takes
// whole tensors and gives the results of `sdpa_<type>`.
//
// The rows of a block are the queries of some tokens that share a head of keys. The block packs
// some keys and values at a time, once for all its rows. Packed keys have the elements of one
// place side by side. So a vector holds scores of several keys, or several columns of results. A
// single token has few rows, so packing costs more than it saves. These rows read keys and values
// in place if each key and each value is a whole number of vectors. The grid is (kv heads, tiles
// of `tile` tokens, batches).
#include "packing.h"

#include <math.h>
#include <stdlib.h>

#include <memory>
#include <new>

enum : u64 {
    KEYS = 64,   // packed at a time
    TOGETHER = 2 // rows that share a vector of packed memory
};

typedef u32 Bits __attribute__((vector_size(VECTOR_BYTES), aligned(4), may_alias));
typedef i32 Integers __attribute__((vector_size(VECTOR_BYTES), aligned(4), may_alias));

static inline Floats *vector_at(f32 *at) { return reinterpret_cast<Floats *>(at); }

// e to the x, for x <= 0. The exponent takes the whole part of x / ln 2. A series takes the rest,
// to the precision of f32. For x below -87 the result is e^-87, about 1e-38.
static inline Floats exponential(Floats x) {
    const Floats least = x * 0 - 87.0f;
    x = x > least ? x : least;
    const Floats magic = x * 0 + 12582912.0f; // 1.5 * 2^23: its last bits count whole numbers
    const Floats shifted = x * 1.44269504088896341f + magic;
    const Floats whole = shifted - magic;
    const Floats rest = (x - whole * 0.693359375f) + whole * 2.12194440e-4f;
    Floats sum = rest * (1.0f / 5040) + 1.0f / 720;
    sum = sum * rest + 1.0f / 120;
    sum = sum * rest + 1.0f / 24;
    sum = sum * rest + 1.0f / 6;
    sum = sum * rest + 0.5f;
    sum = sum * rest + 1.0f;
    sum = sum * rest + 1.0f;
    const Integers power = (Integers(Bits(shifted) << 23)) + Integers(Bits(sum));
    return Floats(power);
}

// The rows of a block, in f32.
struct Rows {
    u64 count;
    u64 first; // token of the first row
    u64 group; // rows of a token
    u64 width;  // of a head
    u64 padded; // in whole vectors
    f32 *queries;
    f32 *sums;
    f32 *totals;
    f32 *largest;
    u64 *begin; // first and last key of each row
    u64 *end;
};

// Bias of the scores of a head: a number for each key of a cache.
struct Bias {
    const f32 *data; // of the block's first head
    u64 capacity;

    void add(f32 *scores, u64, u64 head, u64 first, u64 count) const {
        for (u64 key = 0; key < count; ++key)
            scores[key] += data[head * capacity + first + key];
    }
};

// A mask: a row of numbers for each query, to add to its scores.
template <class T> struct Mask {
    const T *data; // of the block's first head
    u64 head_step, keys;

    void add(f32 *scores, u64 query, u64 head, u64 first, u64 count) const {
        const T *const row = data + head * head_step + query * keys + first;
        for (u64 key = 0; key < count; ++key)
            scores[key] += f32(row[key]);
    }
};

// Some keys and values, packed.
struct Packed {
    f32 *keys;   // (width, KEYS)
    f32 *values; // (KEYS, padded)
};

template <class T>
static inline void pack(const T *k, const T *v, u64 count, const Rows &rows, Packed packed) {
    const u64 width = rows.width;
    for (u64 key = 0; key < KEYS; ++key) {
        const bool present = key < count;
        for (u64 i = 0; i < width; ++i)
            packed.keys[i * KEYS + key] = present ? f32(k[key * width + i]) : 0.0f;
        for (u64 i = 0; i < rows.padded; ++i)
            packed.values[key * rows.padded + i] =
                present && i < width ? f32(v[key * width + i]) : 0.0f;
    }
}

// Scores of `together` rows and all packed keys.
template <u64 together>
static inline void score(const f32 *queries, u64 width, const f32 *keys, f32 *scores) {
    // The registers hold the sums of at most four vectors per row.
    for (u64 first = 0; first < KEYS; first += 4 * LANES) {
        Floats sums[together][4] = {};
        for (u64 i = 0; i < width; ++i)
            for (u64 part = 0; part < 4; ++part) {
                const Floats some = widened(keys + i * KEYS + first + part * LANES);
                for (u64 row = 0; row < together; ++row)
                    sums[row][part] += queries[row * width + i] * some;
            }
        for (u64 row = 0; row < together; ++row)
            for (u64 part = 0; part < 4; ++part)
                *vector_at(scores + row * KEYS + first + part * LANES) = sums[row][part];
    }
}

// Adds `count` values, weighted by their shares, to `parts` vectors of the sums of `together`
// rows.
template <u64 together, u64 parts, class T>
static inline void add_values(const f32 *shares, const T *values, u64 count, u64 width,
                              f32 *results) {
    Floats sums[together][parts];
    for (u64 row = 0; row < together; ++row)
        for (u64 part = 0; part < parts; ++part)
            sums[row][part] = widened(results + row * width + part * LANES);
    for (u64 key = 0; key < count; ++key)
        for (u64 part = 0; part < parts; ++part) {
            const Floats some = widened(values + key * width + part * LANES);
            for (u64 row = 0; row < together; ++row)
                sums[row][part] += shares[row * KEYS + key] * some;
        }
    for (u64 row = 0; row < together; ++row)
        for (u64 part = 0; part < parts; ++part)
            *vector_at(results + row * width + part * LANES) = sums[row][part];
}

// Turns the scores of a row into shares of the total so far, and rescales the row's sums to match.
template <class Addend>
static inline void share_out(const Rows &rows, u64 row, u64 first, f32 *scores, f32 cap,
                             const Addend &bias) {
    if (cap != 0.0f)
        for (u64 key = 0; key < KEYS; ++key)
            scores[key] = cap * tanhf(scores[key] / cap);
    if (bias.data != nullptr && rows.end[row] > first)
        bias.add(scores, rows.first + row / rows.group, row % rows.group, first,
                 smaller(KEYS, rows.end[row] - first));
    for (u64 key = first; key < smaller(rows.begin[row], first + KEYS); ++key)
        scores[key - first] = -INFINITY;
    for (u64 key = rows.end[row] > first ? rows.end[row] : first; key < first + KEYS; ++key)
        scores[key - first] = -INFINITY;
    Floats most = widened(scores);
    for (u64 part = LANES; part < KEYS; part += LANES) {
        const Floats own = widened(scores + part);
        most = own > most ? own : most;
    }
    f32 above = rows.largest[row];
    for (u64 lane = 0; lane < LANES; ++lane)
        above = most[lane] > above ? most[lane] : above;
    if (above == -INFINITY) {
        for (u64 key = 0; key < KEYS; ++key)
            scores[key] = 0.0f;
        return;
    }
    const f32 kept = expf(rows.largest[row] - above);
    rows.largest[row] = above;
    Floats total = {};
    for (u64 part = 0; part < KEYS; part += LANES) {
        const Floats own = widened(scores + part);
        // A hidden key has share 0, not the least value of the series.
        const Floats share = own < -3e38f ? Floats{} : exponential(own - above);
        *vector_at(scores + part) = share;
        total += share;
    }
    f32 sum = 0;
    for (u64 lane = 0; lane < LANES; ++lane)
        sum += total[lane];
    rows.totals[row] = rows.totals[row] * kept + sum;
    if (kept != 1.0f)
        for (u64 i = 0; i < rows.padded; i += LANES)
            *vector_at(rows.sums + row * rows.padded + i) *= kept;
}

template <u64 together>
static inline void add_row(const Rows &rows, u64 row, const Packed &packed, const f32 *shares) {
    u64 column = 0;
    f32 *const sums = rows.sums + row * rows.padded;
    for (; column + 4 * LANES <= rows.padded; column += 4 * LANES)
        add_values<together, 4>(shares, packed.values + column, KEYS, rows.padded, sums + column);
    for (; column < rows.padded; column += LANES)
        add_values<together, 1>(shares, packed.values + column, KEYS, rows.padded, sums + column);
}

template <u64 together, class Addend>
static inline void visit(const Rows &rows, u64 row, u64 first, const Packed &packed, f32 cap,
                         const Addend &bias) {
    alignas(64) f32 scores[together * KEYS];
    score<together>(rows.queries + row * rows.width, rows.width, packed.keys, scores);
    for (u64 i = 0; i < together; ++i)
        share_out(rows, row + i, first, scores + i * KEYS, cap, bias);
    add_row<together>(rows, row, packed, scores);
}

// -- without packing ------------------------------------------------------------------------------

// The sum of each of LANES vectors: halves of pairs are added, then quarters of the pairs' sums.
template <u64 stage> static inline Floats sums_of(Floats *vectors) {
    typedef std::make_integer_sequence<int, int(LANES)> All;
    for (u64 i = 0; i < stage; ++i) {
        const LaneWords a = LaneWords(vectors[i]);
        const LaneWords b = LaneWords(vectors[i + stage]);
        vectors[i] = Floats(exchanged<stage, false>(a, b, All())) +
                     Floats(exchanged<stage, true>(a, b, All()));
    }
    if constexpr (stage > 1)
        return sums_of<stage / 2>(vectors);
    else
        return vectors[0];
}

// Scores of `together` rows and `count` keys, in whole vectors.
template <u64 together, class T>
static inline void score_in_place(const f32 *queries, u64 width, const T *keys, u64 count,
                                  f32 *scores) {
    for (u64 first = 0; first < count; first += LANES) {
        Floats sums[together][LANES] = {};
        for (u64 key = 0; key < smaller(LANES, count - first); ++key)
            for (u64 i = 0; i < width; i += LANES) {
                const Floats some = widened(keys + (first + key) * width + i);
                for (u64 row = 0; row < together; ++row)
                    sums[row][key] += widened(queries + row * width + i) * some;
            }
        for (u64 row = 0; row < together; ++row)
            *vector_at(scores + row * KEYS + first) = sums_of<LANES / 2>(sums[row]);
    }
}

// Rows of one token, which see the same keys, and at most KEYS keys from `first` on.
template <u64 together, class T, class Addend>
static inline void visit_in_place(const Rows &rows, u64 row, u64 first, const T *k, const T *v,
                                  u64 count, f32 cap, const Addend &bias) {
    const u64 width = rows.width;
    alignas(64) f32 scores[together * KEYS] = {};
    score_in_place<together>(rows.queries + row * width, width, k, count, scores);
    for (u64 i = 0; i < together; ++i)
        share_out(rows, row + i, first, scores + i * KEYS, cap, bias);
    u64 column = 0;
    f32 *const sums = rows.sums + row * width;
    for (; column + 4 * LANES <= width; column += 4 * LANES)
        add_values<together, 4>(scores, v + column, count, width, sums + column);
    for (; column < width; column += LANES)
        add_values<together, 1>(scores, v + column, count, width, sums + column);
}

// -- a block --------------------------------------------------------------------------------------

struct Released {
    void operator()(void *memory) const { free(memory); }
};

// Queries and results of a head of keys, beginning with the first head of its group.
template <class T> struct Heads {
    const T *q;
    T *out;
    u64 token_step, head_step;

    u64 at(u64 token, u64 head) const { return token * token_step + head * head_step; }
};

// Tokens first … last of a head of keys. Token t sees the keys up to t + `place`.
template <class T, class Addend>
static inline void attend(const Heads<T> &heads, const T *k, const T *v, const Addend &bias,
                          i64 place, u64 first, u64 last, u64 group, u64 width, u64 capacity,
                          u64 window, f32 scale, f32 cap) {
    const u64 count = (last - first) * group;
    const u64 padded = whole_times(width, LANES);
    const u64 of_row = width + padded + 2;
    const u64 size = (count * of_row + KEYS * (width + padded)) * sizeof(f32);
    const std::unique_ptr<void, Released> memory(
        aligned_alloc(64, whole_times(size + 2 * count * sizeof(u64), 64)));
    if (memory == nullptr)
        throw std::bad_alloc();
    u64 *const bounds = static_cast<u64 *>(memory.get());
    f32 *const numbers = reinterpret_cast<f32 *>(bounds + 2 * count);
    const Packed packed{numbers, numbers + KEYS * width};
    f32 *const own = packed.values + KEYS * padded;
    const Rows rows{count,
                    first,
                    group,
                    width,
                    padded,
                    own,
                    own + count * width,
                    own + count * (width + padded),
                    own + count * (width + padded + 1),
                    bounds,
                    bounds + count};
    u64 least = capacity;
    u64 most = 0;
    for (u64 row = 0; row < count; ++row) {
        const u64 token = first + row / group;
        const T *const from = heads.q + heads.at(token, row % group);
        for (u64 i = 0; i < width; ++i)
            rows.queries[row * width + i] = f32(from[i]) * scale;
        for (u64 i = 0; i < padded; ++i)
            rows.sums[row * padded + i] = 0.0f;
        rows.totals[row] = 0.0f;
        rows.largest[row] = -INFINITY;
        const i64 at = place + i64(token);
        const u64 seen = at < 0 ? 0 : u64(at) + 1;
        rows.end[row] = smaller(seen, capacity);
        rows.begin[row] = window == 0 || seen < window ? 0 : seen - window;
        least = smaller(least, rows.begin[row]);
        most = most > rows.end[row] ? most : rows.end[row];
    }
    const bool is_in_place = last - first == 1 && padded == width;
    for (u64 start = least; start < most; start += KEYS) {
        const T *const keys = k + start * width;
        const T *const values = v + start * width;
        const u64 given = smaller(KEYS, most - start);
        u64 row = 0;
        if (is_in_place) {
            for (; row + TOGETHER <= count; row += TOGETHER)
                visit_in_place<TOGETHER>(rows, row, start, keys, values, given, cap, bias);
            for (; row < count; ++row)
                visit_in_place<1>(rows, row, start, keys, values, given, cap, bias);
            continue;
        }
        pack(keys, values, given, rows, packed);
        for (; row + TOGETHER <= count; row += TOGETHER)
            if (start < rows.end[row + TOGETHER - 1] && start + KEYS > rows.begin[row])
                visit<TOGETHER>(rows, row, start, packed, cap, bias);
        for (; row < count; ++row)
            visit<1>(rows, row, start, packed, cap, bias);
    }
    for (u64 row = 0; row < count; ++row) {
        T *const to = heads.out + heads.at(first + row / group, row % group);
        const f32 total = rows.totals[row];
        for (u64 i = 0; i < width; ++i)
            to[i] = T(total == 0.0f ? 0.0f : rows.sums[row * padded + i] / total);
    }
}

#define SDPA_PACKED(T)                                                                             \
    KERNEL(sdpa_packed_##T,                                                                        \
           (const T *q, const T *k, const T *v, const f32 *bias, const i64 *position, T *out,      \
            u64 tokens, u64 tile, u64 heads, u64 kv_heads, u64 width, u64 capacity, u64 window,    \
            f64 scale, f64 cap)) {                                                                 \
        const u64 kv = blockIdx.x;                                                                 \
        const u64 group = heads / kv_heads;                                                        \
        const u64 first = blockIdx.y * tile;                                                       \
        const u64 head = kv * group;                                                               \
        const Bias addend{bias == nullptr ? bias : bias + head * capacity, capacity};              \
        attend<T>({q + head * width, out + head * width, heads * width, width},                    \
                  k + kv * capacity * width, v + kv * capacity * width, addend, *position, first,  \
                  smaller(first + tile, tokens), group, width, capacity, window, f32(scale),       \
                  f32(cap));                                                                       \
    }

// Queries are (batch, heads, tokens, width), keys and values (batch, kv heads, keys, width). With
// `causal` the last query sees every key, otherwise all do.
#define SDPA_WHOLE(T)                                                                              \
    KERNEL(sdpa_whole_##T,                                                                         \
           (const T *q, const T *k, const T *v, const T *mask, T *out, u64 tokens, u64 tile,       \
            u64 heads, u64 kv_heads, u64 width, u64 keys, u64 mask_batch, u64 mask_head,           \
            f64 scale, bool causal)) {                                                             \
        const u64 group = heads / kv_heads;                                                        \
        const u64 first = blockIdx.y * tile;                                                       \
        const u64 head = blockIdx.x * group;                                                       \
        const u64 of_q = (blockIdx.z * heads + head) * tokens * width;                             \
        const u64 of_k = (blockIdx.z * kv_heads + blockIdx.x) * keys * width;                      \
        const u64 of_mask = blockIdx.z * mask_batch + head * mask_head;                            \
        const Mask<T> addend{mask == nullptr ? mask : mask + of_mask, mask_head, keys};            \
        attend<T>({q + of_q, out + of_q, width, tokens * width}, k + of_k, v + of_k, addend,       \
                  causal ? i64(keys) - i64(tokens) : i64(keys) - 1, first,                         \
                  smaller(first + tile, tokens), group, width, keys, 0, f32(scale), 0.0f);         \
    }

SDPA_PACKED(bf16)
SDPA_PACKED(f16)
SDPA_PACKED(f32)
SDPA_WHOLE(bf16)
SDPA_WHOLE(f16)
SDPA_WHOLE(f32)
