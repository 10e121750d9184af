// For CPUs with AVX-512: the normal distribution function of f32 as vector code without calls. Calls
// of glibc's erfcf take twice the time there, but less time than this code on other CPUs.
#ifndef UBRIDGE_NORMAL_H
#define UBRIDGE_NORMAL_H

#include <string.h>

#include "inverse_error.h"

// 2^64 times the share of the normal distribution beyond x >= 0; 0 beyond 16.2, where no f32 is left.
// The factor keeps results normal where the share is not. A NaN is kept.
//
// The share is e^(-x^2 / 2) times a polynomial of 1 / (1 + 0.3 x), which fits within a rounding.
DEVICE_FUNCTION f32 raised_tail(f32 x)
{
    const f32 near = x > 16.26f ? 16.26f : x;
    const f32 half = 0.5f * near;
    const f32 square = half * near;
    const f32 lacks = __builtin_fmaf(half, near, -square);
    // -square = count * ln 2 + rest. Adding 1.5 * 2^23 rounds to an integer, found in the low bits.
    const f32 shifted = __builtin_fmaf(square, -1.44269504f, 12582912.0f);
    const f32 count = shifted - 12582912.0f;
    const f32 most = __builtin_fmaf(count, -0.693359375f, -square) - lacks;
    const f32 rest = __builtin_fmaf(count, 2.12194440e-4f, most);
    // |rest| <= ln 2 / 2, where the Taylor series ends within two roundings after the sixth power.
    static constexpr f32 series[] = {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6,
                                     1.0f / 2,   1.0f,       1.0f};
    // The power for the lowest count, -191, becomes 0.
    u32 bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits << 23) + ((127u + 64u) << 23);
    f32 power;
    memcpy(&power, &bits, sizeof power);
    static constexpr f32 fit[] = {0.0384254f,  -0.16939479f, 0.22913167f, -0.0770447f,  0.14290631f,
                                  0.09452609f, 0.12196046f,  0.11948209f, 7.4954414e-06f};
    return polynomial(fit, 1.0f / (1.0f + 0.3f * near)) * polynomial(series, rest) * power;
}

// The normal distribution function times a factor.
DEVICE_FUNCTION f32 normal_distribution(f32 x, f32 factor)
{
    const f32 tail = raised_tail(fabsf(x));
    return x < 0 ? factor * tail * 0x1p-64f : factor * (1.0f - tail * 0x1p-64f);
}

#endif
