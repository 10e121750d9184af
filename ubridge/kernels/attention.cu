// Scaled dot product attention, `sdpa_<type>`: out = softmax(q k^T * scale + mask) v for each head,
// without ever holding a row of scores.
//
// q and out are (batch, heads, q_len, head_dim), k and v (batch, kv_heads, kv_len, head_dim), all
// contiguous. heads / kv_heads neighboring heads of q share a head of k and v. mask is null or added
// to the scores: element (q, k) of a head lies at q * kv_len + k behind head * mask_head + batch *
// mask_batch. With `causal` the last query sees every key and each one before it sees one less. A
// query that sees no key gets zeros. head_dim is at most 256.
//
// A block is one query. Each work-item scores one key at a time, and then each adds up some columns
// of the result. Earlier sums are rescaled when a larger score turns up (online softmax). Everything
// is computed in f32, or f64 for f64.
//
// `sdpa_cached_<type>` is for caches of `capacity` keys, filled from the front: q and out are
// (tokens, heads, head_dim), k and v (kv_heads, capacity, head_dim), and `position` points to the
// first token's position. A query sees the keys up to its own, and with a window only the last
// `window` of them. Scores are bounded by cap * tanh(score / cap) unless cap is 0; bias, null or
// (heads, capacity), is added behind that. With several blocks along y, each takes `split` keys and
// leaves its sums, their total and the largest score in `parts`. `sdpa_merge_<type>` combines them in
// order; blocks behind the end of the text return at once.
//
// `sdpa_paged_<type>` is for tokens of several sequences: k and v are (pages, page_size, kv_heads,
// head_dim), and `tables` has the pages of each sequence in order, `table_pages` of them. A token has
// a sequence and a position, -1 for no token, whose result is zeros. Keys are summed in the order of
// positions whatever their pages and the other tokens, so the results are those of `sdpa_cached` with
// one block along y. A key whose page is out of bounds is reported and hidden.
#include "number.h"

#include <math.h>

#include <uhal/report.h>

enum : u32 { MAX_HEAD_DIM = 256, MAX_KEYS = 256 };

DEVICE_FUNCTION f32 exponential(f32 x)
{
    return expf(x);
}
DEVICE_FUNCTION f64 exponential(f64 x)
{
    return exp(x);
}
DEVICE_FUNCTION f32 hyperbolic_tangent(f32 x)
{
    return tanhf(x);
}
DEVICE_FUNCTION f64 hyperbolic_tangent(f64 x)
{
    return tanh(x);
}

template <class C, class T> DEVICE_FUNCTION C dot(u32 count, const C *a, const T *b)
{
#if KERNEL_ON_GPU
    C sum = 0;
    for (u32 i = 0; i < count; ++i)
        sum += a[i] * widen(b[i]);
    return sum;
#else
    // Sums in lanes, so that the loop becomes vector code.
    enum : u32 { LANES = 32 };
    C lanes[LANES] = {};
    u32 i = 0;
    for (; i + LANES <= count; i += LANES)
        for (u32 lane = 0; lane < LANES; ++lane)
            lanes[lane] += a[i + lane] * widen(b[i + lane]);
    for (u32 lane = 0; i + lane < count; ++lane)
        lanes[lane] += a[i + lane] * widen(b[i + lane]);
    for (u32 width = LANES / 2; width > 0; width /= 2)
        for (u32 lane = 0; lane < width; ++lane)
            lanes[lane] += lanes[lane + width];
    return lanes[0];
#endif
}

// Number of keys that the query at this position sees.
DEVICE_FUNCTION u32 seen_keys(u32 position, u32 q_len, u32 kv_len, bool causal)
{
    if (!causal)
        return kv_len;
    const i64 seen = i64(position) + 1 + kv_len - q_len;
    return seen < 0 ? 0 : u32(seen);
}

// A score of scaled products and a mask.
template <class T> struct Masked {
    const T *mask;
    Compute<T> scale;
    DEVICE_METHOD Compute<T> operator()(u64 key, Compute<T> product) const
    {
        return product * scale + (mask == nullptr ? Compute<T>(0) : widen(mask[key]));
    }
};

// A score of scaled products within bounds, and a bias.
template <class C> struct Bounded {
    const f32 *bias;
    C scale;
    C cap;
    DEVICE_METHOD C operator()(u64 key, C product) const
    {
        const C score = product * scale;
        const C bounded = cap == C(0) ? score : cap * hyperbolic_tangent(score / cap);
        return bounded + (bias == nullptr ? C(0) : C(bias[key]));
    }
};

// The result of a query.
template <class T> struct Whole {
    T *out;
    DEVICE_METHOD void operator()(u32 column, Compute<T> sum, Compute<T> total, Compute<T>) const
    {
        out[column] = narrow<T>(total == Compute<T>(0) ? Compute<T>(0) : sum / total);
    }
};

// The partial result of a query over some keys, for `merge`.
template <class C> struct Part {
    C *out;
    u32 head_dim;
    DEVICE_METHOD void operator()(u32 column, C sum, C total, C largest) const
    {
        out[column] = sum;
        if (column == 0) {
            out[head_dim] = total;
            out[head_dim + 1] = largest;
        }
    }
};

// Keys one after the other: where they begin is computed at each use.
struct Contiguous {
    enum : u32 { NOTED = 1 };
    u64 step;

    DEVICE_METHOD bool note(u64 *, u32, u64) const { return true; }
    DEVICE_METHOD u64 noted(const u64 *, u32, u64 key) const { return key * step; }
};

// Keys in pages: where they begin is noted in shared memory, for all columns of the values.
struct Paged {
    enum : u32 { NOTED = MAX_KEYS };
    const i64 *table;
    const char *entry;
    u64 pages;
    u32 page_size;
    u64 step;

    DEVICE_METHOD bool note(u64 *places, u32 i, u64 key) const
    {
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

// A query over the keys from `begin` up to `end`.
template <class T, class Places, class Score, class Result>
DEVICE_FUNCTION void attend(BLOCK block, u32 threads, const T *q, const T *k, const T *v,
                            Places places, u64 begin, u64 end, u32 head_dim, Score score,
                            Result result)
{
    typedef Compute<T> C;
    SHARED(C, query, MAX_HEAD_DIM);
    SHARED(C, sums, MAX_HEAD_DIM);
    SHARED(C, scores, MAX_KEYS);
    SHARED(u64, noted, Places::NOTED);
    const u32 most = threads < MAX_KEYS ? threads : u32(MAX_KEYS);
    THREADS_OF(block, t) {
        for (u32 i = t; i < head_dim; i += threads) {
            query[i] = widen(q[i]);
            sums[i] = C(0);
        }
    }
    BARRIER();
    C largest = -C(INFINITY);
    C total = 0;
    ROLLED for (u64 first = begin; first < end; first += most) {
        const u32 count = end - first < most ? u32(end - first) : most;
        THREADS_OF(block, t) {
            if (t < count) {
                const u64 key = first + t;
                const bool is_there = places.note(noted, t, key);
                const C product = dot(head_dim, query, k + places.noted(noted, t, key));
                scores[t] = is_there ? score(key, product) : -C(INFINITY);
            }
        }
        BARRIER();
        // Every work-item computes the same maximum itself, since there are few scores.
        C above = largest;
        for (u32 i = 0; i < count; ++i)
            above = maximum(above, scores[i]);
        // So far only masked keys: their scores must not become NaN.
        const C base = above == -C(INFINITY) ? C(0) : above;
        const C kept = exponential(largest - base);
        BARRIER();
        THREADS_OF(block, t) {
            if (t < count)
                scores[t] = exponential(scores[t] - base);
        }
        BARRIER();
        C added = 0;
        for (u32 i = 0; i < count; ++i)
            added += scores[i];
        total = total * kept + added;
        largest = above;
#if KERNEL_ON_GPU
        THREADS_OF(block, t) {
            for (u32 column = t; column < head_dim; column += threads) {
                C sum = sums[column] * kept;
                for (u32 i = 0; i < count; ++i)
                    sum += scores[i] * widen(v[places.noted(noted, i, first + i) + column]);
                sums[column] = sum;
            }
        }
#else
        for (u32 column = 0; column < head_dim; ++column)
            sums[column] *= kept;
        for (u32 i = 0; i < count; ++i) {
            const T *values = v + places.noted(noted, i, first + i);
            UHAL_INDEPENDENT
            for (u32 column = 0; column < head_dim; ++column)
                sums[column] += scores[i] * widen(values[column]);
        }
#endif
        BARRIER();
    }
    THREADS_OF(block, t) {
        for (u32 i = t; i < head_dim; i += threads)
            result(i, sums[i], total, largest);
    }
}

// The keys that a query of a cache sees.
struct Seen {
    u64 begin;
    u64 end;

    DEVICE_METHOD Seen(i64 place, u64 capacity, u64 window)
    {
        const u64 own = place < 0 ? 0 : u64(place) + 1;
        end = own < capacity ? own : capacity;
        begin = window == 0 || own < window ? 0 : own - window;
    }
};

template <class T>
DEVICE_FUNCTION void attend_cached(BLOCK block, u32 threads, u32 split_index, u32 splits,
                                   const T *q, const T *k, const T *v, T *out, Compute<T> *parts,
                                   Seen seen, u64 split, u32 head_dim, Bounded<Compute<T>> score)
{
    if (splits == 1) {
        attend(block, threads, q, k, v, Contiguous{head_dim}, seen.begin, seen.end, head_dim, score,
               Whole<T>{out});
        return;
    }
    const u64 first = split_index * split;
    const u64 begin = first > seen.begin ? first : seen.begin;
    const u64 end = first + split < seen.end ? first + split : seen.end;
    if (begin < end)
        attend(block, threads, q, k, v, Contiguous{head_dim}, begin, end, head_dim, score,
               Part<Compute<T>>{parts + u64(split_index) * (head_dim + 2), head_dim});
}

template <class T>
DEVICE_FUNCTION void merge(BLOCK block, u32 threads, const Compute<T> *parts, T *out, Seen seen,
                           u64 split, u32 head_dim)
{
    typedef Compute<T> C;
    const u64 first = seen.begin / split;
    const u64 last = (seen.end + split - 1) / split;
    const u64 width = u64(head_dim) + 2;
    C largest = -C(INFINITY);
    for (u64 part = first; part < last; ++part)
        largest = maximum(largest, parts[part * width + head_dim + 1]);
    THREADS_OF(block, t) {
        for (u32 column = t; column < head_dim; column += threads) {
            C sum = 0;
            C total = 0;
            for (u64 part = first; part < last; ++part) {
                const C *const own = parts + part * width;
                const C kept = exponential(own[head_dim + 1] - largest);
                sum += kept * own[column];
                total += kept * own[head_dim];
            }
            out[column] = narrow<T>(total == C(0) ? C(0) : sum / total);
        }
    }
}

#define SDPA(T, C)                                                                                 \
    KERNEL(sdpa_##T, (const T *q, const T *k, const T *v, const T *mask, T *out, u32 heads,        \
                      u32 kv_heads, u32 q_len, u32 kv_len, u32 head_dim, u64 mask_batch,           \
                      u64 mask_head, f64 scale, bool causal))                                      \
    {                                                                                              \
        const u64 row = blockIdx.x + u64(gridDim.x) * (blockIdx.y + u64(gridDim.y) * blockIdx.z);  \
        const u32 position = u32(row % q_len);                                                     \
        const u32 head = u32(row / q_len % heads);                                                 \
        const u64 batch = row / q_len / heads;                                                     \
        const u64 kv = (batch * kv_heads + head / (heads / kv_heads)) * kv_len * head_dim;         \
        const T *const row_mask = mask == nullptr ? mask                                           \
                                                  : mask + batch * mask_batch + head * mask_head + \
                                                        u64(position) * kv_len;                    \
        attend(THIS_BLOCK, blockDim.x *blockDim.y *blockDim.z, q + row * head_dim, k + kv, v + kv, \
               Contiguous{head_dim}, 0, seen_keys(position, q_len, kv_len, causal), head_dim,      \
               Masked<T>{row_mask, Compute<T>(scale)}, Whole<T>{out + row * head_dim});            \
    }                                                                                              \
    KERNEL(sdpa_cached_##T, (const T *q, const T *k, const T *v, const f32 *bias,                  \
                             const i64 *position, T *out, C *parts, u32 heads, u32 kv_heads,       \
                             u32 head_dim, u64 capacity, u64 window, u64 split, f64 scale,         \
                             f64 cap))                                                             \
    {                                                                                              \
        const u64 row = blockIdx.x;                                                                \
        const u32 head = u32(row % heads);                                                         \
        const u64 kv = head / (heads / kv_heads) * capacity * head_dim;                            \
        const Seen seen(*position + i64(row / heads), capacity, window);                           \
        const f32 *const own = bias == nullptr ? bias : bias + head * capacity;                    \
        attend_cached(THIS_BLOCK, blockDim.x, blockIdx.y, gridDim.y, q + row * head_dim, k + kv,   \
                      v + kv, out + row * head_dim, parts + row * gridDim.y * (head_dim + 2),      \
                      seen, split, head_dim,                                                       \
                      Bounded<C>{own, C(scale), C(cap)});                                          \
    }                                                                                              \
    KERNEL(sdpa_paged_##T,                                                                         \
           (const T *q, const T *k, const T *v, const i64 *tables, const i64 *sequences,           \
            const i64 *positions, const f32 *bias, T *out, u32 heads, u32 kv_heads, u32 head_dim,  \
            u64 pages, u32 page_size, u64 table_rows, u64 table_pages, u64 window, f64 scale,      \
            f64 cap))                                                                              \
    {                                                                                              \
        const u64 row = blockIdx.x;                                                                \
        const u32 head = u32(row % heads);                                                         \
        const u64 capacity = table_pages * page_size;                                              \
        const i64 sequence = sequences[row / heads];                                               \
        const i64 position = positions[row / heads];                                               \
        const bool is_there = position < 0 || (sequence >= 0 && u64(sequence) < table_rows);       \
        if (!is_there)                                                                             \
            report_index("sdpa_paged_" #T, row / heads, sequence, table_rows);                     \
        else if (position >= i64(capacity))                                                        \
            report_index("sdpa_paged_" #T, row / heads, position, capacity);                       \
        const Seen seen(is_there ? position : -1, capacity, window);                               \
        const Paged places{tables + (is_there && position >= 0 ? sequence : 0) * table_pages,      \
                           "sdpa_paged_" #T, pages, page_size, u64(kv_heads) * head_dim};          \
        const u64 kv = u64(head / (heads / kv_heads)) * head_dim;                                  \
        const f32 *const own = bias == nullptr ? bias : bias + head * capacity;                    \
        attend(THIS_BLOCK, blockDim.x, q + row * head_dim, k + kv, v + kv, places, seen.begin,     \
               seen.end, head_dim, Bounded<C>{own, C(scale), C(cap)},                              \
               Whole<T>{out + row * head_dim});                                                    \
    }                                                                                              \
    KERNEL(sdpa_merge_##T, (const C *parts, const i64 *position, T *out, u32 heads, u32 head_dim,  \
                            u64 capacity, u64 window, u64 split, u32 splits))                      \
    {                                                                                              \
        const u64 row = blockIdx.x;                                                                \
        const Seen seen(*position + i64(row / heads), capacity, window);                           \
        merge(THIS_BLOCK, blockDim.x, parts + row * splits * (head_dim + 2),                       \
              out + row * head_dim, seen, split, head_dim);                                        \
    }

SDPA(bf16, f32)
SDPA(f16, f32)
SDPA(f32, f32)
SDPA(f64, f64)
