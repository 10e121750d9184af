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
#include "attention.h"

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
        const Span seen = {0, seen_keys(position, q_len, kv_len, causal)};                         \
        attend(THIS_BLOCK, blockDim.x * blockDim.y * blockDim.z, q + row * head_dim,               \
               Rows<T>{k + kv}, Rows<T>{v + kv}, Contiguous{head_dim}, seen, 0, seen.end,          \
               head_dim, Masked<T>{row_mask, C(scale)}, -C(INFINITY),                              \
               Target<T>{out, nullptr, row, 0, 1, head_dim});                                      \
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
        attend_split(THIS_BLOCK, blockDim.x, split, q, Rows<T>{k + kv}, Rows<T>{v + kv},           \
                     Contiguous{head_dim}, seen, Bounded<C>{own, C(scale), C(cap)}, -C(INFINITY),  \
                     Target<T>{out, parts, row, blockIdx.y, gridDim.y, head_dim});                 \
    }                                                                                              \
    KERNEL(sdpa_merge_##T, (const C *parts, const i64 *position, T *out, u32 heads, u32 head_dim,  \
                            u64 capacity, u64 window, u64 split, u32 splits)) {                    \
        const u64 row = blockIdx.x;                                                                \
        const Seen seen(*position + i64(row / heads), capacity, window);                           \
        merge(THIS_BLOCK, blockDim.x, parts + row * splits * part_width(head_dim),                 \
              out + row * head_dim, seen, split, head_dim, -C(INFINITY));                          \
    }

SDPA(bf16, f32)
SDPA(f16, f32)
SDPA(f32, f32)
SDPA(f64, f64)
