// Rows of blocks times vectors of bytes, span by span, for CPUs: any format, at any level.
#ifndef UBRIDGE_BLOCK_SPANS_H
#define UBRIDGE_BLOCK_SPANS_H

#include "activations.h"
#include "block_elements.h"
#include "codebook_blocks.h"

#if defined(__ARM_FEATURE_DOTPROD)
#include <arm_neon.h>
#elif defined(__SSSE3__)
#include <tmmintrin.h>
#endif

// Sixteen elements' integers as bytes with a sign.
template <class Block> DEVICE_FUNCTION Words bytes_of(const Block &block, u32 first)
{
    if constexpr (Block::WIDE)
        return block.template packed<Words>(first);
    else {
        Words words;
        for (u32 i = 0; i < 4; ++i)
            words[i] = block.template packed<u32>(first + 4 * i);
        return words;
    }
}

// The sum of the products of sixteen bytes with a sign. x has no -128.
DEVICE_FUNCTION i32 dot16(Words bytes, const i8 *x)
{
#if defined(__ARM_FEATURE_DOTPROD)
    return vaddvq_s32(vdotq_s32(vdupq_n_s32(0), int8x16_t(bytes), vld1q_s8(x)));
#elif defined(__SSSE3__)
    const __m128i a = __m128i(bytes), b = _mm_loadu_si128(reinterpret_cast<const __m128i *>(x));
    const __m128i halves = _mm_maddubs_epi16(_mm_abs_epi8(a), _mm_sign_epi8(b, a));
    __m128i sums = _mm_madd_epi16(halves, _mm_set1_epi16(1));
    sums = _mm_add_epi32(sums, _mm_shuffle_epi32(sums, 0x4E));
    return _mm_cvtsi128_si32(_mm_add_epi32(sums, _mm_shuffle_epi32(sums, 0xB1)));
#else
    i32 sum = 0;
    for (u32 i = 0; i < 16; ++i)
        sum += i32(i8(bytes[i / 4] >> 8 * (i % 4))) * i32(x[i]);
    return sum;
#endif
}

// Whether a format's vectors are quantized in blocks of 256, else of 32.
template <class Block> constexpr bool in_256 = Block::ELEMENTS % 256 == 0;

// The scale of element `e`, and the sum of the sixteen integers from `e` on.
DEVICE_FUNCTION f32 scale_at(const Side32 *sides, u64 e) { return sides[e / 32].d; }
DEVICE_FUNCTION f32 scale_at(const Side256 *sides, u64 e) { return sides[e / 256].d; }
DEVICE_FUNCTION i32 sum_at(const Side32 *sides, u64 e) { return sides[e / 32].sums[e % 32 / 16]; }
DEVICE_FUNCTION i32 sum_at(const Side256 *sides, u64 e)
{
    return sides[e / 256].sums[e % 256 / 16];
}

template <class Block> using SideOf = std::conditional_t<in_256<Block>, Side256, Side32>;

enum : u32 { SPAN_VECTORS = 8 };

// `count` vectors, at most SPAN_VECTORS, by a row.
template <class Block>
DEVICE_FUNCTION void multiply_spans(const Block *row, u64 blocks, const Vectors &vectors, u64 index,
                                    u32 count, f32 *results, u64 step)
{
    constexpr u32 SPAN = span_of<Block>;
    typedef SideOf<Block> Side;
    f32 sums[SPAN_VECTORS] = {};
    for (u64 i = 0; i < blocks; ++i)
        for (u32 first = 0; first < Block::ELEMENTS; first += SPAN) {
            const Level level = row[i].level(first);
            const f32 shift = f32(Block::OFFSET) * level.scale + level.minimum;
            Words bytes[SPAN / 16];
            for (u32 j = 0; j < SPAN / 16; ++j)
                bytes[j] = bytes_of(row[i], first + 16 * j);
            const u64 e = i * Block::ELEMENTS + first;
            for (u32 v = 0; v < count; ++v) {
                const Vector<Side> y = vectors.vector<Side>(index + v);
                i32 product = 0, total = 0;
                for (u32 j = 0; j < SPAN / 16; ++j) {
                    product += dot16(bytes[j], y.quants + e + 16 * j);
                    total += sum_at(y.sides, e + 16 * j);
                }
                f32 share = level.scale * f32(product);
                if constexpr (Block::OFFSET != 0 || Block::MINIMUM != 0)
                    share -= shift * f32(total);
                sums[v] += scale_at(y.sides, e) * share;
            }
        }
    for (u32 v = 0; v < count; ++v)
        results[v * step] = sums[v];
}

#endif
