// Vectors of bytes that weights of blocks are multiplied by on CPUs, as ggml quantizes them there: by
// Q8_0 for weights of blocks below 256 elements, else by Q8_K. The scales of Q8_0 stay in f32, though.
//
// The integers of a vector lie together, filled up with zeros to a multiple of 64, then comes what
// belongs to them: of 32 elements 8 bytes, of 256 elements 64. A vector takes 5/4 of the bytes of its
// integers.
#ifndef UBRIDGE_ACTIVATIONS_H
#define UBRIDGE_ACTIVATIONS_H

#include "vectors.h"

enum : u64 { FILLED = 64 };

// Of 32 elements of Q8_0.
struct Side32 {
    f32 d;
    i16 sums[2]; // of 16 integers
};

// Of 256 elements of Q8_K.
struct Side256 {
    i16 sums[16];
    i16 sums_of_32[8];
    f32 d;
    u32 unused[3];
};
static_assert(8 * sizeof(Side32) == sizeof(Side256), "either is a fourth of the integers");

// One vector.
template <class Side> struct Vector {
    const i8 *quants;
    const Side *sides;
};

// Several, one after the other.
struct Vectors {
    const u8 *memory;
    u64 columns;

    DEVICE_METHOD u64 filled() const { return whole_times(columns, FILLED); }
    template <class Side> DEVICE_METHOD Vector<Side> vector(u64 index) const
    {
        const u8 *const here = memory + index * (filled() / 4 * 5);
        return {reinterpret_cast<const i8 *>(here), reinterpret_cast<const Side *>(here + filled())};
    }
};

// -- quantizing -----------------------------------------------------------------------------------

// Finite of all but NaN.
DEVICE_FUNCTION f32 inverse_of(f32 value)
{
    const f32 inverse = 1 / value;
    return value == 0 ? 0 : fabsf(inverse) > __FLT_MAX__ ? copysignf(__FLT_MAX__, value) : inverse;
}

// Half away from zero: the number before 0.5 would reach the next integer by adding that.
DEVICE_FUNCTION i32 rounded_away(f32 value)
{
    return i32(value + copysignf(0.49999997f, value));
}

template <class T> DEVICE_FUNCTION void widen(const T *from, u32 count, f32 *to)
{
    for (u32 i = 0; i < count; i += u32(LANES)) {
        const Floats wide = widened(from + i);
        memcpy(to + i, &wide, sizeof wide);
    }
}

struct Range {
    f32 least, most;
    f32 poison; // NaN where a number is not finite, else 0: added to a scale it spoils the block
};

DEVICE_FUNCTION Range range_of(const f32 *x, u32 count)
{
    f32 least[16], most[16], poison[16];
    for (u32 lane = 0; lane < 16; ++lane) {
        least[lane] = most[lane] = x[lane];
        poison[lane] = 0 * x[lane];
    }
    for (u32 i = 16; i < count; i += 16)
        for (u32 lane = 0; lane < 16; ++lane) {
            const f32 here = x[i + lane];
            least[lane] = here < least[lane] ? here : least[lane];
            most[lane] = here > most[lane] ? here : most[lane];
            poison[lane] += 0 * here;
        }
    Range all = {least[0], most[0], poison[0]};
    for (u32 lane = 1; lane < 16; ++lane) {
        all.least = least[lane] < all.least ? least[lane] : all.least;
        all.most = most[lane] > all.most ? most[lane] : all.most;
        all.poison += poison[lane];
    }
    return all;
}

DEVICE_FUNCTION void quantize_32(const f32 *x, i8 *quants, Side32 *side)
{
    const Range range = range_of(x, 32);
    const f32 scale = (-range.least > range.most ? -range.least : range.most) / 127;
    const f32 inverse = inverse_of(scale);
    i32 sums[2] = {};
    for (u32 half = 0; half < 2; ++half)
        for (u32 i = 16 * half; i < 16 * half + 16; ++i) {
            const i32 quant = rounded_away(x[i] * inverse);
            quants[i] = i8(quant);
            sums[half] += i8(quant);
        }
    *side = {scale + range.poison, {i16(sums[0]), i16(sums[1])}};
}

DEVICE_FUNCTION void quantize_256(const f32 *x, i8 *quants, Side256 *side)
{
    const Range range = range_of(x, 256);
    // The first of the largest magnitude becomes -127.
    f32 furthest = -range.least > range.most ? range.least : range.most;
    if (-range.least == range.most)
        for (u32 i = 0; fabsf(furthest = x[i]) != range.most;)
            ++i;
    const f32 factor = -127 * inverse_of(furthest);
    for (u32 part = 0; part < 16; ++part) {
        i32 sum = 0;
        for (u32 i = 16 * part; i < 16 * part + 16; ++i) {
            const f32 product = x[i] * factor;
            const f32 limited = product < -127 ? -127 : product > 127 ? 127 : product;
            const i32 quant = i32(rintf(limited));
            quants[i] = i8(quant);
            sum += i8(quant);
        }
        side->sums[part] = i16(sum);
    }
    for (u32 part = 0; part < 8; ++part)
        side->sums_of_32[part] = i16(side->sums[2 * part] + side->sums[2 * part + 1]);
    side->d = inverse_of(factor) + range.poison;
}

#endif
