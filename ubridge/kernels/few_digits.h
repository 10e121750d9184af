// Shorter code for results of 16 bits, which hardly show the rounding errors of f32.
#ifndef UBRIDGE_FEW_DIGITS_H
#define UBRIDGE_FEW_DIGITS_H

#include "number.h"

template <class T> constexpr bool has_few_digits = sizeof(T) == 2;

#if defined(__CUDACC__)

#include <uhal/fast_math.h>

// The type that decides how a result is computed; other devices have one way for all results.
template <class T> using Digits = T;

// e^x in 8 instructions for x <= 0; a NaN is kept.
DEVICE_FUNCTION f32 small_exponential(f32 x)
{
    // The factor is log2(e) rounded up, and the product is rounded down, so that x - y ln(2) is at
    // least 0. This rest is tiny: its exponential is 1 + rest. For x = -inf the rest is a NaN,
    // which becomes 0.
    const f32 y = __fmul_rd(x, 1.44269514f);
    const f32 rest = __saturatef(fmaf(y, 1.90465421e-9f, fmaf(y, -0.693147182f, x)));
    f32 power;
    asm("ex2.approx.f32 %0, %1;" : "=f"(power) : "f"(y));
    return fmaf(power, rest, power);
}
DEVICE_FUNCTION f64 small_exponential(f64 x)
{
    return exp(x);
}

#else

template <class T> using Digits = Compute<T>;

#endif

#endif
