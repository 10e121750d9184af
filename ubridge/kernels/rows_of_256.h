// Rows of blocks of 256 elements times a vector of bytes: see block_rows.h.
#ifndef UBRIDGE_ROWS_OF_256_H
#define UBRIDGE_ROWS_OF_256_H

#include "rows_of_32.h"

#if HAS_WIDE

// One instruction; the C++ code takes twenty.
DEVICE_FUNCTION f32 widened(const f16 &value) {
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_loadu_si16(&value)));
}

// Sums of a row: the sum of products, and the sum of the minimums' shares, which is subtracted.
struct SumsOf256 {
    WideFloats sums = {};
    __m256 taken = {};

    DEVICE_METHOD void add(f32 scale, Wide words) {
        sums = sums + floats_of(scale) * floats(words);
    }
    // Two neighboring f16 are factors: the first of the words, the second of minimums times sums
    // of y.
    DEVICE_METHOD void add(const f16 *scales, f32 d, Wide words, __m256i minimums, __m256i totals) {
        const __m128 both = _mm_cvtph_ps(_mm_loadu_si32(scales)) * _mm_set1_ps(d);
        const __m256i products = _mm256_madd_epi16(minimums, totals);
        sums = sums + everywhere(both) * floats(words);
        taken += _mm256_broadcastss_ps(_mm_movehdup_ps(both)) * _mm256_cvtepi32_ps(products);
    }
    DEVICE_METHOD f32 result() const { return sum_of(sums) - sum_of(taken); }
};

// The sums of runs times their scales, times the offset of the integers.
DEVICE_FUNCTION Wide raised_by(i32 power, __m256i scales, __m256i sums) {
    const __m256i products = _mm256_madd_epi16(scales, sums);
    return in_front(_mm256_sub_epi32(__m256i{}, _mm256_slli_epi32(products, power)));
}

// The integers of a vector's 256 elements, and the sums of elements that share a scale.
struct SharedOf256 {
    const i8 *quants;
    __m256i sums;
    f32 d;

    SharedOf256() = default;
    DEVICE_METHOD SharedOf256(const Vector<Side256> &y, u64 i, u32 span)
        : quants(y.quants + 256 * i),
          sums(span == 16 ? load_32(y.sides[i].sums)
                          : _mm256_zextsi128_si256(load_16(y.sides[i].sums_of_32))),
          d(y.sides[i].d) {}
};

// A format's integers in four vectors, as bytes from 0 to 127. The halves of vector n are elements
// PLACES[n][0] … + 31 and PLACES[n][1] … + 31. SPAN elements share a scale and a minimum.
template <class Block> struct Unpacked;

struct BothHalves {
    static constexpr u32 PLACES[4][2] = {{0, 128}, {32, 160}, {64, 192}, {96, 224}};
};
struct EveryOther {
    static constexpr u32 PLACES[4][2] = {{0, 64}, {32, 96}, {128, 192}, {160, 224}};
};
struct InOrder {
    static constexpr u32 PLACES[4][2] = {{0, 32}, {64, 96}, {128, 160}, {192, 224}};
};

template <> struct Unpacked<BlockQ2_K> : BothHalves {
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
        integers[1] = shifted<4, 4>(q0) & mask;
        integers[2] = q1 & mask;
        integers[3] = shifted<4, 4>(q1) & mask;
    }
};

template <> struct Unpacked<BlockQ4_K> : NibblesOf256<BlockQ4_K> {
    using NibblesOf256::NibblesOf256;
};

template <> struct Unpacked<BlockQ5_K> : NibblesOf256<BlockQ5_K> {
    DEVICE_METHOD explicit Unpacked(const BlockQ5_K &b) : NibblesOf256(b) {
        const Wide h = twice(load_32(b.qh)), bit = bytes_of(16);
        integers[0] = integers[0] | (shifted<-4, -2>(h) & bit);
        integers[1] = integers[1] | (shifted<-3, -1>(h) & bit);
        integers[2] = integers[2] | (shifted<0, 2>(h) & bit);
        integers[3] = integers[3] | (shifted<1, 3>(h) & bit);
    }
};

template <> struct Unpacked<BlockQ6_K> : InOrder {
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

template <class Block, u32 FOURS> struct WayOf256 : SumsOf256 {
    enum : u32 { BLOCKS = 1, IN_FOURS = FOURS, VECTORS = 4 };
    typedef Side256 Side;
    typedef Unpacked<Block> Unpacking;

    struct Shared : SharedOf256 {
        Shared() = default;
        DEVICE_METHOD Shared(const Vector<Side> &y, u64 i) : SharedOf256(y, i, Block::SPAN) {}
    };

    template <u32 n, u32 COUNT>
    static DEVICE_METHOD void term(Wide *made, const Unpacking &b, const Scales &scales,
                                   const Shared *ys) {
        constexpr u32 first = Unpacking::PLACES[n][0], other = Unpacking::PLACES[n][1];
        constexpr u32 SPAN = Block::SPAN;
        const Wide each = scales.template spread<first / SPAN, (first + 16) / SPAN, other / SPAN,
                                                 (other + 16) / SPAN>();
#pragma GCC unroll 4
        for (u32 v = 0; v < COUNT; ++v) {
            const Wide x = load_halves(ys[v].quants + first, ys[v].quants + other);
            made[v] = add_pairs(made[v], pairs(b.integers[n], x), each);
        }
    }

    template <u32 COUNT>
    static DEVICE_METHOD void terms(Wide *made, const Unpacking &b, const Scales &scales,
                                    const Shared *ys) {
        term<0, COUNT>(made, b, scales, ys);
        term<1, COUNT>(made, b, scales, ys);
        term<2, COUNT>(made, b, scales, ys);
        term<3, COUNT>(made, b, scales, ys);
    }

    // Adds a block's share for COUNT vectors, which use one unpacking. The sums are integers and
    // exact, so each vector gets the bits of a lone vector.
    template <u32 COUNT>
    static DEVICE_METHOD void add(WayOf256 *sums, const Block *b, const Shared *ys) {
        const Unpacking unpacked(*b);
        Wide made[COUNT] = {};
        if constexpr (Block::OFFSET != 0) // a power of two
#pragma GCC unroll 4
            for (u32 v = 0; v < COUNT; ++v)
                made[v] = raised_by(__builtin_ctz(Block::OFFSET), unpacked.scales, ys[v].sums);
        terms<COUNT>(made, unpacked, Scales(unpacked.scales), ys);
#pragma GCC unroll 4
        for (u32 v = 0; v < COUNT; ++v) {
            SumsOf256 &own = sums[v];
            if constexpr (Block::MINIMUM != 0)
                own.add(&b->d, ys[v].d, made[v], unpacked.minimums, ys[v].sums);
            else
                own.add(widened(b->d) * ys[v].d, made[v]);
        }
    }
    DEVICE_METHOD void add(const Block *b, const Shared &y) { add<1>(this, b, &y); }
};

#if defined(__AVX512BW__)

// Four rows of a format whose scales and minimums have six bits. The scales of all rows are
// unpacked at once, and the minimums' shares are summed up for two rows together.
template <class Block> struct FourRowsOf256 {
    typedef WayOf256<Block, WHERE_CPUS_LOOK_FAR> Each;
    WideFloats sums[4] = {};
    __m512 taken[2] = {};

    static DEVICE_METHOD __m512i four_times(__m128i quarter) {
        return _mm512_maskz_broadcast_i32x4(__mmask16(-1), quarter);
    }
    template <u32 which> static DEVICE_METHOD __m256i half(__m512i from) {
        return _mm512_maskz_extracti64x4_epi64(__mmask8(-1), from, which);
    }
    static DEVICE_METHOD __m512 lanes(__m512 from, __m512i places) {
        return _mm512_maskz_permutexvar_ps(__mmask16(-1), places, from);
    }

    // `six_bits` of the rows, two rows a vector.
    static DEVICE_METHOD void unpack(const Block *b, u64 apart, __m512i (&levels)[2]) {
        const __m512i bytes =
            load_quarters(b->scales, b[apart].scales, b[2 * apart].scales, b[3 * apart].scales)
                .part[0];
        const __m512i first = _mm512_shuffle_epi8(
            bytes, four_times(_mm_setr_epi8(0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7, 8, 9, 10, 11)));
        const __m512i upper = _mm512_shuffle_epi8(
            bytes,
            four_times(_mm_setr_epi8(-1, -1, -1, -1, 0, 1, 2, 3, -1, -1, -1, -1, 4, 5, 6, 7)));
        const __m512i shifted = _mm512_maskz_srlv_epi32(__mmask16(-1), first,
                                                        four_times(_mm_setr_epi32(0, 0, 0, 4)));
        const __m512i lower =
            shifted & four_times(_mm_setr_epi32(0x3F3F3F3F, 0x0F0F0F0F, 0x3F3F3F3F, 0x0F0F0F0F));
        const __m512i all = lower | (_mm512_srli_epi16(upper, 2) & _mm512_set1_epi8(0x30));
        levels[0] = _mm512_cvtepu8_epi16(half<0>(all));
        levels[1] = _mm512_cvtepu8_epi16(half<1>(all));
    }

    DEVICE_METHOD void add(const Block *b, u64 apart, const typename Each::Shared &y) {
        __m512i levels[2];
        unpack(b, apart, levels);
        i32 pairs[4]; // d and dmin, neighbors in a block
        for (u32 row = 0; row < 4; ++row)
            memcpy(&pairs[row], &b[row * apart].d, sizeof pairs[row]);
        const __m256 both = _mm256_cvtph_ps(_mm_setr_epi32(pairs[0], pairs[1], pairs[2], pairs[3]));
        const __m512 scales = _mm512_castps256_ps512(both * _mm256_set1_ps(y.d));
        // y's sums at each row's minimums, zeros at its scales.
        const __m512i totals = _mm512_maskz_broadcast_i32x4(0xF0F0, _mm256_castsi256_si128(y.sums));
#pragma GCC unroll 2
        for (u32 two = 0; two < 2; ++two) {
            const i64 first = (4 * two + 1) * 0x100000001, other = first + 0x200000002;
            const __m512i places =
                _mm512_set_epi64(other, other, other, other, first, first, first, first);
            taken[two] += lanes(scales, places) * floats(_mm512_madd_epi16(levels[two], totals));
#pragma GCC unroll 2
            for (u32 one = 0; one < 2; ++one) {
                const u32 row = 2 * two + one;
                const Scales own(one == 0 ? half<0>(levels[two]) : half<1>(levels[two]));
                Wide made = {};
                Each::template terms<1>(&made, Unpacked<Block>(b[row * apart]), own, &y);
                const WideFloats scale = {{lanes(scales, _mm512_set1_epi32(2 * i32(row)))}};
                sums[row] = sums[row] + scale * floats(made);
            }
        }
    }
    DEVICE_METHOD f32 result(u32 row) const {
        __m256 halves[2];
        memcpy(halves, &taken[row / 2], sizeof halves);
        return sum_of(sums[row]) - sum_of(halves[row % 2]);
    }
};

#endif

struct WayOfIQ4_XS : SumsOf256 {
    enum : u32 { BLOCKS = 1, IN_FOURS = NEVER, VECTORS = 1 };
    typedef Side256 Side;
    struct Shared : SharedOf256 {
        DEVICE_METHOD Shared(const Vector<Side> &y, u64 i) : SharedOf256(y, i, 32) {}
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

    DEVICE_METHOD void add(const BlockIQ4_XS *b, const Shared &y) {
        const __m128i halves = scales_of(b);
        const __m256i words = _mm256_cvtepi16_epi32(halves);
        Wide made = {};
        if (SIGN_BIAS != 0)
            made = raised_by(7, _mm256_zextsi128_si256(halves), y.sums);
#pragma GCC unroll 4
        for (u32 k = 0; k < 8; k += 2) {
            const Wide integers =
                looked_up(nibbles_of(b->qs + 16 * k, b->qs + 16 * k + 16),
                          Table<BlockIQ4_NL>::get());
            const Wide dots = dot_signed({}, integers, load_64(y.quants + 32 * k));
            const Wide scales =
                joined(_mm256_permutevar8x32_epi32(words, _mm256_set1_epi32(i32(k))),
                       _mm256_permutevar8x32_epi32(words, _mm256_set1_epi32(i32(k + 1))));
            made = sum(made, product(dots, scales));
        }
        SumsOf256::add(widened(b->d) * y.d, made);
    }
};

#endif

#endif
