// Kinds of floats, for CPUs: `isfinite_<type>`, `isinf_<type>`, `isnan_<type>`, `signbit_<type>`.
//
// The result is 0 or 1. info is null for a contiguous inp; otherwise it holds dims and strides of
// inp. Bits are compared as integers, so that f16 and bf16 need no conversion.
#include "elementwise.h"

// The bits of an infinity.
template <class T> constexpr Word<T> INFINITE = 0;
template <> constexpr u16 INFINITE<bf16> = 0x7F80;
template <> constexpr u16 INFINITE<f16> = 0x7C00;
template <> constexpr u32 INFINITE<f32> = 0x7F800000;
template <> constexpr u64 INFINITE<f64> = 0x7FF0000000000000;

template <class W> constexpr W SIGN = W(W(1) << (8 * sizeof(W) - 1));

#define MAGNITUDE(Name, comparison)                                                                \
    template <class T> struct Name {                                                               \
        u8 operator()(Word<T> bits) const                                                          \
        {                                                                                          \
            return Word<T>(bits & ~SIGN<Word<T>>) comparison INFINITE<T>;                          \
        }                                                                                          \
    };
MAGNITUDE(IsFinite, <)
MAGNITUDE(IsInfinite, ==)
MAGNITUDE(IsNan, >)

// Types of one size share it.
template <class W> struct SignBit {
    u8 operator()(W bits) const { return u8(bits >> (8 * sizeof(W) - 1)); }
};
template <class T> using Sign = SignBit<Word<T>>;

#define KIND(entry, T, Kind)                                                                       \
    KERNEL(entry, (u64 numel, u64 num_dims, const u64 *info, const T *inp, u8 *out))               \
    {                                                                                              \
        map(THIS_BLOCK, numel, out, Kind<T>{},                                                     \
            Operand<Word<T>>(words(inp), num_dims, info, info + num_dims));                        \
    }
#define KINDS(root, Kind)                                                                          \
    KIND(root##_bf16, bf16, Kind)                                                                  \
    KIND(root##_f16, f16, Kind)                                                                    \
    KIND(root##_f32, f32, Kind)                                                                    \
    KIND(root##_f64, f64, Kind)

KINDS(isfinite, IsFinite)
KINDS(isinf, IsInfinite)
KINDS(isnan, IsNan)
KINDS(signbit, Sign)
