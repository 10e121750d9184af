/* Ubridge's cache of keys and values, both [block][head][row][element]; negative slots are left
 * out. */
#include "gcu.h"

namespace {

template <class T>
void store(const T *from, T *cache, i64 slot, i32 heads, i32 head_size, i32 block_size) {
    const i64 block = slot / block_size, row = slot % block_size;
    for (i64 head = 0; head < heads; ++head) {
        T *to = cache + ((block * heads + head) * block_size + row) * head_size;
        for (i64 i = 0; i < head_size; ++i) {
            to[i] = from[head * head_size + i];
        }
    }
}

} // namespace

#define RESHAPE_AND_CACHE(name, type)                                                              \
    KERNEL(name, (type * key, type * value, type * key_cache, type * value_cache,                  \
                  i64 * slot_mapping, i32 num_tokens, i32 num_heads, i32 head_size,                \
                  i32 num_blocks, i32 block_size, i32 x, i32 key_stride, i32 value_stride)) {      \
        (void)num_blocks;                                                                          \
        (void)x;                                                                                   \
        each_element(SIPS, (u64)num_tokens, [&](u64 token) {                                       \
            const i64 slot = i32(slot_mapping[token]);                                             \
            if (slot >= 0) {                                                                       \
                store(key + token * key_stride, key_cache, slot, num_heads, head_size,             \
                      block_size);                                                                 \
                store(value + token * value_stride, value_cache, slot, num_heads, head_size,       \
                      block_size);                                                                 \
            }                                                                                      \
        });                                                                                        \
    }

RESHAPE_AND_CACHE(reshape_and_cache_f16, f16)
RESHAPE_AND_CACHE(reshape_and_cache_bf16, bf16)
RESHAPE_AND_CACHE(reshape_and_cache_f32, f32)
