// The problem that a launch of attention solves in tiles of rows. Rows are the queries of all heads
// that share a head of k and v: row r is head r % group of query r / group, so that keys are read
// once for all these heads. Heads of q and out lie `head_step` apart, queries lie `query_step`
// apart. Without `position`, a query sees keys as in sdpa_<type> of attention.cu; with it, as in
// sdpa_cached_<type> with a cache of kv_len keys.
#ifndef UBRIDGE_ATTENTION_ROWS_H
#define UBRIDGE_ATTENTION_ROWS_H

#include <uhal/kernel.h>

// The range of keys that a query sees, its mask and its bias.
template <class T> struct Query {
    u64 begin;
    u64 end;
    const T *mask;
    const f32 *bias;

    // The score of a key, from its scaled product.
    DEVICE_METHOD f32 of(u64 key, f32 product, f32 cap) const
    {
        if (key < begin || key >= end)
            return -INFINITY;
        f32 score = cap == 0 ? product : cap * tanhf(product / cap);
        if (mask != nullptr)
            score += f32(mask[key]);
        if (bias != nullptr)
            score += bias[key];
        return score;
    }
};

template <class T> struct Problem {
    const T *mask;
    const f32 *bias;
    const i64 *position;
    u32 group, q_len, head_dim;
    u64 kv_len, mask_head, window, head_step, query_step;
    u32 head;
    bool causal;
    f32 scale, cap;

    DEVICE_METHOD u32 rows() const { return group * q_len; }
    DEVICE_METHOD u64 at(u32 row) const
    {
        return (head + row % group) * head_step + row / group * query_step;
    }
    // Rows past the end see nothing.
    DEVICE_METHOD Query<T> query(u32 row) const
    {
        if (row >= rows())
            return {0, 0, nullptr, nullptr};
        const u32 place = row / group;
        const u64 own_head = head + row % group;
        const T *const own_mask =
            mask == nullptr ? mask : mask + own_head * mask_head + place * kv_len;
        const f32 *const own_bias = bias == nullptr ? bias : bias + own_head * kv_len;
        i64 end = i64(kv_len);
        if (position != nullptr)
            end = *position + place + 1;
        else if (causal)
            end += i64(place) + 1 - i64(q_len);
        end = end < 0 ? 0 : end;
        const u64 begin = window == 0 || u64(end) < window ? 0 : u64(end) - window;
        return {begin, u64(end) < kv_len ? u64(end) : kv_len, own_mask, own_bias};
    }
};

// The parameters of a launch with a grid of (row tiles, splits, batch * kv_heads).
#define ATTENTION_PARAMETERS(T)                                                                    \
    (const T *q, const T *k, const T *v, const T *mask, const f32 *bias, const i64 *position,      \
     T *out, f32 *parts, u32 heads, u32 kv_heads, u32 q_len, u64 kv_len, u32 head_dim,             \
     u64 head_step, u64 query_step, u64 mask_batch, u64 mask_head, u64 window, u64 split,          \
     f64 scale, f64 cap, bool causal)

// The problem of this block, from those parameters.
#define ATTENTION_PROBLEM(T)                                                                       \
    {                                                                                              \
        mask == nullptr ? mask : mask + blockIdx.z / kv_heads * mask_batch, bias, position,        \
            heads / kv_heads, q_len, head_dim, kv_len, mask_head, window, head_step, query_step,   \
            blockIdx.z % kv_heads * (heads / kv_heads), causal, f32(scale), f32(cap)               \
    }

#endif
