// 1 / (1 + e^-x) and its multiples, for every x. e^-x itself overflows for -x above 88 (710 in
// f64), where the results are still normal numbers.
#ifndef UBRIDGE_LOGISTIC_H
#define UBRIDGE_LOGISTIC_H

#include <math.h>

#include "few_digits.h"

#if KERNEL_ON_GPU
DEVICE_FUNCTION f32 power_of_e(f32 x)
{
    return expf(x);
}
#else
#include "exponential.h"

// 2^64 e^x for x <= 0, in fewer instructions than a call takes. The factor keeps results normal
// where e^x is not; below 2^-190 the result is 0. A NaN is kept.
DEVICE_FUNCTION f32 raised_power_of_e(f32 x)
{
    return Exponential<64>(x < -132.4f ? -132.4f : x).value();
}
DEVICE_FUNCTION f32 power_of_e(f32 x)
{
    return raised_power_of_e(x) * 0x1p-64f;
}
#endif
DEVICE_FUNCTION f64 power_of_e(f64 x)
{
    return exp(x);
}

// Stands for the rounding error of x where it is not known.
struct NoTail {
};
template <class T> DEVICE_FUNCTION T times_power_of_e(T x, NoTail, bool)
{
    return x;
}
template <class T> DEVICE_FUNCTION T times_power_of_e(T x, T tail, bool negative)
{
    return x + x * (negative ? tail : -tail);
}

#if KERNEL_ON_GPU

// factor * scale / (1 + e^-(x + tail)); the tail is too small for its square to count. For a large
// -x, e^x is the square of a power that is a normal number. The second factor comes last, so that
// only the result is rounded to a subnormal.
template <class T, class Tail = NoTail>
DEVICE_FUNCTION T logistic(T x, T factor, T scale = T(1), Tail tail = Tail())
{
    const bool negative = x < T(0);
    const T magnitude = negative ? -x : x;
    const bool halved = magnitude > T(64);
    const T half = power_of_e(halved ? T(-0.5) * magnitude : -magnitude);
    const T power = times_power_of_e(half, tail, negative);
    const T rest = halved ? half : T(1);
    const T total = T(1) + power * rest;
    const T product = (negative ? factor * power : factor) / total * scale;
    return negative ? product * rest : product;
}

#else

// Beyond `shift`, e^-x is the product of e^-(x - shift) and twice e^-(shift / 2). The difference is
// exact, and the factors are normal numbers up to twice the shift.
template <class T> struct FarPower;
template <> struct FarPower<f32> {
    static constexpr f32 shift = 87, half = 1.2828919e-19f;
};
template <> struct FarPower<f64> {
    static constexpr f64 shift = 700, half = 9.92959039626498e-153;
};

// As above for vectors. The form holds a compiler back from two vectors of powers, one for near
// elements and one for far elements. Far from 0 the sum is 1, so that it needs no constant. Half of
// the shift is applied to the scale, which may be as large as the power is small.
template <class T, class Tail = NoTail>
DEVICE_FUNCTION T logistic(T x, T factor, T scale = T(1), Tail tail = Tail())
{
    const bool negative = x < T(0);
    const T magnitude = negative ? -x : x;
    const T far = T(magnitude > FarPower<T>::shift);
    const T near = T(1) - far;
    const T found = power_of_e(FarPower<T>::shift * far - magnitude);
    const T power = times_power_of_e(found, tail, negative);
    const T half = near + FarPower<T>::half * far;
    const T rest = negative ? half : T(1);
    return factor * (negative ? power : T(1)) / (T(1) + power * near) * (scale * rest) * rest;
}

// As above without a scale. Only the last product is rounded to a subnormal.
DEVICE_FUNCTION f32 logistic(f32 x, f32 factor)
{
    const bool negative = x < 0;
    const f32 power = raised_power_of_e(-fabsf(x));
    const f32 product = (negative ? factor * power : factor) / (1 + power * 0x1p-64f);
    return negative ? product * 0x1p-64f : product;
}
DEVICE_FUNCTION f64 logistic(f64 x, f64 factor)
{
    return logistic(x, factor, f64(1));
}

#endif

#if KERNEL_ON_GPU

// The same for results of type T.
template <class T>
DEVICE_FUNCTION Compute<T> logistic_for(Compute<T> x, Compute<T> factor,
                                        Compute<T> scale = Compute<T>(1))
{
#if defined(__CUDACC__)
    if constexpr (has_few_digits<T>) {
        const f32 magnitude = fabsf(x);
        // A result of f16 is 0 long before the power is no normal number.
        const bool halved = !same_type<T, f16> && magnitude > 64;
        const f32 half = small_exponential(halved ? -0.5f * magnitude : -magnitude);
        const f32 rest = halved ? half : 1;
        const f32 inverse = uhal_fast_reciprocal(fmaf(half, rest, 1.0f));
        const f32 product = (x < 0 ? factor * half : factor) * inverse * scale;
        return x < 0 ? product * rest : product;
    } else
#endif
        return logistic(x, factor, scale);
}

#else

template <class T> DEVICE_FUNCTION Compute<T> logistic_for(Compute<T> x, Compute<T> factor)
{
    return logistic(x, factor);
}
template <class T>
DEVICE_FUNCTION Compute<T> logistic_for(Compute<T> x, Compute<T> factor, Compute<T> scale)
{
    return logistic(x, factor, scale);
}

#endif

#endif
