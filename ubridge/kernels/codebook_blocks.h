// Blocks whose elements are chosen from codebooks; blocks.h defines blocks.
#ifndef UBRIDGE_CODEBOOK_BLOCKS_H
#define UBRIDGE_CODEBOOK_BLOCKS_H

#include "blocks.h"
#include "codebook_iq1.h"
#include "codebooks.h"

// Codes of 2 bits, and of 3, become bytes.
DEVICE_FUNCTION u32 pairs_to_bytes(u32 codes)
{
    const u32 apart = (codes | codes << 12) & 0x000F000F;
    return (apart | apart << 6) & 0x03030303;
}

DEVICE_FUNCTION u32 triples_to_bytes(u32 codes)
{
    return (codes & 7) | (codes & 070) << 5 | (codes & 0700) << 10 | (codes & 07000) << 15;
}

// Negates byte i, which is not 0, if bit i of `bits` is set.
DEVICE_FUNCTION u32 negated(u32 bytes, u32 bits)
{
    const u32 ones = bits_to_bytes(bits);
    return (bytes ^ ones * 255) + ones;
}

// 7 signs, and an eighth that makes the number of set signs even.
DEVICE_FUNCTION u32 with_parity(u32 signs)
{
    u32 parity = signs ^ signs >> 4;
    parity ^= parity >> 2;
    return signs | ((parity ^ parity >> 1) & 1) << 7;
}

// Magnitudes 8, 25 and 43: elements `e` to `e + 3` of an entry of 8 codes.
DEVICE_FUNCTION u32 magnitudes_of_2(u32 entry, u32 e)
{
    const u32 codes = pairs_to_bytes(entry >> 2 * (e % 8) & 255);
    return codes * 17 + (codes >> 1 & 0x01010101) + 0x08080808;
}

struct BlockIQ2_XXS {
    enum : u32 { ELEMENTS = 256, SPAN = 32, OFFSET = 0, MINIMUM = 0, WIDE = 0 };
    f16 d;
    u8 qs[64]; /* of 32 elements: four indices, then 28 bits of signs and 4 of a scale */
    template <class Word> DEVICE_METHOD Word packed(u32 e) const
    {
        const u8 *const group = qs + 8 * (e / 32);
        const u32 of_eight = e % 32 / 8;
        const u32 signs = with_parity(load<2, u32>(group + 4) >> 7 * of_eight & 127);
        return negated(magnitudes_of_2(IQ2_XXS_CODES[group[of_eight]], e), signs >> e % 8);
    }
    DEVICE_METHOD Level level(u32 e) const
    {
        return {f32(d) * (0.5f + f32(qs[8 * (e / 32) + 7] >> 4)) * 0.25f, 0};
    }
};

// A scale of 4 bits for 16 elements.
DEVICE_FUNCTION f32 scale_of_2(f32 d, const u8 *scales, u32 e)
{
    return d * (0.5f + f32(scales[e / 32] >> 4 * (e % 32 / 16) & 15)) * 0.25f;
}

struct BlockIQ2_XS {
    enum : u32 { ELEMENTS = 256, SPAN = 16, OFFSET = 0, MINIMUM = 0, WIDE = 0 };
    f16 d;
    u16 qs[32]; /* 9 bits of an index, 7 of signs */
    u8 scales[8];
    template <class Word> DEVICE_METHOD Word packed(u32 e) const
    {
        const u32 both = qs[e / 8];
        const u32 signs = with_parity(both >> 9);
        return negated(magnitudes_of_2(IQ2_XS_CODES[both & 511], e), signs >> e % 8);
    }
    DEVICE_METHOD Level level(u32 e) const { return {scale_of_2(f32(d), scales, e), 0}; }
};

struct BlockIQ2_S {
    enum : u32 { ELEMENTS = 256, SPAN = 16, OFFSET = 0, MINIMUM = 0, WIDE = 0 };
    f16 d;
    u8 qs[32], signs[32], qh[8], scales[8];
    template <class Word> DEVICE_METHOD Word packed(u32 e) const
    {
        const u32 index = qs[e / 8] | (qh[e / 32] >> 2 * (e % 32 / 8) & 3) << 8;
        return negated(magnitudes_of_2(IQ2_S_CODES[index], e), u32(signs[e / 8]) >> e % 8);
    }
    DEVICE_METHOD Level level(u32 e) const { return {scale_of_2(f32(d), scales, e), 0}; }
};

struct BlockIQ3_XXS {
    enum : u32 { ELEMENTS = 256, SPAN = 32, OFFSET = 0, MINIMUM = 0, WIDE = 0 };
    f16 d;
    u8 qs[64], rest[32]; /* of 32 elements: 28 bits of signs and 4 of a scale */
    template <class Word> DEVICE_METHOD Word packed(u32 e) const
    {
        // Magnitudes 4, 12, … 52, and 62.
        const u32 codes = triples_to_bytes(IQ3_XXS_CODES[qs[e / 4]]);
        const u32 largest = codes & codes >> 1 & codes >> 2 & 0x01010101;
        const u32 signs = with_parity(load<2, u32>(rest + 4 * (e / 32)) >> 7 * (e % 32 / 8) & 127);
        return negated(codes * 8 + largest * 2 + 0x04040404, signs >> e % 8);
    }
    DEVICE_METHOD Level level(u32 e) const
    {
        return {f32(d) * (0.5f + f32(rest[4 * (e / 32) + 3] >> 4)) * 0.5f, 0};
    }
};

struct BlockIQ3_S {
    enum : u32 { ELEMENTS = 256, SPAN = 32, OFFSET = 0, MINIMUM = 0, WIDE = 0 };
    f16 d;
    u8 qs[64], qh[8], signs[32], scales[4];
    template <class Word> DEVICE_METHOD Word packed(u32 e) const
    {
        // Magnitudes 1, 3, … 15.
        const u32 index = qs[e / 4] | (qh[e / 32] >> e % 32 / 4 & 1) << 8;
        const u32 codes = triples_to_bytes(IQ3_S_CODES[index]);
        return negated(codes * 2 + 0x01010101, u32(signs[e / 8]) >> e % 8);
    }
    DEVICE_METHOD Level level(u32 e) const
    {
        return {f32(d) * f32(1 + 2 * (scales[e / 64] >> 4 * (e / 32 % 2) & 15)), 0};
    }
};

// Eight times -1, 0 and 1, each plus or minus an eighth.
DEVICE_FUNCTION u32 eightfold_of_1(u32 entry, u32 e, bool lowered)
{
    const u32 codes = pairs_to_bytes(entry >> 2 * (e % 8) & 255);
    return looked_up(codes, lowered ? 0x07FFF7 : 0x0901F9, 0);
}

struct BlockIQ1_S {
    enum : u32 { ELEMENTS = 256, SPAN = 32, OFFSET = 0, MINIMUM = 0, WIDE = 0 };
    f16 d;
    u8 qs[32];
    u16 qh[8];
    template <class Word> DEVICE_METHOD Word packed(u32 e) const
    {
        const u32 high = qh[e / 32];
        const u32 index = qs[e / 8] | (high >> 3 * (e % 32 / 8) & 7) << 8;
        return eightfold_of_1(IQ1_CODES[index], e, (high & 0x8000) != 0);
    }
    DEVICE_METHOD Level level(u32 e) const
    {
        return {f32(d) * f32(2 * (qh[e / 32] >> 12 & 7) + 1) * 0.125f, 0};
    }
};

struct BlockIQ1_M {
    enum : u32 { ELEMENTS = 256, SPAN = 16, OFFSET = 0, MINIMUM = 0, WIDE = 0 };
    u8 qs[32], qh[16];
    u16 scales[4]; /* each 4 scales of 3 bits, and 4 bits of d */
    template <class Word> DEVICE_METHOD Word packed(u32 e) const
    {
        const u32 high = qh[e / 16] >> 4 * (e / 8 % 2);
        return eightfold_of_1(IQ1_CODES[qs[e / 8] | (high & 7) << 8], e, (high & 8) != 0);
    }
    DEVICE_METHOD Level level(u32 e) const
    {
        const u16 bits = u16(scales[0] >> 12 | (scales[1] >> 8 & 0x00F0) |
                             (scales[2] >> 4 & 0x0F00) | (scales[3] & 0xF000));
        f16 d;
        memcpy(&d, &bits, sizeof d);
        return {f32(d) * f32(2 * (scales[e / 64] >> 3 * (e / 16 % 4) & 7) + 1) * 0.125f, 0};
    }
};

// The formats of blocks.h and of this file that Candle's module lacks: ROW(name, block).
#define FORMATS_BESIDE(ROW)                                                                        \
    ROW(q8_1, BlockQ8_1)                                                                           \
    ROW(q8_K, BlockQ8_K)                                                                           \
    ROW(iq2_xxs, BlockIQ2_XXS)                                                                     \
    ROW(iq2_xs, BlockIQ2_XS)                                                                       \
    ROW(iq2_s, BlockIQ2_S)                                                                         \
    ROW(iq3_xxs, BlockIQ3_XXS)                                                                     \
    ROW(iq3_s, BlockIQ3_S)                                                                         \
    ROW(iq1_s, BlockIQ1_S)                                                                         \
    ROW(iq1_m, BlockIQ1_M)                                                                         \
    ROW(iq4_nl, BlockIQ4_NL)                                                                       \
    ROW(iq4_xs, BlockIQ4_XS)                                                                       \
    ROW(tq1_0, BlockTQ1_0)                                                                         \
    ROW(tq2_0, BlockTQ2_0)                                                                         \
    ROW(mxfp4, BlockMXFP4)                                                                         \
    ROW(nvfp4, BlockNVFP4)

#endif
