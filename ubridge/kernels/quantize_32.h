// Quantizes numbers to ggml's blocks of 32 elements, for CPUs: `put(x, block)`.
#ifndef UBRIDGE_QUANTIZE_32_H
#define UBRIDGE_QUANTIZE_32_H

#include "block_fits.h"

// The input elements of BATCH blocks, in sixteen groups that are fitted at once.
template <u32 GROUP> struct Groups {
    Floats16 x[GROUP];

    DEVICE_METHOD explicit Groups(const f32 *values)
    {
        for (u32 i = 0; i < GROUP; ++i)
            for (u32 lane = 0; lane < 16; ++lane)
                x[i][lane] = values[lane * GROUP + i];
    }
};

DEVICE_FUNCTION f32 furthest_of(const f32 *values, u32 count)
{
    f32 furthest = 0;
    for (u32 i = 0; i < count; ++i)
        furthest = fabsf(values[i]) > fabsf(furthest) ? values[i] : furthest;
    return furthest;
}

DEVICE_FUNCTION f32 inverse_of(f32 value) { return value != 0 ? 1 / value : 0; }

DEVICE_FUNCTION i32 nearest_in(f32 value, i32 least, i32 most)
{
    const f32 limited = value < f32(least) ? f32(least) : value > f32(most) ? f32(most) : value;
    return i32(lrintf(limited));
}

// 32 numbers.
struct Halves {
    Floats16 low, high;

    DEVICE_METHOD explicit Halves(const f32 *x) : low(load16(x)), high(load16(x + 16)) {}
};

// Packs 4 bits of each element, two elements a byte.
DEVICE_FUNCTION void put_halves(Integers16 low, Integers16 high, u8 *qs)
{
    // Two steps, because GCC would split a single conversion into bytes.
    const Shorts16 both = __builtin_convertvector((low & 15) | (high & 15) << 4, Shorts16);
    const Bytes16 bytes = __builtin_convertvector(both, Bytes16);
    memcpy(qs, &bytes, sizeof bytes);
}
DEVICE_FUNCTION void put_halves(const u32 *quants, u8 *qs)
{
    Integers16 halves[2];
    memcpy(halves, quants, sizeof halves);
    put_halves(halves[0], halves[1], qs);
}

// Packs the fifth bit of each element.
DEVICE_FUNCTION void put_fifths(Integers16 low, Integers16 high, u8 *qh)
{
    const Integers16 at = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const i32 bits = sum_of(((low >> 4 & 1) | (high >> 4 & 1) << 16) << at);
    memcpy(qh, &bits, sizeof bits);
}

// The first number of the largest magnitude, ignoring NaN.
DEVICE_FUNCTION f32 furthest_of(const Halves &x, const f32 *values)
{
    const Floats16 low = x.low == x.low ? x.low : Floats16{};
    const Floats16 high = x.high == x.high ? x.high : Floats16{};
    const f32 most = most_of(low > high ? low : high);
    const f32 least = -most_of(-(low < high ? low : high));
    return most > -least ? most : most < -least ? least : furthest_of(values, 32);
}

DEVICE_FUNCTION Integers16 at_most(i32 most, Floats16 values)
{
    const Integers16 integers = __builtin_convertvector(values, Integers16);
    return integers < most ? integers : Integers16{} + most;
}

// The element of largest magnitude becomes -MOST, the range's longer end.
template <i32 MOST, class Block> DEVICE_FUNCTION void put_signed(const f32 *values, Block *out)
{
    const Halves x(values);
    const f32 scale = furthest_of(x, values) / -f32(MOST), inverse = inverse_of(scale);
    const Integers16 low = at_most(2 * MOST - 1, x.low * inverse + (f32(MOST) + 0.5f));
    const Integers16 high = at_most(2 * MOST - 1, x.high * inverse + (f32(MOST) + 0.5f));
    out->d = f16(scale);
    put_halves(low, high, out->qs);
    if constexpr (MOST > 8)
        put_fifths(low, high, out->qh);
}

template <i32 MOST, class Block> DEVICE_FUNCTION void put_raised(const f32 *values, Block *out)
{
    const Halves x(values);
    const f32 least = -most_of(-(x.low < x.high ? x.low : x.high));
    const f32 most = most_of(x.low > x.high ? x.low : x.high);
    const f32 scale = (most - least) / f32(MOST), inverse = inverse_of(scale);
    const Integers16 low = at_most(MOST, (x.low - least) * inverse + 0.5f);
    const Integers16 high = at_most(MOST, (x.high - least) * inverse + 0.5f);
    out->d = f16(scale);
    out->m = f16(least);
    put_halves(low, high, out->qs);
    if constexpr (MOST > 15)
        put_fifths(low, high, out->qh);
}

ONE_FUNCTION void put(const f32 *x, BlockQ4_0 *out) { put_signed<8>(x, out); }
ONE_FUNCTION void put(const f32 *x, BlockQ4_1 *out) { put_raised<15>(x, out); }
ONE_FUNCTION void put(const f32 *x, BlockQ5_0 *out) { put_signed<16>(x, out); }
ONE_FUNCTION void put(const f32 *x, BlockQ5_1 *out) { put_raised<31>(x, out); }

DEVICE_FUNCTION f32 put_bytes(const f32 *x, u8 *qs)
{
    const f32 scale = fabsf(furthest_of(x, 32)) / 127, inverse = inverse_of(scale);
    for (u32 i = 0; i < 32; ++i)
        qs[i] = u8(i8(roundf(x[i] * inverse)));
    return scale;
}

ONE_FUNCTION void put(const f32 *x, BlockQ8_0 *out) { out->d = f16(put_bytes(x, out->qs)); }

// With the sum of the quantized elements, as in ggml on CPUs.
ONE_FUNCTION void put(const f32 *x, BlockQ8_1 *out)
{
    const f32 scale = put_bytes(x, out->qs);
    i32 sum = 0;
    for (u32 i = 0; i < 32; ++i)
        sum += i8(out->qs[i]);
    out->d = f16(scale);
    out->s = f16(f32(sum) * scale);
}

ONE_FUNCTION void put(const f32 *x, BlockMXFP4 *out)
{
    constexpr f32 VALUES[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    const f32 furthest = fabsf(furthest_of(x, 32));
    i32 exponent = 0;
    frexpf(furthest, &exponent);
    const i32 biased = exponent - 1 - 2 + 127;
    out->x = u8(furthest > 0 && biased > 0 ? biased < 254 ? biased : 254 : 0);
    const f32 scale = out->level(0).scale;
    u32 quants[32];
    for (u32 i = 0; i < 32; ++i) {
        f32 least = __FLT_MAX__;
        quants[i] = 0;
        for (u32 code = 0; code < 16; ++code) {
            const f32 error = fabsf(scale * VALUES[code] - x[i]);
            quants[i] = error < least ? code : quants[i];
            least = error < least ? error : least;
        }
    }
    put_halves(quants, out->qs);
}

// Sixteen blocks, one a lane.
ONE_FUNCTION void put(const f32 *x, u32 count, BlockIQ4_NL *out)
{
    const Groups<32> groups(x);
    Floats16 scale = fit_of_iq4<32>(groups.x);
    for (u32 lane = 0; lane < 16; ++lane)
        scale[lane] = f32(f16(scale[lane]));
    const Floats16 inverse = inverse_of(scale);
    Floats16 codes[32];
    for (u32 i = 0; i < 32; ++i)
        codes[i] = nearest_iq4<true>(groups.x[i] * inverse);
    for (u32 lane = 0; lane < count; ++lane) {
        u32 quants[32];
        for (u32 i = 0; i < 32; ++i)
            quants[i] = u32(codes[i][lane]);
        out[lane].d = f16(scale[lane]);
        put_halves(quants, out[lane].qs);
    }
}

#endif
