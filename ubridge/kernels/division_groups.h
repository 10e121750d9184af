// For CPUs: remainders and rounded quotients of floats by vectors. The operations of binary.cu, which
// includes this file, take elements one by one, because fmod has no vector version.
#ifndef UBRIDGE_DIVISION_GROUPS_H
#define UBRIDGE_DIVISION_GROUPS_H

#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)

#include <math.h>
#include <string.h>

#include "number.h"

DEVICE_FUNCTION f32 fused(f32 x, f32 y, f32 z)
{
    return fmaf(x, y, z);
}
DEVICE_FUNCTION f64 fused(f64 x, f64 y, f64 z)
{
    return fma(x, y, z);
}

// fmod for quotients below a bound; the product with b is then subtracted without an error. If
// division rounds a quotient up to the next integer, the rest has the other sign, and adding b
// repairs it.
template <class T> struct Rest {
    static constexpr T BOUND = sizeof(T) == 8 ? T(0x1p51) : T(0x1p22);
    T rest;
    u32 is_unknown; // 1 beyond the bound, and for infinities and NaN

    DEVICE_METHOD Rest(T a, T b)
    {
        const T quotient = fabs_of(a / b);
        const bool is_known = quotient < BOUND && fabs_of(b) < T(INFINITY);
        is_unknown = is_known ? 0 : 1;
        const T found = fused(-floor_of(quotient), fabs_of(b), fabs_of(a));
        rest = copysign_of(found < T(0) ? found + fabs_of(b) : found, a);
    }
};

// Python's remainder and quotient from C's remainder, as `remainder_of` and `floor_quotient`.
template <class T> DEVICE_FUNCTION T with_sign_of_divisor(T rest, T b)
{
    return rest == T(0) ? copysign_of(T(0), b) : (rest < T(0)) != (b < T(0)) ? rest + b : rest;
}
template <class T> DEVICE_FUNCTION T floor_quotient_of(T a, T b, T rest)
{
    const T below = rest != T(0) && (rest < T(0)) != (b < T(0)) ? T(1) : T(0);
    const T quotient = (a - rest) / b - below;
    const T whole = floor_of(quotient);
    const T nearest = quotient - whole > T(0.5) ? whole + T(1) : whole;
    return quotient == T(0) ? copysign_of(T(0), a / b) : nearest;
}

enum : u64 { DIVIDED = 256 }; // elements that are divided together

// results[i] = quick(a, b, rest), or in a group with an unknown rest function(a, b).
template <class T, class Function, class Quick>
DEVICE_FUNCTION void divide_groups(u64 count, T *results, Function function, const T *a, const T *b,
                                   Quick quick)
{
    alignas(64) T found[DIVIDED];
    for (u64 first = 0; first < count; first += DIVIDED) {
        const u64 some = count - first < DIVIDED ? count - first : u64(DIVIDED);
        u32 is_unknown = 0;
        for (u64 i = 0; i < some; ++i) {
            const Rest<T> one(a[first + i], b[first + i]);
            is_unknown |= one.is_unknown;
            found[i] = quick(a[first + i], b[first + i], one.rest);
        }
        if (is_unknown == 0)
            memcpy(results + first, found, some * sizeof(T));
        else
            for (u64 i = 0; i < some; ++i)
                results[first + i] = function(a[first + i], b[first + i]);
    }
}

#define DIVIDE_GROUPS(Function, T, result)                                                         \
    inline void apply(u64 count, T *results, Function function, const T *x, const T *y)            \
    {                                                                                              \
        divide_groups(count, results, function, x, y, [](T a, T b, T rest) {                       \
            (void)a, (void)b;                                                                      \
            return result;                                                                         \
        });                                                                                        \
    }
#define DIVIDE_GROUPS_OF(T)                                                                        \
    DIVIDE_GROUPS(Modulus, T, rest)                                                                \
    DIVIDE_GROUPS(Remainder, T, with_sign_of_divisor(rest, b))                                     \
    DIVIDE_GROUPS(FloorQuotient, T, floor_quotient_of(a, b, rest))

DIVIDE_GROUPS_OF(f32)
DIVIDE_GROUPS_OF(f64)

#endif

#endif
