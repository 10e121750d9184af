/* Ubridge's rotary embedding, in place on queries and keys of [tokens, heads, head size]. A row of
 * `cos_sin` holds the cosines of half the rotated elements and then the sines. */
#include "gcu.h"

namespace {

struct Rotation {
    i32 heads;
    i32 head_size;
    i32 rotated; // elements of a head
    bool halves; // pairs lie half the rotated elements apart, else side by side
};

template <class T, class C>
void rotate(T *token, const C *row, const Rotation &rotation) {
    const i32 half = rotation.rotated / 2;
    for (i32 head = 0; head < rotation.heads; ++head) {
        T *elements = token + (i64)head * rotation.head_size;
        for (i32 i = 0; i < half; ++i) {
            T &first = elements[rotation.halves ? i : 2 * i];
            T &second = elements[rotation.halves ? i + half : 2 * i + 1];
            const f32 x = f32(first);
            const f32 y = f32(second);
            const f32 cosine = f32(row[i]);
            const f32 sine = f32(row[half + i]);
            first = T(x * cosine - y * sine);
            second = T(y * cosine + x * sine);
        }
    }
}

template <class T, class C>
void rope(const Sips &sips, T *query, T *key, const C *cos_sin, i32 length, i32 stride,
          const i64 *positions, i32 tokens, const Rotation &queries, const Rotation &keys) {
    for (u64 sip = sips.first; sip < sips.first + sips.count; ++sip) {
        const Piece piece = piece_of((u64)tokens, sip, sips.total);
        for (u64 token = piece.first; token < piece.last; ++token) {
            // A position that has no row ends the SIP's work, not only the token's.
            if (positions[token] >= length) {
                break;
            }
            const C *row = cos_sin + positions[token] * stride;
            rotate(query + token * queries.heads * queries.head_size, row, queries);
            rotate(key + token * keys.heads * keys.head_size, row, keys);
        }
    }
}

} // namespace

#define ROPE(name, type, table)                                                                    \
    KERNEL(name, (type * query, type * key, table * cos_sin, i32 cos_sin_length,                   \
                  i32 cos_sin_stride, i64 * index_positions, i32 num_tokens, i32 q_heads,          \
                  i32 k_heads, i32 hidden_size, i32 split_dim, i32 gpt_geox)) {                    \
        const bool halves = gpt_geox != 0;                                                         \
        rope(SIPS, query, key, cos_sin, cos_sin_length, cos_sin_stride, index_positions,           \
             num_tokens, Rotation{q_heads, hidden_size, split_dim, halves},                        \
             Rotation{k_heads, hidden_size, split_dim, halves});                                   \
    }

ROPE(rope_f32, f32, f32)
ROPE(rope_f16, f16, f16)
ROPE(rope_bf16, bf16, bf16)
ROPE(rope_f32_f16, f16, f32)
ROPE(rope_f32_bf16, bf16, f32)
