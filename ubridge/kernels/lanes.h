// Rows in the lanes of registers: loads of words of LANES rows, and operations on all lanes.
#ifndef UBRIDGE_LANES_H
#define UBRIDGE_LANES_H

#include "wide.h"

#if HAS_WIDE

DEVICE_FUNCTION Register masked(Register from, u32 mask) { return from & everywhere(i32(mask)); }

// Shifts each lane right; negative bits shift left.
template <i32 bits> DEVICE_FUNCTION Register shifted_right(Register from) {
    if constexpr (bits > 0)
        return WIDE_512(_mm512_maskz_srli_epi32(__mmask16(-1), from, bits),
                        _mm256_srli_epi32(from, bits));
    else if constexpr (bits < 0)
        return WIDE_512(_mm512_maskz_slli_epi32(__mmask16(-1), from, -bits),
                        _mm256_slli_epi32(from, -bits));
    else
        return from;
}

// The highest byte of each lane, with a sign.
DEVICE_FUNCTION Register signed_top(Register from) {
    return WIDE_512(_mm512_maskz_srai_epi32(__mmask16(-1), from, 24), _mm256_srai_epi32(from, 24));
}

// The first or the second of each two bytes as a half word with a sign.
template <bool second> DEVICE_FUNCTION Register signed_halves(Register from) {
    if constexpr (!second)
        from = WIDE_512(_mm512_slli_epi16, _mm256_slli_epi16)(from, 8);
    return WIDE_512(_mm512_srai_epi16, _mm256_srai_epi16)(from, 8);
}

// 0 - from * 2^bits, of half words.
template <u32 bits> DEVICE_FUNCTION Register minus_raised(Register from) {
    return WIDE_512(_mm512_sub_epi16, _mm256_sub_epi16)(
        Register{}, WIDE_512(_mm512_slli_epi16, _mm256_slli_epi16)(from, bits));
}

DEVICE_FUNCTION Register difference_of_bytes(Register a, Register b) {
    return WIDE_512(_mm512_sub_epi8, _mm256_sub_epi8)(a, b);
}
DEVICE_FUNCTION Register sum_of_words(Register a, Register b) {
    return WIDE_512(_mm512_add_epi32, _mm256_add_epi32)(a, b);
}
DEVICE_FUNCTION Register product_of_words(Register a, Register b) {
    return WIDE_512(_mm512_mullo_epi32, _mm256_mullo_epi32)(a, b);
}

// The low half word of each lane, an f16, as a float.
DEVICE_FUNCTION FloatRegister floats_of_halves(Register words) {
#if defined(__AVX512BW__)
    return _mm512_maskz_cvtph_ps(__mmask16(-1),
                                 _mm512_maskz_cvtepi32_epi16(__mmask16(-1), words));
#else
    const __m256i both = _mm256_packus_epi32(masked(words, 0xFFFF), __m256i{});
    return _mm256_cvtph_ps(_mm256_castsi256_si128(_mm256_permute4x64_epi64(both, 0x08)));
#endif
}

// The columns of each square of four words and four registers become registers.
DEVICE_FUNCTION void turn(Register (&lines)[4]) {
#if defined(__AVX512BW__)
    const auto low = [](Register a, Register b) __attribute__((always_inline)) {
        return _mm512_maskz_unpacklo_epi32(__mmask16(-1), a, b);
    };
    const auto high = [](Register a, Register b) __attribute__((always_inline)) {
        return _mm512_maskz_unpackhi_epi32(__mmask16(-1), a, b);
    };
#else
    const auto low = [](Register a, Register b) __attribute__((always_inline)) {
        return _mm256_unpacklo_epi32(a, b);
    };
    const auto high = [](Register a, Register b) __attribute__((always_inline)) {
        return _mm256_unpackhi_epi32(a, b);
    };
#endif
    Wide first = {}, second = {};
    const Register a = low(lines[0], lines[1]), b = low(lines[2], lines[3]);
    const Register c = high(lines[0], lines[1]), d = high(lines[2], lines[3]);
    first.part[0] = a, second.part[0] = b;
    interleave(first, second);
    lines[0] = first.part[0], lines[1] = second.part[0];
    first.part[0] = c, second.part[0] = d;
    interleave(first, second);
    lines[2] = first.part[0], lines[3] = second.part[0];
}

// LANES rows of memory.
struct LinesOfMemory {
    const u8 *at[LANES];

    DEVICE_METHOD void move(u64 bytes) {
        for (u32 i = 0; i < LANES; ++i)
            at[i] += bytes;
    }
    // words[i] has word i from an offset on, of all rows.
    DEVICE_METHOD void load(u32 offset, Register (&words)[4]) const {
#pragma GCC unroll 4
        for (u32 i = 0; i < 4; ++i) {
            const u32 third = LANES == 16 ? i + 8 : i, fourth = LANES == 16 ? i + 12 : i;
            words[i] = load_quarters(at[i] + offset, at[i + 4] + offset, at[third] + offset,
                                     at[fourth] + offset)
                           .part[0];
        }
        turn(words);
    }
    // Eight words.
    DEVICE_METHOD void load(u32 offset, Register (&words)[2][4]) const {
#pragma GCC unroll 4
        for (u32 i = 0; i < 4; ++i) {
#if defined(__AVX512BW__)
            const __m512i a = load_halves(at[i] + offset, at[i + 4] + offset).part[0];
            const __m512i b = load_halves(at[i + 8] + offset, at[i + 12] + offset).part[0];
            words[0][i] = _mm512_maskz_shuffle_i32x4(__mmask16(-1), a, b, 0x88);
            words[1][i] = _mm512_maskz_shuffle_i32x4(__mmask16(-1), a, b, 0xDD);
#else
            const __m256i a = load_32(at[i] + offset), b = load_32(at[i + 4] + offset);
            words[0][i] = _mm256_permute2x128_si256(a, b, 0x20);
            words[1][i] = _mm256_permute2x128_si256(a, b, 0x31);
#endif
        }
        turn(words[0]);
        turn(words[1]);
    }
};

#endif

#endif
