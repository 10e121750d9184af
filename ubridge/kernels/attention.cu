// Scaled dot product attention, `sdpa_<type>`: out = softmax(q k^T * scale + mask) v for each head,
// without ever holding a row of scores.
//
// q and out are (batch, heads, q_len, head_dim), k and v (batch, kv_heads, kv_len, head_dim), all
// contiguous. heads / kv_heads neighboring heads of q share a head of k and v. mask is null or added
// to the scores: element (q, k) of a head lies at q * kv_len + k behind head * mask_head + batch *
// mask_batch. With `causal` the last query sees every key, and each earlier query sees one key
// less. A query that sees no key gets zeros. head_dim is at most 256.
//
// A block is one query.
//
// `sdpa_cached_<type>` is for caches of `capacity` keys, filled from the front: q and out are
// (tokens, heads, head_dim), k and v (kv_heads, capacity, head_dim), and `position` points to the
// first token's position. A query sees the keys up to its own, and with a window only the last
// `window` of them. Scores are bounded by cap * tanh(score / cap) unless cap is 0; bias, null or
// (heads, capacity), is added after that. With several blocks along y, each takes `split` keys and
// leaves its sums, their total and the largest score in `parts`. `sdpa_merge_<type>` combines them
// in order; blocks behind the end of the text return at once. A block has at most 256 work-items.
//
// `sdpa_paged_<type>` is for tokens of several sequences: k and v are (pages, page_size, kv_heads,
// head_dim), and `tables` has the pages of each sequence in order, `table_pages` of them. A token has
// a sequence and a position, -1 for no token, whose result is zeros. Keys are summed in the order of
// positions regardless of pages and other tokens, so the results equal `sdpa_cached` with one
// block along y. A key whose page is out of bounds is reported and hidden.
#include "attention.h"
#include "attention_parts.h"

// Number of keys that the query at this position sees.
DEVICE_FUNCTION u32 seen_keys(u32 position, u32 q_len, u32 kv_len, bool causal) {
    if (!causal)
        return kv_len;
    const i64 seen = i64(position) + 1 + kv_len - q_len;
    return seen < 0 ? 0 : u32(seen);
}

// A score of scaled products and a mask.
template <class T> struct Masked {
    const T *mask;
    Compute<T> scale;
    DEVICE_METHOD Compute<T> operator()(u64 key, Compute<T> product) const {
        return product * scale + (mask == nullptr ? Compute<T>(0) : widen(mask[key]));
    }
};

// The partial result of a query over some keys, for `merge`.
template <class C> struct Part {
    C *out;
    u32 head_dim;
    DEVICE_METHOD void operator()(u32 column, C sum, C total, C largest) const {
        out[column] = sum;
        if (column == 0) {
            out[head_dim] = total;
            out[head_dim + 1] = largest;
        }
    }
};

// Keys one after the other: the address of a key is computed at each use.
struct Contiguous {
    enum : u32 { NOTED = 1 };
    u64 step;

    DEVICE_METHOD bool note(u64 *, u32, u64) const { return true; }
    DEVICE_METHOD u64 noted(const u64 *, u32, u64 key) const { return key * step; }
};

template <class T>
DEVICE_FUNCTION void attend_cached(BLOCK block, u32 threads, u32 split_index, u32 splits,
                                   const T *q, const T *k, const T *v, T *out, Compute<T> *parts,
                                   Seen seen, u64 split, u32 head_dim, Bounded<Compute<T>> score) {
    if (splits == 1) {
        attend(block, threads, q, Rows<T>{k}, Rows<T>{v}, Contiguous{head_dim}, seen.begin,
               seen.end, head_dim, score, Whole<T>{out});
        return;
    }
    const u64 first = split_index * split;
    const u64 begin = first > seen.begin ? first : seen.begin;
    const u64 end = first + split < seen.end ? first + split : seen.end;
    if (begin < end)
        attend(block, threads, q, Rows<T>{k}, Rows<T>{v}, Contiguous{head_dim}, begin, end,
               head_dim, score,
               Part<Compute<T>>{parts + u64(split_index) * part_width(head_dim), head_dim});
}

template <class T>
DEVICE_FUNCTION void merge(BLOCK block, u32 threads, const Compute<T> *parts, T *out, Seen seen,
                           u64 split, u32 head_dim) {
    typedef Compute<T> C;
    const u64 first = seen.begin / split;
    const u64 last = (seen.end + split - 1) / split;
    const u64 width = part_width(head_dim);
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
                      u64 mask_head, f64 scale, bool causal)) {                                    \
        const u64 row = blockIdx.x + u64(gridDim.x) * (blockIdx.y + u64(gridDim.y) * blockIdx.z);  \
        const u32 position = u32(row % q_len);                                                     \
        const u32 head = u32(row / q_len % heads);                                                 \
        const u64 batch = row / q_len / heads;                                                     \
        const u64 kv = (batch * kv_heads + head / (heads / kv_heads)) * kv_len * head_dim;         \
        const T *const row_mask = mask == nullptr ? mask                                           \
                                                  : mask + batch * mask_batch + head * mask_head + \
                                                        u64(position) * kv_len;                    \
        attend(THIS_BLOCK, blockDim.x * blockDim.y * blockDim.z, q + row * head_dim,               \
               Rows<T>{k + kv}, Rows<T>{v + kv}, Contiguous{head_dim}, 0,                          \
               seen_keys(position, q_len, kv_len, causal), head_dim,                               \
               Masked<T>{row_mask, Compute<T>(scale)}, Whole<T>{out + row * head_dim});            \
    }                                                                                              \
    KERNEL_BOUNDED(                                                                                \
        sdpa_cached_##T, MAX_KEYS,                                                                 \
        (const T *q, const T *k, const T *v, const f32 *bias, const i64 *position, T *out,         \
         C *parts, u32 heads, u32 kv_heads, u32 head_dim, u64 capacity, u64 window, u64 split,     \
         f64 scale, f64 cap)) {                                                                    \
        const u64 row = blockIdx.x;                                                                \
        const u32 head = u32(row % heads);                                                         \
        const u64 kv = head / (heads / kv_heads) * capacity * head_dim;                            \
        const Seen seen(*position + i64(row / heads), capacity, window);                           \
        const f32 *const own = bias == nullptr ? bias : bias + head * capacity;                    \
        attend_cached(THIS_BLOCK, blockDim.x, blockIdx.y, gridDim.y, q + row * head_dim, k + kv,   \
                      v + kv, out + row * head_dim,                                                \
                      parts + row * gridDim.y * part_width(head_dim), seen, split, head_dim,       \
                      Bounded<C>{own, C(scale), C(cap)});                                          \
    }                                                                                              \
    KERNEL_BOUNDED(                                                                                \
        sdpa_paged_##T, MAX_KEYS,                                                                  \
        (const T *q, const T *k, const T *v, const i64 *tables, const i64 *sequences,              \
         const i64 *positions, const f32 *bias, T *out, u32 heads, u32 kv_heads, u32 head_dim,     \
         u64 pages, u32 page_size, u64 table_rows, u64 table_pages, u64 window, f64 scale,         \
         f64 cap)) {                                                                               \
        const Texts texts = {                                                                      \
            "sdpa_paged_" #T, tables,   sequences, positions, bias,       heads,                   \
            kv_heads,         head_dim, pages,     page_size, table_rows, table_pages,             \
            window,           scale,    cap};                                                      \
        attend_paged(THIS_BLOCK, blockDim.x, q, Rows<T>{k}, Rows<T>{v}, out, blockIdx.x, texts);   \
    }                                                                                              \
    KERNEL(sdpa_merge_##T, (const C *parts, const i64 *position, T *out, u32 heads, u32 head_dim,  \
                            u64 capacity, u64 window, u64 split, u32 splits)) {                    \
        const u64 row = blockIdx.x;                                                                \
        const Seen seen(*position + i64(row / heads), capacity, window);                           \
        merge(THIS_BLOCK, blockDim.x, parts + row * splits * part_width(head_dim),                 \
              out + row * head_dim, seen, split, head_dim);                                        \
    }

SDPA(bf16, f32)
SDPA(f16, f32)
SDPA(f32, f32)
SDPA(f64, f64)
