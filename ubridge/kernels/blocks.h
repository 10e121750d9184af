// Blocks of quantized weights in ggml's layout, and their elements.
//
// A block holds ELEMENTS small integers and their scales. Each struct is one format: its bytes, and
// two functions that give its elements:
//
//     element e = level(e).scale * (byte e % 4 of packed(e - e % 4) - OFFSET) - level(e).minimum
//
// `packed` gives four neighbors as the bytes of a word, with a sign, ready for an integer product.
// Where WIDE is set, `packed` also gives sixteen elements as four words, from a multiple of 16 on.
// SPAN elements share a level; MINIMUM tells if levels have a minimum. Multiplying scales,
// integers and minimums is exact in f32 in every format. So only the subtraction rounds, with or
// without a fused multiplication, and the bits are the same everywhere.
//
// The layouts come from ggml's files (llama.cpp, ggml-common.h). codebook_blocks.h has the formats
// that choose from codebooks. ubridge/core/block_formats.py has a row for each format.
#ifndef UBRIDGE_BLOCKS_H
#define UBRIDGE_BLOCKS_H

#include "block_words.h"

// -- blocks of 32, one scale ----------------------------------------------------------------------

// 16 bytes hold 32 elements: the first half in their low bits, the second in their high ones.
template <u32 alignment, class Word> DEVICE_FUNCTION Word halves(const u8 *bytes, u32 e)
{
    return load<alignment, Word>(bytes + e % 16) >> 4 * (e / 16) & 0x0F0F0F0F;
}

struct BlockQ4_0 {
    enum : u32 { ELEMENTS = 32, SPAN = 32, OFFSET = 8, MINIMUM = 0, WIDE = 1 };
    f16 d;
    u8 qs[16];
    template <class Word> DEVICE_METHOD Word packed(u32 e) const { return halves<2, Word>(qs, e); }
    DEVICE_METHOD Level level(u32) const { return {f32(d), 0}; }
};

struct BlockQ4_1 {
    enum : u32 { ELEMENTS = 32, SPAN = 32, OFFSET = 0, MINIMUM = 1, WIDE = 1 };
    f16 d, m;
    u8 qs[16];
    template <class Word> DEVICE_METHOD Word packed(u32 e) const { return halves<2, Word>(qs, e); }
    DEVICE_METHOD Level level(u32) const { return {f32(d), -f32(m)}; }
};

struct BlockQ5_0 {
    enum : u32 { ELEMENTS = 32, SPAN = 32, OFFSET = 16, MINIMUM = 0, WIDE = 1 };
    f16 d;
    u8 qh[4], qs[16];
    template <class Word> DEVICE_METHOD Word packed(u32 e) const
    {
        return halves<2, Word>(qs, e) | spread<Word>(load<2, u32>(qh) >> e) << 4;
    }
    DEVICE_METHOD Level level(u32) const { return {f32(d), 0}; }
};

struct BlockQ5_1 {
    enum : u32 { ELEMENTS = 32, SPAN = 32, OFFSET = 0, MINIMUM = 1, WIDE = 1 };
    f16 d, m;
    u8 qh[4], qs[16];
    template <class Word> DEVICE_METHOD Word packed(u32 e) const
    {
        return halves<2, Word>(qs, e) | spread<Word>(load<2, u32>(qh) >> e) << 4;
    }
    DEVICE_METHOD Level level(u32) const { return {f32(d), -f32(m)}; }
};

struct BlockQ8_0 {
    enum : u32 { ELEMENTS = 32, SPAN = 32, OFFSET = 0, MINIMUM = 0, WIDE = 1 };
    f16 d;
    u8 qs[32];
    template <class Word> DEVICE_METHOD Word packed(u32 e) const { return load<2, Word>(qs + e); }
    DEVICE_METHOD Level level(u32) const { return {f32(d), 0}; }
};

// A block of activations: `s` is the sum of the original numbers, or on ggml's CPU of the quantized
// numbers.
struct alignas(4) BlockQ8_1 {
    enum : u32 { ELEMENTS = 32, SPAN = 32, OFFSET = 0, MINIMUM = 0, WIDE = 1 };
    f16 d, s;
    u8 qs[32];
    template <class Word> DEVICE_METHOD Word packed(u32 e) const { return load<4, Word>(qs + e); }
    DEVICE_METHOD Level level(u32) const { return {f32(d), 0}; }
};

struct BlockIQ4_NL {
    enum : u32 { ELEMENTS = 32, SPAN = 32, OFFSET = 0, MINIMUM = 0, WIDE = 1 };
    f16 d;
    u8 qs[16];
    // -127 -104 -83 -65 -49 -35 -22 -10 1 13 25 38 53 69 89 113
    template <class Word> static DEVICE_METHOD Word values(Word codes)
    {
        return looked_up(codes, 0xF6EADDCFBFAD9881, 0x7159453526190D01);
    }
    template <class Word> DEVICE_METHOD Word packed(u32 e) const
    {
        return values(halves<2, Word>(qs, e));
    }
    DEVICE_METHOD Level level(u32) const { return {f32(d), 0}; }
};

// Twice the values of E2M1: 0 1 2 3 4 6 8 12, and their negatives.
template <class Word> DEVICE_FUNCTION Word doubled_e2m1(Word codes)
{
    return looked_up(codes, 0x0C08060403020100, 0xF4F8FAFCFDFEFF00);
}

// Open Compute Project, Microscaling Formats 1.0: a power of two, and elements of E2M1.
struct BlockMXFP4 {
    enum : u32 { ELEMENTS = 32, SPAN = 32, OFFSET = 0, MINIMUM = 0, WIDE = 1 };
    u8 x, qs[16];
    template <class Word> DEVICE_METHOD Word packed(u32 e) const
    {
        return doubled_e2m1(halves<1, Word>(qs, e));
    }
    // Half of the scale 2^(x - 127), because the integers are doubled.
    DEVICE_METHOD Level level(u32) const
    {
        return {f32_of_bits(x < 2 ? 0x00200000u << x : u32(x - 1) << 23), 0};
    }
};

// 64 elements of E2M1; each 16 share a scale of E4M3 without its sign.
struct BlockNVFP4 {
    enum : u32 { ELEMENTS = 64, SPAN = 16, OFFSET = 0, MINIMUM = 0, WIDE = 0 };
    u8 d[4], qs[32];
    template <class Word> DEVICE_METHOD Word packed(u32 e) const
    {
        const u32 codes = load<1, u32>(qs + e / 16 * 8 + e % 8) >> 4 * (e % 16 / 8);
        return doubled_e2m1(codes & 0x0F0F0F0F);
    }
    DEVICE_METHOD Level level(u32 e) const
    {
        const u32 code = d[e / 16], exponent = code >> 3 & 15, fraction = code & 7;
        // Half of the scale, because the integers are doubled.
        const f32 normal = f32_of_bits((exponent + 119) << 23 | fraction << 20);
        const f32 scale = exponent == 0 ? f32(fraction) * 0.0009765625f : normal;
        return {code == 0x7F ? 0 : scale, 0};
    }
};

// -- blocks of 256, scales of 16 or 32 elements ---------------------------------------------------

struct alignas(4) BlockQ2_K {
    enum : u32 { ELEMENTS = 256, SPAN = 16, OFFSET = 0, MINIMUM = 1, WIDE = 1 };
    u8 scales[16], qs[64];
    f16 d, dmin;
    template <class Word> DEVICE_METHOD Word packed(u32 e) const
    {
        return load<4, Word>(qs + 32 * (e / 128) + e % 32) >> 2 * (e % 128 / 32) & 0x03030303;
    }
    DEVICE_METHOD Level level(u32 e) const
    {
        const u32 both = scales[e / 16];
        return {f32(d) * f32(both & 15), f32(dmin) * f32(both >> 4)};
    }
};

struct BlockQ3_K {
    enum : u32 { ELEMENTS = 256, SPAN = 16, OFFSET = 4, MINIMUM = 0, WIDE = 1 };
    u8 hmask[32], qs[64], scales[12];
    f16 d;
    template <class Word> DEVICE_METHOD Word packed(u32 e) const
    {
        const Word word = load<2, Word>(qs + 32 * (e / 128) + e % 32);
        const Word low = word >> 2 * (e % 128 / 32) & 0x03030303;
        return low | (load<2, Word>(hmask + e % 32) >> e / 32 & 0x01010101) << 2;
    }
    DEVICE_METHOD Level level(u32 e) const
    {
        const u32 k = e / 16;
        const u32 low = scales[k % 8] >> 4 * (k / 8) & 15;
        const u32 high = scales[8 + k % 4] >> 2 * (k / 4) & 3;
        return {f32(d) * f32(i32(low | high << 4) - 32), 0};
    }
};

// 8 scales and 8 minimums of 6 bits each. Bytes 0 to 7 hold the first four pairs and the upper
// bits of the last four. Bytes 8 to 11 hold the lower bits of the last four.
DEVICE_FUNCTION Level level_of_six_bits(const u8 *scales, f32 d, f32 dmin, u32 k)
{
    const u32 lower = scales[8 + k % 4];
    const u32 first = scales[k % 4], second = scales[4 + k % 4];
    const u32 scale = k < 4 ? first & 63 : (lower & 15) | first >> 6 << 4;
    const u32 minimum = k < 4 ? second & 63 : lower >> 4 | second >> 6 << 4;
    return {d * f32(scale), dmin * f32(minimum)};
}

struct alignas(4) BlockQ4_K {
    enum : u32 { ELEMENTS = 256, SPAN = 32, OFFSET = 0, MINIMUM = 1, WIDE = 1 };
    f16 d, dmin;
    u8 scales[12], qs[128];
    template <class Word> DEVICE_METHOD Word packed(u32 e) const
    {
        return load<4, Word>(qs + 32 * (e / 64) + e % 32) >> 4 * (e % 64 / 32) & 0x0F0F0F0F;
    }
    DEVICE_METHOD Level level(u32 e) const
    {
        return level_of_six_bits(scales, f32(d), f32(dmin), e / 32);
    }
};

struct alignas(4) BlockQ5_K {
    enum : u32 { ELEMENTS = 256, SPAN = 32, OFFSET = 0, MINIMUM = 1, WIDE = 1 };
    f16 d, dmin;
    u8 scales[12], qh[32], qs[128];
    template <class Word> DEVICE_METHOD Word packed(u32 e) const
    {
        const Word word = load<4, Word>(qs + 32 * (e / 64) + e % 32);
        const Word low = word >> 4 * (e % 64 / 32) & 0x0F0F0F0F;
        return low | (load<4, Word>(qh + e % 32) >> e / 32 & 0x01010101) << 4;
    }
    DEVICE_METHOD Level level(u32 e) const
    {
        return level_of_six_bits(scales, f32(d), f32(dmin), e / 32);
    }
};

struct BlockQ6_K {
    enum : u32 { ELEMENTS = 256, SPAN = 16, OFFSET = 32, MINIMUM = 0, WIDE = 1 };
    u8 ql[128], qh[64];
    i8 scales[16];
    f16 d;
    template <class Word> DEVICE_METHOD Word packed(u32 e) const
    {
        const u32 half = e / 128, t = e % 128;
        const Word low = load<2, Word>(ql + 64 * half + t % 64) >> 4 * (t / 64) & 0x0F0F0F0F;
        const Word high = load<2, Word>(qh + 32 * half + t % 32) >> 2 * (t / 32) & 0x03030303;
        return low | high << 4;
    }
    DEVICE_METHOD Level level(u32 e) const { return {f32(d) * f32(scales[e / 16]), 0}; }
};

// A block of activations, with the sums of 16 elements each.
struct BlockQ8_K {
    enum : u32 { ELEMENTS = 256, SPAN = 32, OFFSET = 0, MINIMUM = 0, WIDE = 1 };
    f32 d;
    u8 qs[256];
    i16 sums[16];
    template <class Word> DEVICE_METHOD Word packed(u32 e) const { return load<4, Word>(qs + e); }
    DEVICE_METHOD Level level(u32) const { return {d, 0}; }
};

struct BlockIQ4_XS {
    enum : u32 { ELEMENTS = 256, SPAN = 32, OFFSET = 0, MINIMUM = 0, WIDE = 1 };
    f16 d;
    u16 scales_h;
    u8 scales_l[4], qs[128];
    template <class Word> DEVICE_METHOD Word packed(u32 e) const
    {
        return BlockIQ4_NL::values(halves<2, Word>(qs + 16 * (e / 32), e % 32));
    }
    DEVICE_METHOD Level level(u32 e) const
    {
        const u32 k = e / 32;
        const u32 low = scales_l[k / 2] >> 4 * (k % 2) & 15;
        return {f32(d) * f32(i32(low | (scales_h >> 2 * k & 3) << 4) - 32), 0};
    }
};

// -- three values an element ----------------------------------------------------------------------

// Five elements share a byte, which is a fraction of 256 in base 3: 3^n times the byte gives the
// n-th digit.
struct BlockTQ1_0 {
    enum : u32 { ELEMENTS = 256, SPAN = 256, OFFSET = 1, MINIMUM = 0, WIDE = 0 };
    u8 qs[48], qh[4];
    f16 d;
    template <class Word> DEVICE_METHOD Word packed(u32 e) const
    {
        const u32 rest = e - (e < 160 ? 0 : e < 240 ? 160 : 240);
        const u32 width = e < 160 ? 32 : e < 240 ? 16 : 4;
        const u32 first = (e < 160 ? 0 : e < 240 ? 32 : 48) + rest % width;
        u32 power = 1;
        for (u32 n = rest / width; n > 0; --n)
            power *= 3;
        u32 digits = 0;
        for (u32 i = 0; i < 4; ++i) {
            const u32 byte = first + i < 48 ? qs[first + i] : qh[first + i - 48];
            digits |= ((byte * power & 255) * 3 >> 8) << 8 * i;
        }
        return digits;
    }
    DEVICE_METHOD Level level(u32) const { return {f32(d), 0}; }
};

struct BlockTQ2_0 {
    enum : u32 { ELEMENTS = 256, SPAN = 256, OFFSET = 1, MINIMUM = 0, WIDE = 1 };
    u8 qs[64];
    f16 d;
    template <class Word> DEVICE_METHOD Word packed(u32 e) const
    {
        return load<2, Word>(qs + 32 * (e / 128) + e % 32) >> 2 * (e % 128 / 32) & 0x03030303;
    }
    DEVICE_METHOD Level level(u32) const { return {f32(d), 0}; }
};

// -- the list -------------------------------------------------------------------------------------

// The formats of Candle's module `quantized`: ROW(name, block).
#define FORMATS_OF_CANDLE(ROW)                                                                     \
    ROW(q4_0, BlockQ4_0)                                                                           \
    ROW(q4_1, BlockQ4_1)                                                                           \
    ROW(q5_0, BlockQ5_0)                                                                           \
    ROW(q5_1, BlockQ5_1)                                                                           \
    ROW(q8_0, BlockQ8_0)                                                                           \
    ROW(q2_K, BlockQ2_K)                                                                           \
    ROW(q3_K, BlockQ3_K)                                                                           \
    ROW(q4_K, BlockQ4_K)                                                                           \
    ROW(q5_K, BlockQ5_K)                                                                           \
    ROW(q6_K, BlockQ6_K)

#endif
