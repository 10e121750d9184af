// Vectors of bytes, by which CPUs multiply block weights. The vectors are quantized as in ggml: as
// Q8_0 for weights in blocks of fewer than 256 elements, else as Q8_K. Unlike ggml's, the scales
// of Q8_0 stay in f32.
//
// The integers of a vector lie together, filled up with zeros to a multiple of 64. Then come their
// scales and sums: 8 bytes for 32 elements, 64 bytes for 256 elements. A vector takes 5/4 of the
// bytes of its integers.
#ifndef UBRIDGE_ACTIVATIONS_H
#define UBRIDGE_ACTIVATIONS_H

#include "block_elements.h"
#include "vectors.h"

enum : u64 { FILLED = 64 };

// Scale and sums of 32 elements of Q8_0.
struct Side32 {
    f32 d;
    i16 sums[2]; // of 16 integers
};

// Scale and sums of 256 elements of Q8_K.
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

// Several vectors, one after the other.
struct Vectors {
    const u8 *memory;
    u64 columns;

    DEVICE_METHOD u64 filled() const { return whole_times(columns, FILLED); }
    template <class Side> DEVICE_METHOD Vector<Side> vector(u64 index) const
    {
        const u8 *const here = memory + index * (filled() / 4 * 5);
        return {reinterpret_cast<const i8 *>(here),
                reinterpret_cast<const Side *>(here + filled())};
    }
};

// -- quantizing -----------------------------------------------------------------------------------

// 1 / value, limited to the largest finite number; 0 for 0, and NaN for NaN.
DEVICE_FUNCTION f32 inverse_of(f32 value)
{
    const f32 inverse = 1 / value;
    return value == 0 ? 0 : fabsf(inverse) > __FLT_MAX__ ? copysignf(__FLT_MAX__, value) : inverse;
}

template <class T> DEVICE_FUNCTION void widen(const T *from, u32 count, f32 *to)
{
    for (u32 i = 0; i < count; i += u32(LANES)) {
        const Floats wide = widened(from + i);
        memcpy(to + i, &wide, sizeof wide);
    }
}

DEVICE_FUNCTION void store_bytes(i8 *to, Integers16 integers)
{
    // Two steps, because GCC would split a single conversion into bytes.
    const Shorts16 shorts = __builtin_convertvector(integers, Shorts16);
    const Bytes16 bytes = __builtin_convertvector(shorts, Bytes16);
    memcpy(to, &bytes, sizeof bytes);
}

DEVICE_FUNCTION void quantize_32(const f32 *x, i8 *quants, Side32 *side)
{
    // Without signs, floats have the order of their bits; infinities and NaN are above the
    // others.
    constexpr i32 INFINITE = 0x7F800000;
    const Floats16 halves[2] = {load16(x), load16(x + 16)};
    const Integers16 first = Integers16(halves[0]) & 0x7FFFFFFF;
    const Integers16 second = Integers16(halves[1]) & 0x7FFFFFFF;
    const i32 largest = most_of(first > second ? first : second);
    const f32 scale = f32_of_bits(u32(largest)) / 127;
    const f32 inverse = inverse_of(scale);
    for (u32 half = 0; half < 2; ++half) {
        const Floats16 scaled = halves[half] * inverse;
        // Rounds half away from zero. Adding 0.5 itself would round the number before 0.5 up.
        const Integers16 below = (Integers16(scaled) & i32(0x80000000)) | 0x3EFFFFFF;
        const Integers16 integers = __builtin_convertvector(scaled + Floats16(below), Integers16);
        store_bytes(quants + 16 * half, integers);
        side->sums[half] = i16(sum_of(integers));
    }
    side->d = largest < INFINITE ? scale : __builtin_nanf("");
}

// Unrolled loops would take a tenth of the module.
DEVICE_FUNCTION void quantize_256(const f32 *x, i8 *quants, Side256 *side)
{
    Floats16 least = load16(x), most = least, poison = 0 * least;
#pragma GCC unroll 1
    for (u32 i = 16; i < 256; i += 16) {
        const Floats16 here = load16(x + i);
        least = here < least ? here : least;
        most = here > most ? here : most;
        poison += 0 * here; // NaN if any is not finite
    }
    const f32 lowest = -most_of(-least), highest = most_of(most);
    // The first number of the largest magnitude becomes -127.
    f32 furthest = -lowest > highest ? lowest : highest;
    if (-lowest == highest)
        for (u32 i = 0; fabsf(furthest = x[i]) != highest;)
            ++i;
    const f32 factor = -127 * inverse_of(furthest);
#pragma GCC unroll 1
    for (u32 part = 0; part < 16; ++part) {
        const Floats16 scaled = load16(x + 16 * part) * factor;
        const Floats16 above = scaled < -127 ? Floats16{} - 127 : scaled;
        const Floats16 limited = above > 127 ? Floats16{} + 127 : above;
        // Adding this rounds away the fraction, ties to even.
        constexpr f32 ROUNDING = 0x1.8p23f;
        const Integers16 integers = Integers16(limited + ROUNDING) - i32(0x4B400000);
        store_bytes(quants + 16 * part, integers);
        side->sums[part] = i16(sum_of(integers));
    }
    for (u32 part = 0; part < 8; ++part)
        side->sums_of_32[part] = i16(side->sums[2 * part] + side->sums[2 * part + 1]);
    side->d = inverse_of(factor) + sum_of(poison);
}

#endif
