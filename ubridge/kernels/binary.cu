// Binary operations and comparisons, elementwise. Results of `b<operation>_<type>` have the type
// of the operands. Results of `<comparison>_<type>` are u8, 0 or 1.
//
// dims_and_strides is null when both operands are contiguous. Otherwise it holds dims, strides of
// lhs and strides of rhs. A broadcast dim has the stride 0.
#include "elementwise.h"

#include <math.h>
#if defined(__HIP__)
#include <uhal/hip/inverse_functions.h>
#endif

// The functions of <math.h> under one name for both types.
#define BOTH_FLOATS_1(name)                                                                        \
    DEVICE_FUNCTION f32 name##_of(f32 x) { return name##f(x); }                                    \
    DEVICE_FUNCTION f64 name##_of(f64 x) { return name(x); }
#define BOTH_FLOATS_2(name)                                                                        \
    DEVICE_FUNCTION f32 name##_of(f32 x, f32 y) { return name##f(x, y); }                          \
    DEVICE_FUNCTION f64 name##_of(f64 x, f64 y) { return name(x, y); }
BOTH_FLOATS_1(exp)
BOTH_FLOATS_1(fabs)
BOTH_FLOATS_1(floor)
BOTH_FLOATS_1(log1p)
BOTH_FLOATS_1(sqrt)
BOTH_FLOATS_2(atan2)
BOTH_FLOATS_2(copysign)
BOTH_FLOATS_2(fmod)
BOTH_FLOATS_2(pow)

// C's remainder, with the sign of a. Integers divided by zero leave 0.
template <class T> DEVICE_FUNCTION T modulus(T a, T b) {
    if constexpr (Number<T>::is_integer)
        return b == 0 || (is_signed<T> && b == T(-1)) ? T(0) : T(a % b);
    else
        return fmod_of(a, b);
}

// Python's remainder, with the sign of b.
template <class T> DEVICE_FUNCTION T remainder_of(T a, T b) {
    const T rest = modulus(a, b);
    if constexpr (Number<T>::is_integer)
        return rest != 0 && (rest < 0) != (b < 0) ? add(rest, b) : rest;
    else
        return rest == T(0) ? copysign_of(T(0), b) : (rest < T(0)) != (b < T(0)) ? rest + b : rest;
}

// Python's quotient, rounded down. Integers divided by zero are 0.
template <class T> DEVICE_FUNCTION T floor_quotient(T a, T b) {
    if constexpr (Number<T>::is_integer) {
        const T rest = modulus(a, b);
        return subtract(divide(a, b), T(rest != 0 && (rest < 0) != (b < 0)));
    } else {
        if (b == T(0))
            return a / b;
        // a minus its remainder is a multiple of b, so only the quotient is rounded.
        const T rest = fmod_of(a, b);
        const T below = rest != T(0) && (rest < T(0)) != (b < T(0)) ? T(1) : T(0);
        const T quotient = (a - rest) / b - below;
        const T whole = floor_of(quotient);
        const T nearest = quotient - whole > T(0.5) ? whole + T(1) : whole;
        return quotient == T(0) ? copysign_of(T(0), a / b) : nearest;
    }
}

// Integers wrap. A negative power is truncated towards 0, and a negative power of 0 is 0.
template <class T> DEVICE_FUNCTION T power(T a, T b) {
    if constexpr (Number<T>::is_integer) {
        if (is_signed<T> && b < 0)
            return a == T(1) ? T(1) : a == T(-1) ? T((b & 1) != 0 ? -1 : 1) : T(0);
        T result = T(1);
        for (Modular<T> left = Modular<T>(b); left != 0; left >>= 1) {
            result = (left & 1) != 0 ? multiply(result, a) : result;
            a = multiply(a, a);
        }
        return result;
    } else {
        return pow_of(a, b);
    }
}

// Divides by the larger number, so that no square overflows.
template <class T> DEVICE_FUNCTION T hypotenuse(T a, T b) {
    const T one = fabs_of(a), other = fabs_of(b);
    const T large = one > other ? one : other;
    const T ratio = (one > other ? other : one) / large;
    const T found = large == T(0) ? large : large * sqrt_of(T(1) + ratio * ratio);
    const T infinite = T(INFINITY);
    return one == infinite || other == infinite ? infinite : is_nan(a) || is_nan(b) ? a + b : found;
}

template <class T> DEVICE_FUNCTION T log_of_sum(T a, T b) {
    const T large = maximum(a, b), small = minimum(a, b);
    // The difference of equal infinities would be NaN.
    return a == b ? a + T(0.6931471805599453) : large + log1p_of(exp_of(small - large));
}

template <class T> constexpr T BITS = T(8 * sizeof(T));

// Bits that are shifted beyond either end are lost.
template <class T> DEVICE_FUNCTION T left_shift(T a, T b) {
    return b >= 0 && b < BITS<T> ? T(Modular<T>(a) << Modular<T>(b)) : T(0);
}

template <class T> DEVICE_FUNCTION T right_shift(T a, T b) {
    const bool inside = b >= 0 && b < BITS<T>;
    return inside ? T(a >> b) : is_signed<T> && a < 0 ? T(-1) : T(0);
}

#define OPERATION(Name, Result, result)                                                            \
    struct Name {                                                                                  \
        template <class T> DEVICE_METHOD Result operator()(T a, T b) const { return result; }      \
    };

#define LONG_OPERATION(Name, Result, result)                                                       \
    struct Name : LongFunction {                                                                   \
        template <class T> DEVICE_METHOD Result operator()(T a, T b) const { return result; }      \
    };

OPERATION(Add, T, add(a, b))
OPERATION(Subtract, T, subtract(a, b))
OPERATION(Multiply, T, multiply(a, b))
LONG_OPERATION(Divide, T, divide(a, b))
OPERATION(Maximum, T, maximum(a, b))
OPERATION(Minimum, T, minimum(a, b))
LONG_OPERATION(ArcTangent, T, atan2_of(a, b))
LONG_OPERATION(Modulus, T, modulus(a, b))
LONG_OPERATION(Remainder, T, remainder_of(a, b))
LONG_OPERATION(FloorQuotient, T, floor_quotient(a, b))
LONG_OPERATION(Power, T, power(a, b))
LONG_OPERATION(Hypotenuse, T, hypotenuse(a, b))
LONG_OPERATION(LogOfSum, T, log_of_sum(a, b))
#if !KERNEL_ON_GPU
#include "division_groups.h"
#endif
// Of bits: a conversion to f32 may lose the sign of a NaN.
OPERATION(CopySign, T, T((a & T(~T(0)) >> 1) | (b & ~(T(~T(0)) >> 1))))
OPERATION(And, T, T(a &b))
OPERATION(Or, T, T(a | b))
OPERATION(ExclusiveOr, T, T(a ^ b))
OPERATION(LeftShift, T, left_shift(a, b))
OPERATION(RightShift, T, right_shift(a, b))
OPERATION(Equal, u8, a == b)
OPERATION(NotEqual, u8, a != b)
OPERATION(Less, u8, a < b)
OPERATION(LessOrEqual, u8, a <= b)
OPERATION(Greater, u8, a > b)
OPERATION(GreaterOrEqual, u8, a >= b)

template <class T>
DEVICE_FUNCTION Operand<T> operand(const T *values, u64 num_dims, const u64 *info, u64 position) {
    return Operand<T>(values, num_dims, info, info + num_dims * position);
}

#define BINARY(entry, T, Out, Operation)                                                           \
    KERNEL(entry, (u64 numel, u64 num_dims, const u64 *dims_and_strides, const T *lhs,             \
                   const T *rhs, Out *out)) {                                                      \
        map(THIS_BLOCK, numel, out, Operation{}, operand(lhs, num_dims, dims_and_strides, 1),      \
            operand(rhs, num_dims, dims_and_strides, 2));                                          \
    }

#define ARITHMETIC(name, T)                                                                        \
    BINARY(badd_##name, T, T, Add)                                                                 \
    BINARY(bsub_##name, T, T, Subtract)                                                            \
    BINARY(bmul_##name, T, T, Multiply)                                                            \
    BINARY(bdiv_##name, T, T, Divide)                                                              \
    BINARY(bmaximum_##name, T, T, Maximum)                                                         \
    BINARY(bminimum_##name, T, T, Minimum)

#define FUNCTION(name, T) BINARY(batan2_##name, T, T, ArcTangent)

#define DIVISION(name, T)                                                                          \
    BINARY(mod_##name, T, T, Modulus)                                                              \
    BINARY(bremainder_##name, T, T, Remainder)                                                     \
    BINARY(bfloor_divide_##name, T, T, FloorQuotient)                                              \
    BINARY(bpow_##name, T, T, Power)

#define OF_REALS(name, T)                                                                          \
    DIVISION(name, T)                                                                              \
    BINARY(bhypot_##name, T, T, Hypotenuse)                                                        \
    BINARY(blogaddexp_##name, T, T, LogOfSum)                                                      \
    KERNEL(bcopysign_##name, (u64 numel, u64 num_dims, const u64 *dims_and_strides, const T *lhs,   \
                              const T *rhs, T *out)) {                                             \
        map(THIS_BLOCK, numel, words(out), CopySign{},                                             \
            operand(words(lhs), num_dims, dims_and_strides, 1),                                    \
            operand(words(rhs), num_dims, dims_and_strides, 2));                                   \
    }

#define OF_INTEGERS(name, T)                                                                       \
    DIVISION(name, T)                                                                              \
    BINARY(band_##name, T, T, And)                                                                 \
    BINARY(bor_##name, T, T, Or)                                                                   \
    BINARY(bxor_##name, T, T, ExclusiveOr)                                                         \
    BINARY(bshl_##name, T, T, LeftShift)                                                           \
    BINARY(bshr_##name, T, T, RightShift)

#define COMPARISON(name, T)                                                                        \
    BINARY(eq_##name, T, u8, Equal)                                                                \
    BINARY(ne_##name, T, u8, NotEqual)                                                             \
    BINARY(lt_##name, T, u8, Less)                                                                 \
    BINARY(le_##name, T, u8, LessOrEqual)                                                          \
    BINARY(gt_##name, T, u8, Greater)                                                              \
    BINARY(ge_##name, T, u8, GreaterOrEqual)

#define EACH_REAL(KIND)                                                                            \
    KIND(bf16, bf16)                                                                               \
    KIND(f16, f16)                                                                                 \
    KIND(f32, f32)                                                                                 \
    KIND(f64, f64)
#define EACH_FLOAT(KIND)                                                                           \
    EACH_REAL(KIND)                                                                                \
    KIND(f8e4m3, f8e4m3)                                                                           \
    KIND(f8_e4m3, f8e4m3)
#define EACH_INTEGER(KIND)                                                                         \
    KIND(u8, u8)                                                                                   \
    KIND(u32, u32)                                                                                 \
    KIND(u64, u64)                                                                                 \
    KIND(i16, i16)                                                                                 \
    KIND(i32, i32)                                                                                 \
    KIND(i64, i64)
#define EACH_TYPE(KIND)                                                                            \
    EACH_FLOAT(KIND)                                                                               \
    EACH_INTEGER(KIND)

EACH_TYPE(ARITHMETIC)
EACH_FLOAT(FUNCTION)
EACH_TYPE(COMPARISON)
EACH_REAL(OF_REALS)
EACH_INTEGER(OF_INTEGERS)
