// e^x of an f32, written out: compilers turn loops that use it into vector code, which they cannot
// do with a call.
#ifndef UBRIDGE_EXPONENTIAL_H
#define UBRIDGE_EXPONENTIAL_H

#include <string.h>

#include <uhal/kernel.h>

// 2^RAISED e^x as power * (1 + series), for -87 <= x <= 87 where nothing is raised. NaN stays NaN.
template <u32 RAISED = 0> struct Exponential {
    f32 power;
    f32 series;

    DEVICE_METHOD explicit Exponential(f32 x)
    {
        // x = count * ln 2 + rest. Adding 1.5 * 2^23 rounds to an integer, found in the low bits.
        const f32 shifted = x * 1.44269504f + 12582912.0f;
        const f32 count = shifted - 12582912.0f;
        const f32 rest = (x - count * 0.693359375f) - count * -2.12194440e-4f;

        // |rest| <= ln 2 / 2, where the Taylor series ends within an ulp after the seventh power.
        series = 1.0f / 5040.0f;
        series = series * rest + 1.0f / 720.0f;
        series = series * rest + 1.0f / 120.0f;
        series = series * rest + 1.0f / 24.0f;
        series = series * rest + 1.0f / 6.0f;
        series = series * rest + 1.0f / 2.0f;
        series = series * rest * rest + rest;

        u32 bits;
        memcpy(&bits, &shifted, sizeof bits);
        bits = (bits << 23) + ((127u + RAISED) << 23);
        memcpy(&power, &bits, sizeof power);
    }

    // To within two ulps.
    DEVICE_METHOD f32 value() const { return power * series + power; }
    DEVICE_METHOD f32 less_one() const { return power * series + (power - 1.0f); }
};

#endif
