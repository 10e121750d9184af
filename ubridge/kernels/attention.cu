// Scaled dot product attention, `sdpa_<type>`: out = softmax(q k^T * scale + mask) v for each head,
// without ever holding a row of scores.
//
// q and out are (batch, heads, q_len, head_dim), k and v (batch, kv_heads, kv_len, head_dim), all
// contiguous; neighboring heads / kv_heads heads of q share one of k and v. mask is null or added to
// the scores: element (q, k) of a head lies at q * kv_len + k behind head * mask_head + batch *
// mask_batch. With `causal` the last query sees every key and each one before it sees one less. A
// query that sees no key gets zeros. head_dim is at most 256.
//
// A block is one query. Its work-items score as many keys at once as there are of them, and then
// each adds up some columns of the result. What was summed before is rescaled when a larger score
// turns up (online softmax). Everything is computed in f32, or f64 for f64.
#include "number.h"

#include <math.h>

#include <uhal/kernel.h>

enum : u32 { MAX_HEAD_DIM = 256, MAX_KEYS = 256 };

DEVICE_FUNCTION f32 exponential(f32 x)
{
    return expf(x);
}
DEVICE_FUNCTION f64 exponential(f64 x)
{
    return exp(x);
}

template <class C, class T> DEVICE_FUNCTION C dot(u32 count, const C *a, const T *b)
{
#if KERNEL_ON_GPU
    C sum = 0;
    for (u32 i = 0; i < count; ++i)
        sum += a[i] * widen(b[i]);
    return sum;
#else
    // In lanes, so that the loop becomes vector code.
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

// How many keys the query at this position sees.
DEVICE_FUNCTION u32 seen_keys(u32 position, u32 q_len, u32 kv_len, bool causal)
{
    if (!causal)
        return kv_len;
    const i64 seen = i64(position) + 1 + kv_len - q_len;
    return seen < 0 ? 0 : u32(seen);
}

template <class T>
DEVICE_FUNCTION void attend(BLOCK block, u32 threads, const T *q, const T *k, const T *v,
                            const T *mask, T *out, u32 keys, u32 head_dim, Compute<T> scale)
{
    typedef Compute<T> C;
    SHARED(C, query, MAX_HEAD_DIM);
    SHARED(C, sums, MAX_HEAD_DIM);
    SHARED(C, scores, MAX_KEYS);
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
    ROLLED for (u32 first = 0; first < keys; first += most) {
        const u32 count = keys - first < most ? keys - first : most;
        THREADS_OF(block, t) {
            if (t < count) {
                const u64 key = u64(first) + t;
                const C added = mask == nullptr ? C(0) : widen(mask[key]);
                scores[t] = dot(head_dim, query, k + key * head_dim) * scale + added;
            }
        }
        BARRIER();
        // Every work-item finds the same numbers: they are few.
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
                    sum += scores[i] * widen(v[(u64(first) + i) * head_dim + column]);
                sums[column] = sum;
            }
        }
#else
        for (u32 column = 0; column < head_dim; ++column)
            sums[column] *= kept;
        for (u32 i = 0; i < count; ++i) {
            const T *values = v + (u64(first) + i) * head_dim;
            UHAL_INDEPENDENT
            for (u32 column = 0; column < head_dim; ++column)
                sums[column] += scores[i] * widen(values[column]);
        }
#endif
        BARRIER();
    }
    THREADS_OF(block, t) {
        for (u32 i = t; i < head_dim; i += threads)
            out[i] = narrow<T>(total == C(0) ? C(0) : sums[i] / total);
    }
}

#define SDPA(T)                                                                                    \
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
               row_mask, out + row * head_dim, seen_keys(position, q_len, kv_len, causal),         \
               head_dim, Compute<T>(scale));                                                       \
    }

SDPA(bf16)
SDPA(f16)
SDPA(f32)
SDPA(f64)
