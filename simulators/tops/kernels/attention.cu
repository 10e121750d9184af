/* Ubridge's attention of one query token per sequence over cached keys and values. cache.cu
 * describes the caches. A soft cap of 0 or 1 has no effect. */
#include "gcu.h"

#include <vector>

namespace {

struct Cached {
    const i32 *blocks; // of the sequence
    i64 block_size;
    i64 block_stride;
    i64 offset; // of the head

    i64 start_of(i64 token) const {
        return blocks[token / block_size] * block_stride + offset;
    }
};

template <class T>
void attend(T *out, const T *query, const T *keys, const T *values, const Cached &cached,
            i64 tokens, i64 head_size, f32 scale, f32 cap) {
    std::vector<f32> weights(tokens);
    const auto element = [&](const T *cache, i64 token, i64 i) {
        return f32(cache[cached.start_of(token) + token % cached.block_size * head_size + i]);
    };
    f32 most = -INFINITY;
    for (i64 token = 0; token < tokens; ++token) {
        f32 product = 0;
        for (i64 i = 0; i < head_size; ++i) {
            product += f32(query[i]) * element(keys, token, i);
        }
        product *= scale;
        weights[token] = cap == 0.0f || cap == 1.0f ? product : cap * tanhf(product / cap);
        most = weights[token] > most ? weights[token] : most;
    }
    f32 total = 0;
    for (f32 &weight : weights) {
        weight = expf(weight - most);
        total += weight;
    }
    for (i64 i = 0; i < head_size; ++i) {
        f32 sum = 0;
        for (i64 token = 0; token < tokens; ++token) {
            sum += weights[token] * element(values, token, i);
        }
        out[i] = T(sum / total);
    }
}

} // namespace

#define PAGED_ATTENTION(name, type)                                                                \
    KERNEL(name, (type * output, type * query, type * key_cache, type * value_cache,               \
                  i32 num_kv_heads, f32 scale, i32 * block_tables, i32 * context_lens,             \
                  i32 block_size, i32 max_context_len, i32 num_seqs, i32 num_heads,                \
                  i32 head_size, i32 max_num_blocks_per_seq, i32 q_stride, i32 kv_block_stride,    \
                  i32 kv_head_stride, i32 num_blocks, f32 softcapping)) {                          \
        (void)max_context_len;                                                                     \
        (void)num_blocks;                                                                          \
        each_element(SIPS, (u64)num_seqs *num_heads, [&](u64 i) {                                  \
            const i64 sequence = i64(i) / num_heads, head = i64(i) % num_heads;                    \
            const i64 of_kv = head / (num_heads / num_kv_heads);                                   \
            const Cached cached = {block_tables + sequence * max_num_blocks_per_seq, block_size,   \
                                   kv_block_stride, of_kv * kv_head_stride};                       \
            attend(output + i * head_size, query + sequence * q_stride + head * head_size,         \
                   key_cache, value_cache, cached, context_lens[sequence], head_size, scale,       \
                   softcapping);                                                                   \
        });                                                                                        \
    }

PAGED_ATTENTION(paged_attention_v1_f16, f16)
PAGED_ATTENTION(paged_attention_v1_bf16, bf16)
