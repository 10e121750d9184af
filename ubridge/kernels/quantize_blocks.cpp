// Quantizes numbers to ggml's blocks, for CPUs: `quantize_<format>_<type>` writes `count` blocks of
// consecutive elements. Grids are (pieces).
//
// Formats of 32 elements get the same bytes as from ggml's own reference (MXFP4 from gguf). The
// others search for scales (`block_fits.h`) with another method than ggml's: the bytes differ, and
// the root mean square error is at most 2 percent above ggml's.
#include "quantize_32.h"
#include "vectors.h"

// -- blocks of 256 --------------------------------------------------------------------------------

// Packs two bits of each element; a byte holds four elements that lie 32 apart.
DEVICE_FUNCTION void put_pairs(const u32 *quants, u8 *qs)
{
    for (u32 i = 0; i < 64; ++i) {
        const u32 *const first = quants + i / 32 * 128 + i % 32;
        qs[i] = u8((first[0] & 3) | (first[32] & 3) << 2 | (first[64] & 3) << 4 |
                   (first[96] & 3) << 6);
    }
}

DEVICE_FUNCTION void put_nibbles(const u32 *quants, u8 *qs)
{
    for (u32 i = 0; i < 128; ++i) {
        const u32 *const first = quants + i / 32 * 64 + i % 32;
        qs[i] = u8((first[0] & 15) | (first[32] & 15) << 4);
    }
}

// Packs a bit of each element; a byte holds eight elements that lie 32 apart.
DEVICE_FUNCTION void put_bits(const u32 *quants, u32 bit, u8 *qs)
{
    for (u32 i = 0; i < 32; ++i) {
        u32 byte = 0;
        for (u32 k = 0; k < 8; ++k)
            byte |= (quants[32 * k + i] >> bit & 1) << k;
        qs[i] = u8(byte);
    }
}

// Scales and minimums of COUNT groups as integers up to `most`, and the elements as
// integers.
template <u32 COUNT>
DEVICE_FUNCTION void put_levels(const f32 *x, const f32 *scales, const f32 *minimums, i32 most,
                                i32 most_quant, f16 *d, f16 *dmin, u32 *s, u32 *m, u32 *quants)
{
    *d = f16(furthest_of(scales, COUNT) / f32(most));
    *dmin = f16(furthest_of(minimums, COUNT) / f32(most));
    const f32 of_scales = inverse_of(f32(*d)), of_minimums = inverse_of(f32(*dmin));
    for (u32 k = 0; k < COUNT; ++k) {
        s[k] = u32(nearest_in(scales[k] * of_scales, 0, most));
        m[k] = u32(nearest_in(minimums[k] * of_minimums, 0, most));
        const f32 inverse = inverse_of(f32(*d) * f32(s[k])), minimum = f32(*dmin) * f32(m[k]);
        for (u32 i = k * 256 / COUNT; i < (k + 1) * 256 / COUNT; ++i)
            quants[i] = u32(nearest_in((x[i] + minimum) * inverse, 0, most_quant));
    }
}

// Signed scales of COUNT groups as integers from -most on, and the elements as integers, shifted so
// that the least possible integer becomes 0.
template <u32 COUNT>
DEVICE_FUNCTION void put_scales(const f32 *x, const f32 *scales, i32 most, i32 most_quant, f16 *d,
                                i32 *s, u32 *quants)
{
    *d = f16(furthest_of(scales, COUNT) / -f32(most));
    const f32 of_scales = inverse_of(f32(*d));
    for (u32 k = 0; k < COUNT; ++k) {
        s[k] = nearest_in(scales[k] * of_scales, -most, most - 1);
        const f32 inverse = inverse_of(f32(*d) * f32(s[k]));
        for (u32 i = k * 256 / COUNT; i < (k + 1) * 256 / COUNT; ++i)
            quants[i] =
                u32(nearest_in(x[i] * inverse, -most_quant, most_quant - 1) + most_quant);
    }
}

DEVICE_FUNCTION void put_six_bits(const u32 *s, const u32 *m, u8 *scales)
{
    for (u32 k = 0; k < 4; ++k) {
        scales[k] = u8(s[k] | s[k + 4] >> 4 << 6);
        scales[k + 4] = u8(m[k] | m[k + 4] >> 4 << 6);
        scales[k + 8] = u8((s[k + 4] & 15) | (m[k + 4] & 15) << 4);
    }
}

ONE_FUNCTION void put(const f32 *x, u32, BlockQ2_K *out)
{
    const Groups<16> groups(x);
    const Fit fit = fit_with_minimum<16>(groups.x, 3, -0.5f, 15);
    f32 scales[16], minimums[16];
    memcpy(scales, &fit.scale, sizeof scales);
    memcpy(minimums, &fit.minimum, sizeof minimums);
    u32 s[16], m[16], quants[256];
    put_levels<16>(x, scales, minimums, 15, 3, &out->d, &out->dmin, s, m, quants);
    for (u32 k = 0; k < 16; ++k)
        out->scales[k] = u8(s[k] | m[k] << 4);
    put_pairs(quants, out->qs);
}

ONE_FUNCTION void put(const f32 *x, u32, BlockQ3_K *out)
{
    const Groups<16> groups(x);
    const Floats16 fit = fit_of_integers<16>(groups.x, 4);
    f32 scales[16];
    memcpy(scales, &fit, sizeof scales);
    i32 s[16];
    u32 quants[256];
    put_scales<16>(x, scales, 32, 4, &out->d, s, quants);
    memset(out->scales, 0, sizeof out->scales);
    for (u32 k = 0; k < 16; ++k) {
        const u32 raised = u32(s[k] + 32);
        out->scales[k % 8] |= u8((raised & 15) << 4 * (k / 8));
        out->scales[8 + k % 4] |= u8(raised >> 4 << 2 * (k / 4));
    }
    put_pairs(quants, out->qs);
    put_bits(quants, 2, out->hmask);
}

// Two blocks at once, since they have sixteen groups of 32.
template <class Block>
DEVICE_FUNCTION void put_two(const f32 *x, u32 count, Block *out, i32 most, f32 from,
                             u32 candidates)
{
    const Groups<32> groups(x);
    const Fit fit = fit_with_minimum<32>(groups.x, f32(most), from, candidates);
    f32 scales[16], minimums[16];
    memcpy(scales, &fit.scale, sizeof scales);
    memcpy(minimums, &fit.minimum, sizeof minimums);
    for (u32 n = 0; n < count; ++n) {
        u32 s[8], m[8], quants[256];
        put_levels<8>(x + 256 * n, scales + 8 * n, minimums + 8 * n, 63, most, &out[n].d,
                      &out[n].dmin, s, m, quants);
        put_six_bits(s, m, out[n].scales);
        put_nibbles(quants, out[n].qs);
        if constexpr (sizeof(Block) == sizeof(BlockQ5_K))
            put_bits(quants, 4, out[n].qh);
    }
}

ONE_FUNCTION void put(const f32 *x, u32 count, BlockQ4_K *out)
{
    put_two(x, count, out, 15, -1, 20);
}
ONE_FUNCTION void put(const f32 *x, u32 count, BlockQ5_K *out)
{
    put_two(x, count, out, 31, -0.5f, 15);
}

ONE_FUNCTION void put(const f32 *x, u32, BlockQ6_K *out)
{
    const Groups<16> groups(x);
    const Floats16 fit = fit_of_integers<16>(groups.x, 32);
    f32 scales[16];
    memcpy(scales, &fit, sizeof scales);
    i32 s[16];
    u32 quants[256];
    put_scales<16>(x, scales, 128, 32, &out->d, s, quants);
    for (u32 k = 0; k < 16; ++k)
        out->scales[k] = i8(s[k]);
    for (u32 i = 0; i < 128; ++i) {
        const u32 *const first = quants + i / 64 * 128 + i % 64;
        out->ql[i] = u8((first[0] & 15) | (first[64] & 15) << 4);
    }
    u32 high[256];
    for (u32 i = 0; i < 256; ++i)
        high[i] = quants[i] >> 4;
    put_pairs(high, out->qh);
}

ONE_FUNCTION void put(const f32 *x, u32 count, BlockIQ4_XS *out)
{
    const Groups<32> groups(x);
    const Floats16 fit = fit_of_iq4<32>(groups.x);
    f32 scales[16];
    memcpy(scales, &fit, sizeof scales);
    for (u32 n = 0; n < count; ++n) {
        BlockIQ4_XS &block = out[n];
        block.d = f16(furthest_of(scales + 8 * n, 8) / -32);
        const f32 of_scales = inverse_of(f32(block.d));
        block.scales_h = 0;
        memset(block.scales_l, 0, sizeof block.scales_l);
        for (u32 k = 0; k < 8; ++k) {
            const i32 scale = nearest_in(scales[8 * n + k] * of_scales, -32, 31);
            const f32 inverse = inverse_of(f32(block.d) * f32(scale));
            u32 quants[32];
            for (u32 i = 0; i < 32; i += 16) {
                const Floats16 values = load16(x + 256 * n + 32 * k + i) * inverse;
                const Floats16 codes = nearest_iq4<true>(values);
                for (u32 lane = 0; lane < 16; ++lane)
                    quants[i + lane] = u32(codes[lane]);
            }
            put_halves(quants, block.qs + 16 * k);
            const u32 raised = u32(scale + 32);
            block.scales_l[k / 2] |= u8((raised & 15) << 4 * (k % 2));
            block.scales_h = u16(block.scales_h | raised >> 4 << 2 * k);
        }
    }
}

ONE_FUNCTION void put(const f32 *x, u32, BlockQ8_K *out)
{
    const f32 furthest = furthest_of(x, 256);
    const f32 factor = -127 * inverse_of(furthest);
    memset(out->sums, 0, sizeof out->sums);
    for (u32 i = 0; i < 256; ++i) {
        const i32 quant = nearest_in(x[i] * factor, -127, 127);
        out->qs[i] = u8(i8(quant));
        out->sums[i / 16] = i16(out->sums[i / 16] + quant);
    }
    out->d = inverse_of(factor);
}

// -1, 0 or 1 for each element, plus one.
DEVICE_FUNCTION f32 put_trits(const f32 *x, u32 *quants)
{
    const f32 scale = fabsf(furthest_of(x, 256)), inverse = inverse_of(scale);
    for (u32 i = 0; i < 256; ++i)
        quants[i] = u32(i32(roundf(x[i] * inverse)) + 1);
    return scale;
}

ONE_FUNCTION void put(const f32 *x, u32, BlockTQ1_0 *out)
{
    u32 quants[256];
    out->d = f16(put_trits(x, quants));
    for (u32 i = 0; i < 52; ++i) {
        const u32 width = i < 32 ? 32 : i < 48 ? 16 : 4, digits = i < 48 ? 5 : 4;
        const u32 first = i < 32 ? i : i < 48 ? 160 + i - 32 : 240 + i - 48;
        u32 number = 0;
        for (u32 n = 0; n < 5; ++n)
            number = 3 * number + (n < digits ? quants[first + n * width] : 0);
        (i < 48 ? out->qs[i] : out->qh[i - 48]) = u8((number * 256 + 242) / 243);
    }
}

ONE_FUNCTION void put(const f32 *x, u32, BlockTQ2_0 *out)
{
    u32 quants[256];
    out->d = f16(put_trits(x, quants));
    put_pairs(quants, out->qs);
}

// -- entries --------------------------------------------------------------------------------------

template <class Block>
DEVICE_FUNCTION auto put_any(const f32 *x, u32 count, Block *out) -> decltype(put(x, count, out))
{
    put(x, count, out);
}
template <class Block>
DEVICE_FUNCTION auto put_any(const f32 *x, u32, Block *out) -> decltype(put(x, out))
{
    put(x, out);
}

// `count` blocks of x; each block of the grid makes a run of these. BATCH blocks are made at once;
// missing elements of the last batch count as zero.
#define QUANTIZE_AS(format, T, Block, BATCH)                                                       \
    KERNEL(quantize_##format##_##T, (u64 count, const T *x, void *out))                            \
    {                                                                                              \
        const Piece piece((count + (BATCH) - 1) / (BATCH), blockIdx.x, gridDim.x, 1);              \
        for (u64 i = piece.first; i < piece.first + piece.length; ++i) {                           \
            const u64 first = i * (BATCH), left = count - first;                                   \
            const u32 here = left < (BATCH) ? u32(left) : (BATCH);                                 \
            f32 values[(BATCH) * Block::ELEMENTS] = {};                                            \
            for (u32 j = 0; j < here * Block::ELEMENTS; ++j)                                       \
                values[j] = f32(x[first * Block::ELEMENTS + j]);                                   \
            put_any(values, here, static_cast<Block *>(out) + first);                              \
        }                                                                                          \
    }
#define QUANTIZE(format, Block, BATCH)                                                             \
    QUANTIZE_AS(format, f32, Block, BATCH)                                                         \
    QUANTIZE_AS(format, bf16, Block, BATCH)

QUANTIZE(q4_0, BlockQ4_0, 1)
QUANTIZE(q4_1, BlockQ4_1, 1)
QUANTIZE(q5_0, BlockQ5_0, 1)
QUANTIZE(q5_1, BlockQ5_1, 1)
QUANTIZE(q8_0, BlockQ8_0, 1)
QUANTIZE(q8_1, BlockQ8_1, 1)
QUANTIZE(mxfp4, BlockMXFP4, 1)
QUANTIZE(iq4_nl, BlockIQ4_NL, 16)
QUANTIZE(q2_K, BlockQ2_K, 1)
QUANTIZE(q3_K, BlockQ3_K, 1)
QUANTIZE(q4_K, BlockQ4_K, 2)
QUANTIZE(q5_K, BlockQ5_K, 2)
QUANTIZE(q6_K, BlockQ6_K, 1)
QUANTIZE(q8_K, BlockQ8_K, 1)
QUANTIZE(iq4_xs, BlockIQ4_XS, 2)
QUANTIZE(tq1_0, BlockTQ1_0, 1)
QUANTIZE(tq2_0, BlockTQ2_0, 1)
