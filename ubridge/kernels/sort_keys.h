// Keys of sorts: unsigned integers that order as the elements do. All NaN have the highest key, and
// both zeros have one key. Keys of a falling order are inverted.
#ifndef UBRIDGE_SORT_KEYS_H
#define UBRIDGE_SORT_KEYS_H

#include "number.h"

// Bits of the greatest finite number and infinity, without a sign.
template <class T> struct Infinity;
template <> struct Infinity<f16> {
    static constexpr u16 bits = 0x7C00;
};
template <> struct Infinity<bf16> {
    static constexpr u16 bits = 0x7F80;
};
template <> struct Infinity<f32> {
    static constexpr u32 bits = 0x7F800000;
};
template <> struct Infinity<f64> {
    static constexpr u64 bits = 0x7FF0000000000000;
};

template <bool ascending, class T> DEVICE_FUNCTION Word<T> key_of(T x)
{
    typedef Word<T> Bits;
    constexpr Bits sign = Bits(u64(1) << (8 * sizeof(T) - 1));
    Bits bits = word(x);
    if constexpr (Number<T>::is_integer) {
        bits = is_signed<T> ? Bits(bits ^ sign) : bits;
    } else {
        const Bits magnitude = Bits(bits & Bits(~sign));
        const Bits ordered = Bits(bits & sign) != 0 ? Bits(~bits) : Bits(bits | sign);
        bits = magnitude > Infinity<T>::bits ? Bits(~Bits(0)) : magnitude == 0 ? sign : ordered;
    }
    return ascending ? bits : Bits(~bits);
}

#endif
