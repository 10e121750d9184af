// Rows of blocks of 256 elements times a vector of bytes: see block_rows.h.
#ifndef UBRIDGE_ROWS_OF_256_H
#define UBRIDGE_ROWS_OF_256_H

#include "rows_of_32.h"

#if HAS_WIDE

// One instruction; the C++ code takes twenty.
DEVICE_FUNCTION f32 widened(const f16 &value) {
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_loadu_si16(&value)));
}

// Four words with the same sum.
DEVICE_FUNCTION __m128i four_lanes(__m256i words) {
    return _mm_add_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
}
#if defined(__AVX512BW__)
DEVICE_FUNCTION __m128i four_lanes(__m512i words) {
    return four_lanes(_mm256_add_epi32(_mm512_maskz_extracti64x4_epi64(__mmask8(-1), words, 0),
                                       _mm512_maskz_extracti64x4_epi64(__mmask8(-1), words, 1)));
}
#endif

// The sums of the lanes of both, in the first two lanes.
DEVICE_FUNCTION __m128i both_sums(__m128i first, __m128i second) {
    const __m128i two =
        _mm_add_epi32(_mm_unpacklo_epi32(first, second), _mm_unpackhi_epi32(first, second));
    return _mm_add_epi32(two, _mm_unpackhi_epi64(two, two));
}

// Factors of the sums of runs: minus the scales, times an offset of the integers.
DEVICE_FUNCTION __m256i factors_of(__m256i scales, u32 offset) {
    const i32 power = __builtin_ctz(offset);
    return _mm256_sub_epi16(__m256i{}, _mm256_slli_epi16(scales, power));
}

// A vector's 256 integers in an order that a format chooses, and the sums of elements that share a
// scale.
struct alignas(64) SharedOf256 {
    i8 quants[256];
    __m256i sums;
    f32 d;

    DEVICE_METHOD Wide part(u32 n) const { return load_64(quants + 64 * n); }

    DEVICE_METHOD void take(const Side256 &side, u32 span) {
        sums = span == 16 ? load_32(side.sums) : _mm256_zextsi128_si256(load_16(side.sums_of_32));
        d = side.d;
    }
};

// A format's integers in four vectors, as bytes from 0 to 127. The halves of vector n are elements
// PLACES[n][0] … + 31 and PLACES[n][1] … + 31. SPAN elements share a scale and a minimum.
//
// `fold` exchanges bytes between vectors 0 and 1, and between 2 and 3. Then both vectors of a pair
// have the same scales at the same places, so their products are added before a multiplication by
// scales. This sum of half words is at most 4 * 63 * 127.
template <class Block> struct Unpacked;

DEVICE_FUNCTION void fold(Wide (&parts)[4]) {
    interleave(parts[0], parts[1]);
    interleave(parts[2], parts[3]);
}

struct BothHalves {
    static constexpr u32 PLACES[4][2] = {{0, 128}, {32, 160}, {64, 192}, {96, 224}};
};
struct EveryOther {
    static constexpr u32 PLACES[4][2] = {{0, 64}, {128, 192}, {32, 96}, {160, 224}};
};
struct InOrder {
    static constexpr u32 PLACES[4][2] = {{0, 32}, {64, 96}, {128, 160}, {192, 224}};
};

template <> struct Unpacked<BlockQ2_K> : BothHalves {
    enum : i32 { LARGEST = 3 };
    Wide integers[4];
    __m256i scales, minimums;

    DEVICE_METHOD explicit Unpacked(const BlockQ2_K &b) {
        const __m128i both = load_16(b.scales), low = _mm_set1_epi8(15);
        scales = _mm256_cvtepu8_epi16(both & low);
        minimums = _mm256_cvtepu8_epi16(_mm_srli_epi16(both, 4) & low);
        const Wide q = load_64(b.qs), mask = bytes_of(3);
        integers[0] = q & mask;
        integers[1] = shifted<2, 2>(q) & mask;
        integers[2] = shifted<4, 4>(q) & mask;
        integers[3] = shifted<6, 6>(q) & mask;
    }
};

template <> struct Unpacked<BlockQ3_K> : BothHalves {
    enum : i32 { LARGEST = 7 };
    Wide integers[4];
    __m256i scales;

    DEVICE_METHOD explicit Unpacked(const BlockQ3_K &b) {
        const u64 low = load<2, u32>(b.scales) | u64(load<2, u32>(b.scales + 4)) << 32;
        const u64 high = load<2, u32>(b.scales + 8);
        const u64 first = (high & 0x03030303) | (high & 0x0C0C0C0C) << 30;
        const u64 second = (high >> 4 & 0x03030303) | (high & 0xC0C0C0C0) << 26;
        const u64 nibbles = 0x0F0F0F0F0F0F0F0F;
        const __m128i bytes = _mm_set_epi64x(i64((low >> 4 & nibbles) | second << 4),
                                             i64((low & nibbles) | first << 4));
        scales = _mm256_cvtepi8_epi16(_mm_sub_epi8(bytes, _mm_set1_epi8(32)));
        const Wide q = load_64(b.qs), mask = bytes_of(3), bit = bytes_of(4);
        const Wide h = twice(load_32(b.hmask));
        integers[0] = (q & mask) | (shifted<-2, 2>(h) & bit);
        integers[1] = (shifted<2, 2>(q) & mask) | (shifted<-1, 3>(h) & bit);
        integers[2] = (shifted<4, 4>(q) & mask) | (shifted<0, 4>(h) & bit);
        integers[3] = (shifted<6, 6>(q) & mask) | (shifted<1, 5>(h) & bit);
    }
};

// 8 scales, then 8 minimums, of 6 bits each: see `level_of_six_bits`.
DEVICE_FUNCTION __m256i six_bits(const u8 *packed) {
    const __m128i bytes = load_16(packed);
    const __m128i first =
        _mm_shuffle_epi8(bytes, _mm_setr_epi8(0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7, 8, 9, 10, 11));
    const __m128i upper = _mm_shuffle_epi8(
        bytes, _mm_setr_epi8(-1, -1, -1, -1, 0, 1, 2, 3, -1, -1, -1, -1, 4, 5, 6, 7));
    const __m128i lower = _mm_srlv_epi32(first, _mm_setr_epi32(0, 0, 0, 4)) &
                          _mm_setr_epi32(0x3F3F3F3F, 0x0F0F0F0F, 0x3F3F3F3F, 0x0F0F0F0F);
    return _mm256_cvtepu8_epi16(lower | (_mm_srli_epi16(upper, 2) & _mm_set1_epi8(0x30)));
}

// Q4_K, and all but the upper bits of Q5_K.
template <class Block> struct NibblesOf256 : EveryOther {
    Wide integers[4];
    __m256i scales, minimums;

    DEVICE_METHOD explicit NibblesOf256(const Block &b) {
        scales = six_bits(b.scales);
        minimums = _mm256_permute4x64_epi64(scales, 0xEE);
        const Wide q0 = load_64(b.qs), q1 = load_64(b.qs + 64), mask = bytes_of(15);
        integers[0] = q0 & mask;
        integers[1] = q1 & mask;
        integers[2] = shifted<4, 4>(q0) & mask;
        integers[3] = shifted<4, 4>(q1) & mask;
    }
};

template <> struct Unpacked<BlockQ4_K> : NibblesOf256<BlockQ4_K> {
    enum : i32 { LARGEST = 15 };
    using NibblesOf256::NibblesOf256;
};

template <> struct Unpacked<BlockQ5_K> : NibblesOf256<BlockQ5_K> {
    enum : i32 { LARGEST = 31 };
    DEVICE_METHOD explicit Unpacked(const BlockQ5_K &b) : NibblesOf256(b) {
        const Wide h = twice(load_32(b.qh)), bit = bytes_of(16);
        integers[0] = integers[0] | (shifted<-4, -2>(h) & bit);
        integers[1] = integers[1] | (shifted<0, 2>(h) & bit);
        integers[2] = integers[2] | (shifted<-3, -1>(h) & bit);
        integers[3] = integers[3] | (shifted<1, 3>(h) & bit);
    }
};

template <> struct Unpacked<BlockQ6_K> : InOrder {
    enum : i32 { LARGEST = 63 };
    Wide integers[4];
    __m256i scales;

    DEVICE_METHOD explicit Unpacked(const BlockQ6_K &b) {
        scales = _mm256_cvtepi8_epi16(load_16(b.scales));
        const Wide q0 = load_64(b.ql), q1 = load_64(b.ql + 64);
        const Wide h0 = twice(load_32(b.qh)), h1 = twice(load_32(b.qh + 32));
        const Wide low = bytes_of(15), high = bytes_of(0x30);
        integers[0] = (q0 & low) | (shifted<-4, -2>(h0) & high);
        integers[1] = (shifted<4, 4>(q0) & low) | (shifted<0, 2>(h0) & high);
        integers[2] = (q1 & low) | (shifted<-4, -2>(h1) & high);
        integers[3] = (shifted<4, 4>(q1) & low) | (shifted<0, 2>(h1) & high);
    }
};

// The integers of a block are multiplied and added exactly. Then `sums` gets their sum, and the
// minimums' shares in its second lane. So a row's sums have the order of its blocks.
template <class Block, u32 FOURS> struct WayOf256 {
    enum : u32 { BLOCKS = 1, IN_FOURS = FOURS };
    enum : bool { IN_LANES = true };
    typedef Side256 Side;
    typedef Unpacked<Block> Unpacking;
    // Whether two products of four bytes are added by the instructions for products of bytes: the
    // sum is a half word, and one more instruction multiplies it by its scale.
    enum : bool { WORDS = SIGN_BIAS != 0 && 2 * 4 * Unpacking::LARGEST * 127 < 1 << 15 };

    struct Shared : SharedOf256 {
        DEVICE_METHOD Shared(const Vector<Side> &y, u64 i) {
            Wide parts[4];
            for (u32 n = 0; n < 4; ++n)
                parts[n] = load_halves(y.quants + 256 * i + Unpacking::PLACES[n][0],
                                       y.quants + 256 * i + Unpacking::PLACES[n][1]);
            fold(parts);
            memcpy(quants, parts, sizeof quants);
            take(y.sides[i], Block::SPAN);
        }
    };

    // The scale's number for quarter q, of eight bytes, of the sum of parts n and n + 1.
    static constexpr u32 span(u32 n, u32 q) {
        return (Unpacking::PLACES[n + q % 2][q / 4] + 16 * (q / 2 % 2)) / Block::SPAN;
    }

    // The integers of parts that share scales, folded, and scales at their places.
    struct Integers {
        Wide parts[4], scales[2];

        DEVICE_METHOD Integers(const Unpacking &unpacked, const Scales &all) {
            memcpy(parts, unpacked.integers, sizeof parts);
            fold(parts);
            scales[0] = all.template spread<WORDS, span(0, 0), span(0, 1), span(0, 2), span(0, 3),
                                            span(0, 4), span(0, 5), span(0, 6), span(0, 7)>();
            scales[1] = all.template spread<WORDS, span(2, 0), span(2, 1), span(2, 2), span(2, 3),
                                            span(2, 4), span(2, 5), span(2, 6), span(2, 7)>();
        }
        // made + products with a vector
        DEVICE_METHOD Register added(Register made, const Shared &y) const {
#pragma GCC unroll 2
            for (u32 n = 0; n < 2; ++n)
#pragma GCC unroll 2
                for (u32 p = 0; p < PARTS; ++p) {
                    const Register w0 = parts[2 * n].part[p], w1 = parts[2 * n + 1].part[p];
                    const Register y0 = y.part(2 * n).part[p], y1 = y.part(2 * n + 1).part[p];
                    Register both;
                    if constexpr (WORDS)
                        both = dot(dot(Register{}, w0, y0), w1, y1);
                    else
                        both = sum_of_halves(pairs(w0, y0), pairs(w1, y1));
                    made = add_pairs(made, both, scales[n].part[p]);
                }
            return made;
        }
    };

    struct Weights {
        Integers integers;
        __m256i minimums; // or the factors of sums
        __m128 ds;        // d and dmin

        DEVICE_METHOD explicit Weights(const Block *b) : Weights(*b, Unpacking(*b)) {}
        DEVICE_METHOD Weights(const Block &b, const Unpacking &unpacked)
            : integers(unpacked, Scales(unpacked.scales)) {
            if constexpr (Block::MINIMUM != 0) {
                minimums = unpacked.minimums;
                ds = _mm_cvtph_ps(_mm_loadu_si32(&b.d));
            } else {
                minimums = factors_of(unpacked.scales, Block::OFFSET);
                ds = _mm_cvtph_ps(_mm_loadu_si16(&b.d));
            }
        }
    };

    __m128 sums = {};

    DEVICE_METHOD void add(const Weights &weights, const Shared &y) {
        const __m128i shares = four_lanes(_mm256_madd_epi16(weights.minimums, y.sums));
        __m128i products = four_lanes(weights.integers.added(Register{}, y));
        if constexpr (Block::MINIMUM == 0)
            products = _mm_add_epi32(products, shares);
        sums += weights.ds * _mm_set1_ps(y.d) * _mm_cvtepi32_ps(both_sums(products, shares));
    }
    DEVICE_METHOD f32 result() const { return Block::MINIMUM != 0 ? sums[0] - sums[1] : sums[0]; }
};

#if defined(__AVX512BW__)

// Four rows of a format whose scales and minimums have six bits. The scales of all rows are
// unpacked at once, and the lanes of all rows are added at once.
template <class Block> struct FourRowsOf256 {
    typedef WayOf256<Block, WHERE_CPUS_LOOK_FAR> Each;
    __m256 sums = {}; // of products, then of the minimums' shares

    static DEVICE_METHOD __m512i four_times(__m128i quarter) {
        return _mm512_maskz_broadcast_i32x4(__mmask16(-1), quarter);
    }
    template <u32 which> static DEVICE_METHOD __m256i half(__m512i from) {
        return _mm512_maskz_extracti64x4_epi64(__mmask8(-1), from, which);
    }
    // In each four lanes, sums of lanes of a and of b, twice.
    static DEVICE_METHOD __m512i twos(__m512i a, __m512i b) {
        return _mm512_add_epi32(_mm512_maskz_unpacklo_epi32(__mmask16(-1), a, b),
                                _mm512_maskz_unpackhi_epi32(__mmask16(-1), a, b));
    }

    // `six_bits` of the rows: of rows 0 and 2, and of rows 1 and 3.
    static DEVICE_METHOD void unpack(const Block *b, u64 apart, __m512i (&levels)[2]) {
        const __m512i bytes =
            load_quarters(b->scales, b[2 * apart].scales, b[apart].scales, b[3 * apart].scales)
                .part[0];
        const __m512i first = _mm512_shuffle_epi8(
            bytes, four_times(_mm_setr_epi8(0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7, 8, 9, 10, 11)));
        const __m512i upper = _mm512_shuffle_epi8(
            bytes,
            four_times(_mm_setr_epi8(-1, -1, -1, -1, 0, 1, 2, 3, -1, -1, -1, -1, 4, 5, 6, 7)));
        const __m512i shifted =
            _mm512_maskz_srlv_epi32(__mmask16(-1), first, four_times(_mm_setr_epi32(0, 0, 0, 4)));
        const __m512i lower =
            shifted & four_times(_mm_setr_epi32(0x3F3F3F3F, 0x0F0F0F0F, 0x3F3F3F3F, 0x0F0F0F0F));
        const __m512i all = lower | (_mm512_srli_epi16(upper, 2) & _mm512_set1_epi8(0x30));
        levels[0] = _mm512_cvtepu8_epi16(half<0>(all));
        levels[1] = _mm512_cvtepu8_epi16(half<1>(all));
    }
    // The sums of the rows' minimums times y's sums.
    static DEVICE_METHOD __m128i shares(const __m512i (&levels)[2],
                                        const typename Each::Shared &y) {
        // y's sums at each row's minimums, zeros at its scales.
        const __m512i totals = _mm512_maskz_broadcast_i32x4(0xF0F0, _mm256_castsi256_si128(y.sums));
        const __m512i all =
            twos(_mm512_madd_epi16(levels[0], totals), _mm512_madd_epi16(levels[1], totals));
        const __m128i first = _mm256_extracti128_si256(half<0>(all), 1);
        const __m128i second = _mm256_extracti128_si256(half<1>(all), 1);
        return _mm_add_epi32(_mm_unpacklo_epi64(first, second), _mm_unpackhi_epi64(first, second));
    }

    DEVICE_METHOD void add(const Block *b, u64 apart, const typename Each::Shared &y) {
        __m512i levels[2], made[4];
        unpack(b, apart, levels);
#pragma GCC unroll 4
        for (u32 row = 0; row < 4; ++row) {
            const __m512i two = levels[row % 2];
            const Scales own(row < 2 ? half<0>(two) : half<1>(two));
            const typename Each::Integers integers(Unpacked<Block>(b[row * apart]), own);
            made[row] = integers.added(Register{}, y);
        }
        Wide first = {{twos(made[0], made[1])}}, second = {{twos(made[2], made[3])}};
        interleave(first, second);
        const __m256i all = _mm256_inserti128_si256(
            _mm256_castsi128_si256(four_lanes(sum(first, second).part[0])), shares(levels, y), 1);
        i32 pairs[4]; // d and dmin, neighbors in a block
        for (u32 row = 0; row < 4; ++row)
            memcpy(&pairs[row], &b[row * apart].d, sizeof pairs[row]);
        const __m256 ds = _mm256_cvtph_ps(
            _mm_shuffle_epi8(_mm_setr_epi32(pairs[0], pairs[1], pairs[2], pairs[3]),
                             _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15)));
        sums += ds * _mm256_set1_ps(y.d) * _mm256_cvtepi32_ps(all);
    }
    DEVICE_METHOD f32 result(u32 row) const { return sums[row] - sums[4 + row]; }
};

#endif

struct WayOfIQ4_XS {
    enum : u32 { BLOCKS = 1, IN_FOURS = NEVER };
    enum : bool { IN_LANES = false };
    typedef Side256 Side;

    struct Shared : SharedOf256 {
        DEVICE_METHOD Shared(const Vector<Side> &y, u64 i) {
            memcpy(quants, y.quants + 256 * i, sizeof quants);
            take(y.sides[i], 32);
        }
    };

    // 8 scales of 6 bits, above 32, as half words.
    static DEVICE_METHOD __m128i scales_of(const BlockIQ4_XS *b) {
        const u32 packed = load<2, u32>(b->scales_l);
        const __m128i low = _mm_cvtepu8_epi16(_mm_set_epi64x(
            0, i64((u64(packed & 0x0F0F0F0F) | u64(packed >> 4 & 0x0F0F0F0F) << 32))));
        // First even, then odd scales; restore their order:
        const __m128i ordered = _mm_unpacklo_epi16(low, _mm_unpackhi_epi64(low, low));
        const __m128i at =
            _mm_setr_epi16(1 << 14, 1 << 12, 1 << 10, 1 << 8, 1 << 6, 1 << 4, 1 << 2, 1);
        const __m128i packed_high = _mm_set1_epi16(i16(b->scales_h));
        const __m128i high = _mm_srli_epi16(_mm_mullo_epi16(packed_high, at), 14);
        return _mm_sub_epi16(ordered | _mm_slli_epi16(high, 4), _mm_set1_epi16(32));
    }

    struct Weights {
        Wide parts[4], scales[4];
        __m256i factors = {};
        FloatRegister d;

        DEVICE_METHOD explicit Weights(const BlockIQ4_XS *b) : d(everywhere(widened(b->d))) {
            const __m128i halves = scales_of(b);
            const __m256i words = _mm256_cvtepi16_epi32(halves);
            if (SIGN_BIAS != 0)
                factors = factors_of(_mm256_zextsi128_si256(halves), SIGN_BIAS);
#pragma GCC unroll 4
            for (u32 k = 0; k < 8; k += 2) {
                parts[k / 2] = looked_up(nibbles_of(b->qs + 16 * k, b->qs + 16 * k + 16),
                                         Table<BlockIQ4_NL>::get());
                scales[k / 2] =
                    joined(_mm256_permutevar8x32_epi32(words, _mm256_set1_epi32(i32(k))),
                           _mm256_permutevar8x32_epi32(words, _mm256_set1_epi32(i32(k + 1))));
            }
        }
    };

    FloatRegister sums = {};

    DEVICE_METHOD void add(const Weights &weights, const Shared &y) {
        Wide made = {};
        if (SIGN_BIAS != 0)
            made = in_front(_mm256_madd_epi16(weights.factors, y.sums));
#pragma GCC unroll 4
        for (u32 n = 0; n < 4; ++n)
            made =
                sum(made, product(dot_signed({}, weights.parts[n], y.part(n)), weights.scales[n]));
        sums += weights.d * everywhere(y.d) * floats(parts_added(made));
    }
    DEVICE_METHOD f32 result() const { return sum_of(sums); }
};

#endif

#endif
