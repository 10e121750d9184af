// Numbers in kernels: the type in which each stored type is computed, conversions between types,
// integer arithmetic that wraps, and one rule for NaN.
//
// f8e4m3, f16 and bf16 are computed in f32 and rounded once, when they are stored.
#ifndef UBRIDGE_NUMBER_H
#define UBRIDGE_NUMBER_H

#include <string.h>

#include <uhal/kernel.h>

template <class T> struct Number {
    typedef T Compute;
    static constexpr bool is_integer = true;
};
template <> struct Number<f8e4m3> {
    typedef f32 Compute;
    static constexpr bool is_integer = false;
};
template <> struct Number<f16> {
    typedef f32 Compute;
    static constexpr bool is_integer = false;
};
template <> struct Number<bf16> {
    typedef f32 Compute;
    static constexpr bool is_integer = false;
};
template <> struct Number<f32> {
    typedef f32 Compute;
    static constexpr bool is_integer = false;
};
template <> struct Number<f64> {
    typedef f64 Compute;
    static constexpr bool is_integer = false;
};

template <class T> using Compute = typename Number<T>::Compute;

template <class A, class B> constexpr bool same_type = false;
template <class A> constexpr bool same_type<A, A> = true;

// T computes in its own type.
template <class T> constexpr bool computes_itself = same_type<T, Compute<T>>;
template <class T> constexpr bool is_signed = T(-1) < T(0);

// The unsigned type in which T wraps around.
template <bool wide> struct Wrapping {
    typedef u32 Type;
};
template <> struct Wrapping<true> {
    typedef u64 Type;
};
template <class T> using Modular = typename Wrapping<(sizeof(T) > 4)>::Type;

// The unsigned integer of the same size, for values that are only moved.
template <u64 size> struct WordOf;
template <> struct WordOf<1> {
    typedef u8 Type;
};
template <> struct WordOf<2> {
    typedef u16 Type;
};
template <> struct WordOf<4> {
    typedef u32 Type;
};
template <> struct WordOf<8> {
    typedef u64 Type;
};
template <class T> using Word = typename WordOf<sizeof(T)>::Type;

template <class T> DEVICE_FUNCTION const Word<T> *words(const T *values)
{
    return reinterpret_cast<const Word<T> *>(values);
}

template <class T> DEVICE_FUNCTION Word<T> *words(T *values)
{
    return reinterpret_cast<Word<T> *>(values);
}

template <class T> DEVICE_FUNCTION Word<T> word(T value)
{
    Word<T> bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

template <class T> struct Limits {
    static constexpr T highest = is_signed<T> ? T(~(u64(1) << (8 * sizeof(T) - 1))) : T(~u64(0));
    static constexpr T lowest = is_signed<T> ? T(u64(1) << (8 * sizeof(T) - 1)) : T(0);
};

template <class T> DEVICE_FUNCTION T add(T a, T b)
{
    if constexpr (Number<T>::is_integer)
        return T(Modular<T>(a) + Modular<T>(b));
    else
        return a + b;
}

template <class T> DEVICE_FUNCTION T subtract(T a, T b)
{
    if constexpr (Number<T>::is_integer)
        return T(Modular<T>(a) - Modular<T>(b));
    else
        return a - b;
}

template <class T> DEVICE_FUNCTION T multiply(T a, T b)
{
    if constexpr (Number<T>::is_integer)
        return T(Modular<T>(a) * Modular<T>(b));
    else
        return a * b;
}

// Integers truncate; divided by zero they are 0, and the lowest by -1 is itself.
template <class T> DEVICE_FUNCTION T divide(T a, T b)
{
    if constexpr (Number<T>::is_integer) {
        if (b == 0)
            return 0;
        if (is_signed<T> && b == T(-1))
            return subtract(T(0), a);
        return T(a / b);
    } else {
        return a / b;
    }
}

template <class T> DEVICE_FUNCTION bool is_nan(T x)
{
    return x != x;
}

// The larger of two numbers; NaN if either is NaN.
template <class T> DEVICE_FUNCTION T maximum(T a, T b)
{
    return a > b || is_nan(a) ? a : b;
}

template <class T> DEVICE_FUNCTION T minimum(T a, T b)
{
    return a < b || is_nan(a) ? a : b;
}

// x rounded to odd: when x is no f32, the result is its f32 neighbor with an odd last bit. So a
// second rounding gives the result of a single rounding.
DEVICE_FUNCTION f32 round_to_odd(f64 x)
{
    const f32 near = f32(x);
    u32 bits;
    memcpy(&bits, &near, sizeof bits);
    // An even neighbor away from zero is one too far; an even neighbor toward zero is one too
    // near.
    const bool even = (bits & 1) == 0 && f64(near) != x && !is_nan(x);
    const bool too_far = (x < 0 ? -f64(near) : f64(near)) > (x < 0 ? -x : x);
    bits += even ? (too_far ? ~u32(0) : u32(1)) : u32(0);
    f32 odd;
    memcpy(&odd, &bits, sizeof odd);
    return odd;
}

// An integer of any size as an f64 that later rounds exactly as the integer would.
template <class T> DEVICE_FUNCTION f64 with_sticky_bit(T x)
{
    if constexpr (sizeof(T) <= 4) {
        return f64(x);
    } else {
        // Beyond 53 bits the last eleven bits become one sticky bit, set if any of them was.
        const bool negative = x < T(0);
        const u64 magnitude = negative ? u64(0) - u64(x) : u64(x);
        const u64 short_enough = (magnitude >> 11 | u64((magnitude & 0x7FF) != 0)) << 11;
        const u64 kept = magnitude >> 53 == 0 ? magnitude : short_enough;
        return negative ? -f64(kept) : f64(kept);
    }
}

// A conversion as numpy's `astype` where defined: integers wrap, floats round to the nearest. To an
// integer, floats are truncated, saturate beyond its range, and NaN becomes 0. For a type computed
// in f32 the result is an f32 that rounds to it correctly.
template <class To, class From> DEVICE_FUNCTION Compute<To> convert(From x)
{
    if constexpr (same_type<From, Compute<To>>) {
        return x;
    } else if constexpr (!computes_itself<To>) {
        if constexpr (Number<From>::is_integer)
            return round_to_odd(with_sticky_bit(x));
        else
            return round_to_odd(f64(x));
    } else if constexpr (Number<To>::is_integer && !Number<From>::is_integer) {
        // The highest plus one is a power of two, so a float holds it exactly.
        const From above = From(u64(1) << (8 * sizeof(To) - 1)) * From(is_signed<To> ? 1 : 2);
        const From lowest = From(Limits<To>::lowest);
#if KERNEL_ON_GPU
        const bool low = x < lowest;
        const bool high = x >= above;
        const To cut = To(low || high || is_nan(x) ? From(0) : x);
        return low ? Limits<To>::lowest : high ? Limits<To>::highest : cut;
#else
        // Minima and maxima of vectors take a CPU less time than choices of three.
        if constexpr (sizeof(To) < sizeof(From)) {
            const From highest = From(Limits<To>::highest);
            const From number = is_signed<To> && is_nan(x) ? From(0) : x;
            const From not_low = number > lowest ? number : lowest;
            const From within = not_low < highest ? not_low : highest;
            // Smaller integers have no conversion of their own.
            if constexpr (sizeof(To) < 4)
                return To(i32(within));
            else
                return To(within);
        } else {
            const From not_high = x < above ? x : From(0);
            const To cut = To(not_high > lowest ? not_high : lowest);
            return x >= above ? Limits<To>::highest : cut;
        }
#endif
    } else {
        return To(x);
    }
}

template <class T> DEVICE_FUNCTION Compute<T> widen(T x)
{
    return Compute<T>(x);
}

template <class T> DEVICE_FUNCTION T narrow(Compute<T> x)
{
    return T(x);
}

#endif
