// Vectors of 64 bytes, in two registers of AVX2 or one of AVX-512, and dot products of bytes.
// HAS_WIDE: whether the instruction level has these vectors and products.
//
// Bytes of a weight are of two kinds: bytes from 0 to 127, used directly, and signed bytes, to
// which SIGN_BIAS is added for AVX-VNNI's instructions.
#ifndef UBRIDGE_WIDE_H
#define UBRIDGE_WIDE_H

#include "block_words.h"
#include "vectors.h"

#if defined(__AVX512BW__) || defined(__AVX2__)
#define HAS_WIDE 1
#else
#define HAS_WIDE 0
#endif

#if defined(__AVX512VNNI__) || defined(__AVXVNNI__)
enum : i32 { SIGN_BIAS = 128 };
#else
enum : i32 { SIGN_BIAS = 0 };
#endif

#if HAS_WIDE

#if defined(__AVX512BW__)
#define WIDE_512(for_512, for_256) for_512
typedef __m512i Register;
typedef __m512 FloatRegister;
#else
#define WIDE_512(for_512, for_256) for_256
typedef __m256i Register;
typedef __m256 FloatRegister;
#endif
enum : u32 { PARTS = 64 / sizeof(Register) };

struct Wide {
    Register part[PARTS];
};
struct WideFloats {
    FloatRegister part[PARTS];
};

// Evaluates an expression for each register.
#define EACH_PART(type, expression)                                                                \
    type made;                                                                                     \
    for (u32 p = 0; p < PARTS; ++p)                                                                \
        made.part[p] = (expression);                                                               \
    return made

// -- loads ----------------------------------------------------------------------------------------

DEVICE_FUNCTION __m128i load_16(const void *from)
{
    return _mm_loadu_si128(static_cast<const __m128i *>(from));
}
DEVICE_FUNCTION __m256i load_32(const void *from)
{
    return _mm256_loadu_si256(static_cast<const __m256i *>(from));
}
// One register at a time: GCC would copy an array of registers through memory.
DEVICE_FUNCTION Register load_register(const void *from)
{
    return WIDE_512(_mm512_loadu_si512, _mm256_loadu_si256)(static_cast<const Register *>(from));
}
DEVICE_FUNCTION FloatRegister load_floats(const f32 *from)
{
    return WIDE_512(_mm512_loadu_ps, _mm256_loadu_ps)(from);
}
DEVICE_FUNCTION Wide load_64(const void *from)
{
    EACH_PART(Wide, load_register(static_cast<const Register *>(from) + p));
}

DEVICE_FUNCTION Wide joined(__m256i low, __m256i high)
{
#if defined(__AVX512BW__)
    return {{_mm512_maskz_inserti64x4(__mmask8(-1), _mm512_castsi256_si512(low), high, 1)}};
#else
    return {{low, high}};
#endif
}

// 32 bytes from each of two places.
DEVICE_FUNCTION Wide load_halves(const void *low, const void *high)
{
    return joined(load_32(low), load_32(high));
}

// 16 bytes from each of four places.
DEVICE_FUNCTION Wide load_quarters(const void *a, const void *b, const void *c, const void *d)
{
    return joined(_mm256_inserti128_si256(_mm256_castsi128_si256(load_16(a)), load_16(b), 1),
                  _mm256_inserti128_si256(_mm256_castsi128_si256(load_16(c)), load_16(d), 1));
}

DEVICE_FUNCTION void store_halves(void *low, void *high, Wide from)
{
#if defined(__AVX512BW__)
    _mm512_mask_storeu_epi64(low, 0x0F, from.part[0]);
    _mm512_mask_storeu_epi64(static_cast<u8 *>(high) - 32, 0xF0, from.part[0]);
#else
    _mm256_storeu_si256(static_cast<__m256i *>(low), from.part[0]);
    _mm256_storeu_si256(static_cast<__m256i *>(high), from.part[1]);
#endif
}

// In each 16 bytes, `first` gets the first 8 bytes of both operands, `second` the other 8 bytes.
DEVICE_FUNCTION void interleave(Wide &first, Wide &second)
{
    for (u32 p = 0; p < PARTS; ++p) {
        const Register a = first.part[p], b = second.part[p];
#if defined(__AVX512BW__)
        first.part[p] = _mm512_maskz_unpacklo_epi64(__mmask8(-1), a, b);
        second.part[p] = _mm512_maskz_unpackhi_epi64(__mmask8(-1), a, b);
#else
        first.part[p] = _mm256_unpacklo_epi64(a, b);
        second.part[p] = _mm256_unpackhi_epi64(a, b);
#endif
    }
}

DEVICE_FUNCTION Wide twice(__m256i half) { return joined(half, half); }

// A byte, or a word, everywhere.
DEVICE_FUNCTION Wide bytes_of(i32 value)
{
    EACH_PART(Wide, WIDE_512(_mm512_set1_epi8, _mm256_set1_epi8)(char(value)));
}
DEVICE_FUNCTION Register everywhere(i32 word)
{
    return WIDE_512(_mm512_set1_epi32, _mm256_set1_epi32)(word);
}
DEVICE_FUNCTION Wide words_of(i32 value) { EACH_PART(Wide, everywhere(value)); }

// Hides how a value was made. GCC would multiply scalars instead and copy each product to all lanes.
template <class Value> DEVICE_FUNCTION void hide(Value &value) { asm("" : "+v"(value)); }

// -- bits -----------------------------------------------------------------------------------------

DEVICE_FUNCTION Wide operator&(Wide a, Wide b) { EACH_PART(Wide, Register(a.part[p] & b.part[p])); }
DEVICE_FUNCTION Wide operator|(Wide a, Wide b) { EACH_PART(Wide, Register(a.part[p] | b.part[p])); }
DEVICE_FUNCTION Wide operator^(Wide a, Wide b) { EACH_PART(Wide, Register(a.part[p] ^ b.part[p])); }

// Shifts the first 32 bytes right by `low` bits (negative: left) and the others by `high`. Bits may
// move from a byte to its neighbor; the caller masks these bits.
template <i32 low, i32 high> DEVICE_FUNCTION Wide shifted(Wide from)
{
#if defined(__AVX512BW__)
    constexpr i64 LOW = (low & 31) * 0x100000001, HIGH = (high & 31) * 0x100000001;
    const __m512i by = _mm512_set_epi64(HIGH, HIGH, HIGH, HIGH, LOW, LOW, LOW, LOW);
    return {{_mm512_maskz_rorv_epi32(__mmask16(-1), from.part[0], by)}};
#else
    const auto one = [](__m256i x, i32 bits) __attribute__((always_inline)) {
        return bits >= 0 ? _mm256_srli_epi16(x, bits) : _mm256_slli_epi16(x, -bits);
    };
    return {{one(from.part[0], low), one(from.part[1], high)}};
#endif
}

// The 32 nibbles of the 16 bytes at `low`, then of the 16 bytes at `high`. Low nibbles come first
// in each half.
DEVICE_FUNCTION Wide nibbles_of(const void *low, const void *high)
{
    const __m128i a = load_16(low), b = load_16(high);
#if defined(__AVX512BW__)
    const __m256i both = _mm256_inserti128_si256(_mm256_castsi128_si256(a), b, 1);
    const __m512i each = _mm512_maskz_permutexvar_epi64(
        __mmask8(-1), _mm512_set_epi64(3, 2, 3, 2, 1, 0, 1, 0), _mm512_castsi256_si512(both));
    const __m512i moved =
        _mm512_maskz_srlv_epi64(__mmask8(-1), each, _mm512_set_epi64(4, 4, 0, 0, 4, 4, 0, 0));
    return Wide{{moved}} & bytes_of(15);
#else
    const __m256i shifts = _mm256_set_epi64x(4, 4, 0, 0);
    const Wide moved = {{_mm256_srlv_epi64(_mm256_broadcastsi128_si256(a), shifts),
                         _mm256_srlv_epi64(_mm256_broadcastsi128_si256(b), shifts)}};
    return moved & bytes_of(15);
#endif
}

// `value` in each byte whose bit is set, in `low` for the first 32 bytes and `high` for the
// others; else 0.
DEVICE_FUNCTION Wide where_bits(u32 low, u32 high, i32 value)
{
#if defined(__AVX512BW__)
    return {{_mm512_maskz_set1_epi8(u64(high) << 32 | low, char(value))}};
#else
    const __m256i bytes = _mm256_set_epi64x(0x0303030303030303, 0x0202020202020202,
                                            0x0101010101010101, 0);
    const __m256i bit = _mm256_set1_epi64x(i64(0x8040201008040201));
    const auto spread = [&](u32 bits) {
        const __m256i each = _mm256_shuffle_epi8(_mm256_set1_epi32(i32(bits)), bytes) & bit;
        return _mm256_cmpeq_epi8(each, bit) & _mm256_set1_epi8(char(value));
    };
    return {{spread(low), spread(high)}};
#endif
}

// Codes below 16 become entries of a table.
DEVICE_FUNCTION Wide looked_up(Wide codes, __m128i table)
{
#if defined(__AVX512BW__)
    const __m512i tables = _mm512_maskz_broadcast_i32x4(__mmask16(-1), table);
    return {{_mm512_shuffle_epi8(tables, codes.part[0])}};
#else
    EACH_PART(Wide, _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), codes.part[p]));
#endif
}

// -- sums of words --------------------------------------------------------------------------------

DEVICE_FUNCTION Wide sum(Wide a, Wide b)
{
    EACH_PART(Wide, WIDE_512(_mm512_add_epi32, _mm256_add_epi32)(a.part[p], b.part[p]));
}
DEVICE_FUNCTION Wide product(Wide a, Wide b)
{
    EACH_PART(Wide, WIDE_512(_mm512_mullo_epi32, _mm256_mullo_epi32)(a.part[p], b.part[p]));
}
DEVICE_FUNCTION Wide negated(Wide a)
{
    EACH_PART(Wide, WIDE_512(_mm512_sub_epi32, _mm256_sub_epi32)(Register{}, a.part[p]));
}

// The sum of the registers.
DEVICE_FUNCTION Register parts_added(Wide a)
{
#if defined(__AVX512BW__)
    return a.part[0];
#else
    return _mm256_add_epi32(a.part[0], a.part[1]);
#endif
}

// Words of 8 values, in the first lanes.
DEVICE_FUNCTION Wide in_front(__m256i words) { return joined(words, __m256i{}); }

// Sums of two neighboring products, as half words: bytes from 0 to 127 times signed bytes.
DEVICE_FUNCTION Register pairs(Register bytes, Register x)
{
    return WIDE_512(_mm512_maddubs_epi16, _mm256_maddubs_epi16)(bytes, x);
}

DEVICE_FUNCTION Register sum_of_halves(Register a, Register b)
{
    return WIDE_512(_mm512_add_epi16, _mm256_add_epi16)(a, b);
}

// sums + neighboring products of half words
DEVICE_FUNCTION Register add_pairs(Register sums, Register a, Register b)
{
#if defined(__AVX512VNNI__)
    return _mm512_dpwssd_epi32(sums, a, b);
#elif defined(__AVXVNNI__)
    return _mm256_dpwssd_avx_epi32(sums, a, b);
#else
    return WIDE_512(_mm512_add_epi32(sums, _mm512_madd_epi16(a, b)),
                    _mm256_add_epi32(sums, _mm256_madd_epi16(a, b)));
#endif
}

// Adds products of four bytes to each sum: `bytes` are 0 to 127 (255 with SIGN_BIAS), `x` is signed.
DEVICE_FUNCTION Register dot(Register sums, Register bytes, Register x)
{
#if defined(__AVX512VNNI__)
    return _mm512_dpbusd_epi32(sums, bytes, x);
#elif defined(__AVXVNNI__)
    return _mm256_dpbusd_avx_epi32(sums, bytes, x);
#else
    return add_pairs(sums, pairs(bytes, x),
                     WIDE_512(_mm512_set1_epi16, _mm256_set1_epi16)(1));
#endif
}

// The same for signed bytes, to which SIGN_BIAS is added if it is defined. x has no -128.
DEVICE_FUNCTION Register dot_signed(Register sums, Register bytes, Register x)
{
#if defined(__AVX512VNNI__) || defined(__AVXVNNI__)
    return dot(sums, bytes, x);
#elif defined(__AVX512BW__)
    const __m512i negated =
        _mm512_mask_sub_epi8(x, _mm512_movepi8_mask(bytes), __m512i{}, x);
    return dot(sums, _mm512_abs_epi8(bytes), negated);
#else
    return dot(sums, _mm256_abs_epi8(bytes), _mm256_sign_epi8(x, bytes));
#endif
}

DEVICE_FUNCTION Wide pairs(Wide bytes, Wide x)
{
    EACH_PART(Wide, pairs(bytes.part[p], x.part[p]));
}
DEVICE_FUNCTION Wide add_pairs(Wide sums, Wide a, Wide b)
{
    EACH_PART(Wide, add_pairs(sums.part[p], a.part[p], b.part[p]));
}
DEVICE_FUNCTION Wide dot(Wide sums, Wide bytes, Wide x)
{
    EACH_PART(Wide, dot(sums.part[p], bytes.part[p], x.part[p]));
}
DEVICE_FUNCTION Wide dot_signed(Wide sums, Wide bytes, Wide x)
{
    EACH_PART(Wide, dot_signed(sums.part[p], bytes.part[p], x.part[p]));
}

// -- floats ---------------------------------------------------------------------------------------

DEVICE_FUNCTION FloatRegister floats(Register words)
{
    return WIDE_512(_mm512_maskz_cvtepi32_ps(__mmask16(-1), words), _mm256_cvtepi32_ps(words));
}
DEVICE_FUNCTION FloatRegister everywhere(f32 value)
{
    return WIDE_512(_mm512_set1_ps, _mm256_set1_ps)(value);
}
DEVICE_FUNCTION WideFloats floats(Wide words) { EACH_PART(WideFloats, floats(words.part[p])); }
DEVICE_FUNCTION WideFloats operator*(WideFloats a, WideFloats b)
{
    EACH_PART(WideFloats, a.part[p] * b.part[p]);
}
DEVICE_FUNCTION WideFloats operator+(WideFloats a, WideFloats b)
{
    EACH_PART(WideFloats, a.part[p] + b.part[p]);
}
DEVICE_FUNCTION WideFloats operator-(WideFloats a, WideFloats b)
{
    EACH_PART(WideFloats, a.part[p] - b.part[p]);
}

// The first value in the first eight lanes, the second in the others.
DEVICE_FUNCTION WideFloats float_halves(f32 low, f32 high)
{
#if defined(__AVX512BW__)
    return {{_mm512_mask_broadcastss_ps(_mm512_set1_ps(low), 0xFF00, _mm_set_ss(high))}};
#else
    return {{_mm256_set1_ps(low), _mm256_set1_ps(high)}};
#endif
}

// The same for f16 values.
DEVICE_FUNCTION WideFloats half_floats(const f16 &low, const f16 &high)
{
    const __m128i a = _mm_loadu_si16(&low), b = _mm_loadu_si16(&high);
#if defined(__AVX512BW__)
    const __m256i both = _mm256_mask_broadcastw_epi16(_mm256_broadcastw_epi16(a), 0xFF00, b);
    return {{_mm512_maskz_cvtph_ps(__mmask16(-1), both)}};
#else
    return {{_mm256_cvtph_ps(_mm_broadcastw_epi16(a)), _mm256_cvtph_ps(_mm_broadcastw_epi16(b))}};
#endif
}

// Four values, each in a quarter of the lanes.
DEVICE_FUNCTION WideFloats quarters(__m128 values)
{
#if defined(__AVX512BW__)
    const __m512i places = _mm512_set_epi32(3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0);
    return {{_mm512_maskz_permutexvar_ps(__mmask16(-1), places, _mm512_castps128_ps512(values))}};
#else
    const __m256 both = _mm256_broadcast_ps(&values);
    return {{_mm256_permutevar_ps(both, _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1)),
             _mm256_permutevar_ps(both, _mm256_setr_epi32(2, 2, 2, 2, 3, 3, 3, 3))}};
#endif
}

// Four f16 as floats.
DEVICE_FUNCTION __m128 half_floats(const f16 &a, const f16 &b, const f16 &c, const f16 &d)
{
    u16 bits[3];
    memcpy(&bits[0], &b, sizeof b);
    memcpy(&bits[1], &c, sizeof c);
    memcpy(&bits[2], &d, sizeof d);
    __m128i halves = _mm_loadu_si16(&a);
    halves = _mm_insert_epi16(halves, bits[0], 1);
    halves = _mm_insert_epi16(halves, bits[1], 2);
    return _mm_cvtph_ps(_mm_insert_epi16(halves, bits[2], 3));
}

DEVICE_FUNCTION f32 sum_of(__m128 lanes)
{
    const __m128 two = lanes + _mm_movehl_ps(lanes, lanes);
    return two[0] + two[1];
}
DEVICE_FUNCTION f32 sum_of(__m256 lanes)
{
    return sum_of(_mm256_castps256_ps128(lanes) + _mm256_extractf128_ps(lanes, 1));
}
DEVICE_FUNCTION f32 sum_of(WideFloats lanes)
{
    __m256 halves[2];
    memcpy(halves, &lanes, sizeof halves);
    return sum_of(halves[0] + halves[1]);
}
#if defined(__AVX512BW__)
DEVICE_FUNCTION f32 sum_of(__m512 lanes) { return sum_of(WideFloats{{lanes}}); }
#endif

// -- scales of the parts of a block ---------------------------------------------------------------

// Sixteen half words.
struct Scales {
#if defined(__AVX512BW__)
    __m512i all;
    DEVICE_METHOD explicit Scales(__m256i halves) : all(_mm512_castsi256_si512(halves)) {}
#else
    __m256i low, high;
    DEVICE_METHOD explicit Scales(__m256i halves)
        : low(_mm256_permute4x64_epi64(halves, 0x44)), high(_mm256_permute4x64_epi64(halves, 0xEE))
    {
    }
#endif

    // Eight of them; each fills eight bytes of a vector: as four half words, or in `words` as two
    // words without a sign.
    template <bool words, u32 a, u32 b, u32 c, u32 d, u32 e, u32 f, u32 g, u32 h>
    DEVICE_METHOD Wide spread() const
    {
#if defined(__AVX512BW__)
        constexpr i64 EACH = 0x0001000100010001;
        const __m512i which = _mm512_set_epi64(h * EACH, g * EACH, f * EACH, e * EACH, d * EACH,
                                               c * EACH, b * EACH, a * EACH);
        return {{_mm512_maskz_permutexvar_epi16(words ? 0x55555555 : 0xFFFFFFFF, which, all)}};
#else
        return {{four<words, a, b, c, d>(), four<words, e, f, g, h>()}};
#endif
    }

#if !defined(__AVX512BW__)
    template <bool words, u32 a, u32 b, u32 c, u32 d> DEVICE_METHOD __m256i four() const
    {
        static_assert(a / 8 == b / 8 && a / 8 == c / 8 && a / 8 == d / 8, "of one half");
        constexpr i64 EACH = 0x0202020202020202;
        constexpr i64 BYTES = words ? i64(0x8080010080800100) : 0x0100010001000100;
        return _mm256_shuffle_epi8(a < 8 ? low : high,
                                   _mm256_set_epi64x(d % 8 * EACH + BYTES, c % 8 * EACH + BYTES,
                                                     b % 8 * EACH + BYTES, a % 8 * EACH + BYTES));
    }
#endif
};

#endif

#endif
