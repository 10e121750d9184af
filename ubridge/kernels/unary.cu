// Unary operations: out = f(inp) elementwise, `u<operation>_<type>`.
//
// info is null for a contiguous inp; otherwise it holds dims and strides of inp. inp null means in
// place: the operation then reads out, in row-major order like every result.
#include "element_tiles.h"
#include "inverse_error.h"
#include "logistic.h"

#include <math.h>
#if defined(__HIP__)
#include <uhal/hip/inverse_functions.h>
#endif

// The functions of <math.h> under one name for both types.
#define BOTH_FLOATS(name)                                                                          \
    DEVICE_FUNCTION f32 name##_of(f32 x) { return name##f(x); }                                    \
    DEVICE_FUNCTION f64 name##_of(f64 x) { return name(x); }
BOTH_FLOATS(exp)
BOTH_FLOATS(expm1)
BOTH_FLOATS(log)
BOTH_FLOATS(log1p)
BOTH_FLOATS(sin)
BOTH_FLOATS(cos)
BOTH_FLOATS(tan)
BOTH_FLOATS(asin)
BOTH_FLOATS(acos)
BOTH_FLOATS(atan)
BOTH_FLOATS(sinh)
BOTH_FLOATS(cosh)
BOTH_FLOATS(tanh)
BOTH_FLOATS(log2)
BOTH_FLOATS(log10)
BOTH_FLOATS(erf)
BOTH_FLOATS(erfc)
BOTH_FLOATS(ceil)
BOTH_FLOATS(floor)
BOTH_FLOATS(trunc)
BOTH_FLOATS(fabs)
BOTH_FLOATS(sqrt)
DEVICE_FUNCTION f32 pow_of(f32 x, f32 y) { return powf(x, y); }
DEVICE_FUNCTION f64 pow_of(f64 x, f64 y) { return pow(x, y); }
DEVICE_FUNCTION f32 fma_of(f32 x, f32 y, f32 z) { return fmaf(x, y, z); }
DEVICE_FUNCTION f64 fma_of(f64 x, f64 y, f64 z) { return fma(x, y, z); }

#define OPERATION(Name, result)                                                                    \
    struct Name {                                                                                  \
        template <class T> DEVICE_METHOD T operator()(T x) const { return result; }                \
    };
#define LONG_OPERATION(Name, result)                                                               \
    struct Name : LongFunction {                                                                   \
        template <class T> DEVICE_METHOD T operator()(T x) const { return result; }                \
    };

template <class T> DEVICE_FUNCTION T absolute(T x)
{
    if constexpr (Number<T>::is_integer)
        return is_signed<T> && x < T(0) ? subtract(T(0), x) : x;
    else
        return fabs_of(x);
}

// Half away from zero, exactly: the sum x + 0.5 would itself be rounded.
template <class T> DEVICE_FUNCTION T rounded(T x)
{
    const T whole = trunc_of(x);
    const T away = whole + (x < T(0) ? T(-1) : T(1));
    return fabs_of(x - whole) >= T(0.5) ? away : whole;
}

// A number as the sum of a T and its rounding error.
template <class T> struct Double {
    T head, tail;
};

// A constant, given as the nearest f64 and its rounding error.
template <class T> DEVICE_FUNCTION Double<T> constant(f64 nearest, f64 lacks)
{
    return {T(nearest), T((nearest - f64(T(nearest))) + lacks)};
}

template <class T> DEVICE_FUNCTION Double<T> product(Double<T> x, Double<T> y)
{
    const T head = x.head * y.head;
    return {head, fma_of(x.head, y.head, -head) + (x.head * y.tail + x.tail * y.head)};
}

// 1 + x y for x y >= 0. Every product is in an fma, as a compiler may fuse any other product.
template <class T> DEVICE_FUNCTION Double<T> product_and_one(Double<T> x, Double<T> y)
{
    const T head = fma_of(x.head, y.head, T(1));
    const T lost = fma_of(x.head, y.head, T(1) - head);
    return {head, lost + (x.head * y.tail + x.tail * y.head)};
}

// erfc(-x sqrt(1/2)) / 2. For z > 0 the logarithm of erfc(z) has a slope of about -2 z, which
// magnifies the rounding error of z; beyond 40 every erfc is 0.
template <class T> DEVICE_FUNCTION T normal_distribution(T x)
{
    const Double<T> z = product({-x, T(0)}, constant<T>(0.7071067811865476, -4.833646656726457e-17));
    const T share = erfc_of(z.head);
    const bool falls = z.head > T(1) && z.head < T(40);
    return T(0.5) * (falls ? share - share * (T(2) * z.head * z.tail) : share);
}

// 0.5 x (1 + tanh u) with u = sqrt(2/pi) (x + 0.044715 x^3), as x / (1 + e^-2u): the first form
// cancels for negative x. The power magnifies the rounding error of 2u by 2u itself. Beyond 64 the
// power is 0 or infinite.
template <class T> DEVICE_FUNCTION T gelu(T x)
{
    const T near = x > T(64) ? T(64) : x < T(-64) ? T(-64) : x;
    const Double<T> argument = {near, T(0)};
    const Double<T> cubic = constant<T>(0.044715, 2.1960211427085595e-18);
    const Double<T> sum = product_and_one(cubic, product(argument, argument));
    const Double<T> twice_u =
        product(product(constant<T>(1.5957691216057308, -9.96930880911092e-17), argument), sum);
    return logistic(twice_u.head, x, T(1), twice_u.tail);
}

// Inverse hyperbolic functions from functions that every device has. Beyond 2^27 a square may be
// infinite, and the terms left out are below a rounding.
template <class T> DEVICE_FUNCTION T acosh_of(T x)
{
    const T above = x - T(1);
    return x > T(0x1p27) ? log_of(x) + T(0.6931471805599453)
                         : log1p_of(above + sqrt_of(above * (above + T(2))));
}

template <class T> DEVICE_FUNCTION T asinh_of(T x)
{
    const T size = fabs_of(x);
    const T square = size * size;
    const T found = size > T(0x1p27) ? log_of(size) + T(0.6931471805599453)
                                     : log1p_of(size + square / (T(1) + sqrt_of(square + T(1))));
    return x < T(0) ? -found : x == T(0) ? x : found;
}

template <class T> DEVICE_FUNCTION T atanh_of(T x)
{
    const T size = fabs_of(x);
    const T found = T(0.5) * log1p_of(T(2) * size / (T(1) - size));
    return x < T(0) ? -found : x == T(0) ? x : found;
}

template <class T> DEVICE_FUNCTION T sign(T x)
{
    if constexpr (!is_signed<T>)
        return T(x != T(0));
    else
        return is_nan(x) ? x : T(x > T(0)) - T(x < T(0));
}

OPERATION(Negate, subtract(T(0), x))
OPERATION(NegateFloat, -x)
LONG_OPERATION(Reciprocal, T(1) / x)
LONG_OPERATION(Exp, exp_of(x))
LONG_OPERATION(ExpLessOne, expm1_of(x))
LONG_OPERATION(Log, log_of(x))
LONG_OPERATION(LogOfOneMore, log1p_of(x))
LONG_OPERATION(Sin, sin_of(x))
LONG_OPERATION(Cos, cos_of(x))
LONG_OPERATION(Tan, tan_of(x))
LONG_OPERATION(ArcSine, asin_of(x))
LONG_OPERATION(ArcCosine, acos_of(x))
LONG_OPERATION(ArcTangent, atan_of(x))
LONG_OPERATION(HyperbolicSine, sinh_of(x))
LONG_OPERATION(HyperbolicCosine, cosh_of(x))
LONG_OPERATION(Tanh, tanh_of(x))
LONG_OPERATION(InverseHyperbolicSine, asinh_of(x))
LONG_OPERATION(InverseHyperbolicCosine, acosh_of(x))
LONG_OPERATION(InverseHyperbolicTangent, atanh_of(x))
LONG_OPERATION(LogTwo, log2_of(x))
LONG_OPERATION(LogTen, log10_of(x))
LONG_OPERATION(ReciprocalRoot, T(1) / sqrt_of(x))
OPERATION(Truncate, trunc_of(x))
LONG_OPERATION(Erf, erf_of(x))
LONG_OPERATION(InverseError, inverse_error(x))
OPERATION(Ceil, ceil_of(x))
OPERATION(Floor, floor_of(x))
OPERATION(Round, rounded(x))
OPERATION(Absolute, absolute(x))
OPERATION(Square, multiply(x, x))
LONG_OPERATION(SquareRoot, sqrt_of(x))
LONG_OPERATION(Gelu, gelu(x))
#if !KERNEL_ON_GPU && defined(__AVX512F__)
#include "normal.h"
DEVICE_FUNCTION f32 normal_distribution(f32 x)
{
    return normal_distribution(x, 1.0f);
}
struct GeluErf : LongFunction {
    f32 operator()(f32 x) const { return normal_distribution(x, x); }
    f64 operator()(f64 x) const { return x * normal_distribution(x); }
};
#else
LONG_OPERATION(GeluErf, x * normal_distribution(x))
#endif
LONG_OPERATION(NormalDistribution, normal_distribution(x))
OPERATION(Relu, x <= T(0) ? T(0) : x)
OPERATION(Sign, sign(x))

// For results of type T.
template <class T> struct Silu : LongFunction {
    DEVICE_METHOD Compute<T> operator()(Compute<T> x) const { return logistic_for<T>(x, x); }
};
template <class T> struct Sigmoid : LongFunction {
    DEVICE_METHOD Compute<T> operator()(Compute<T> x) const
    {
        return logistic_for<T>(x, Compute<T>(1));
    }
};

template <class T> struct Elu : LongFunction {
    T alpha;
    DEVICE_METHOD explicit Elu(T given) : alpha(given) {}
    DEVICE_METHOD T operator()(T x) const { return x > T(0) ? x : alpha * expm1_of(x); }
};

template <class T> struct Power : LongFunction {
    T exponent;
    DEVICE_METHOD explicit Power(T given) : exponent(given) {}
    DEVICE_METHOD T operator()(T x) const { return pow_of(x, exponent); }
};

// Reads out where inp is null.
template <class T>
DEVICE_FUNCTION Operand<T> input(u64 num_dims, const u64 *info, const T *inp, const T *out)
{
    const bool reads_out = inp == nullptr;
    return Operand<T>(reads_out ? out : inp, num_dims, reads_out ? nullptr : info, info + num_dims);
}

#define UNARY(entry, T, Operation)                                                                 \
    KERNEL(entry, (u64 numel, u64 num_dims, const u64 *info, const T *inp, T *out))                \
    {                                                                                              \
        map(THIS_BLOCK, numel, out, Operation{}, input(num_dims, info, inp, out));                 \
    }
#define UNARY_FOR(entry, T, Operation) UNARY(entry, T, Operation<Digits<T>>)
// The same bits again.
#define COPY(entry, T)                                                                             \
    KERNEL(entry, (u64 numel, u64 num_dims, const u64 *info, const T *inp, T *out))                \
    {                                                                                              \
        copy(THIS_BLOCK, numel, words(out), input(num_dims, info, words(inp), words(out)));        \
    }
#define UNARY_WITH_PARAMETER(entry, T, Operation)                                                  \
    KERNEL(entry, (u64 numel, u64 num_dims, const u64 *info, T param, const T *inp, T *out))       \
    {                                                                                              \
        map(THIS_BLOCK, numel, out, Operation<Compute<T>>{widen(param)},                           \
            input(num_dims, info, inp, out));                                                      \
    }

// f8e4m3 under the name that Candle requests, and under the name in its kernels.
#define FLOATS(KIND, root, Operation)                                                              \
    KIND(root##_bf16, bf16, Operation)                                                             \
    KIND(root##_f16, f16, Operation)                                                               \
    KIND(root##_f32, f32, Operation)                                                               \
    KIND(root##_f64, f64, Operation)                                                               \
    KIND(root##_f8e4m3, f8e4m3, Operation)                                                         \
    KIND(root##_fp8_e4m3, f8e4m3, Operation)
// Types of the operations that Candle lacks.
#define REALS(root, Operation)                                                                     \
    UNARY(root##_bf16, bf16, Operation)                                                            \
    UNARY(root##_f16, f16, Operation)                                                              \
    UNARY(root##_f32, f32, Operation)                                                              \
    UNARY(root##_f64, f64, Operation)
#define INTEGERS(root, Operation)                                                                  \
    UNARY(root##_u8, u8, Operation)                                                                \
    UNARY(root##_u32, u32, Operation)                                                              \
    UNARY(root##_i16, i16, Operation)                                                              \
    UNARY(root##_i32, i32, Operation)                                                              \
    UNARY(root##_i64, i64, Operation)

COPY(ucopy_bf16, bf16)
COPY(ucopy_f16, f16)
COPY(ucopy_f32, f32)
COPY(ucopy_f64, f64)
COPY(ucopy_f8e4m3, f8e4m3)
COPY(ucopy_f8_e4m3, f8e4m3)
COPY(ucopy_u8, u8)
COPY(ucopy_u32, u32)
COPY(ucopy_i16, i16)
COPY(ucopy_i32, i32)
COPY(ucopy_i64, i64)

FLOATS(UNARY, uneg, NegateFloat)
FLOATS(UNARY, urecip, Reciprocal)
FLOATS(UNARY, uexp, Exp)
FLOATS(UNARY, uexpm1, ExpLessOne)
FLOATS(UNARY, ulog, Log)
FLOATS(UNARY, ulog1p, LogOfOneMore)
FLOATS(UNARY, usin, Sin)
FLOATS(UNARY, ucos, Cos)
FLOATS(UNARY, utanh, Tanh)
FLOATS(UNARY, uerf, Erf)
FLOATS(UNARY, uerfinv, InverseError)
FLOATS(UNARY, uceil, Ceil)
FLOATS(UNARY, ufloor, Floor)
FLOATS(UNARY, uround, Round)
FLOATS(UNARY, unormcdf, NormalDistribution)
FLOATS(UNARY, uabs, Absolute)
FLOATS(UNARY, usqr, Square)
FLOATS(UNARY, usqrt, SquareRoot)
FLOATS(UNARY, ugelu, Gelu)
FLOATS(UNARY, ugelu_erf, GeluErf)
FLOATS(UNARY, urelu, Relu)
FLOATS(UNARY_FOR, usilu, Silu)
FLOATS(UNARY, usign, Sign)
FLOATS(UNARY_FOR, usigmoid, Sigmoid)
FLOATS(UNARY_WITH_PARAMETER, uelu, Elu)
FLOATS(UNARY_WITH_PARAMETER, upowf, Power)

REALS(utan, Tan)
REALS(uasin, ArcSine)
REALS(uacos, ArcCosine)
REALS(uatan, ArcTangent)
REALS(usinh, HyperbolicSine)
REALS(ucosh, HyperbolicCosine)
REALS(uasinh, InverseHyperbolicSine)
REALS(uacosh, InverseHyperbolicCosine)
REALS(uatanh, InverseHyperbolicTangent)
REALS(ulog2, LogTwo)
REALS(ulog10, LogTen)
REALS(ursqrt, ReciprocalRoot)
REALS(utrunc, Truncate)

INTEGERS(uneg, Negate)
INTEGERS(uabs, Absolute)
INTEGERS(usqr, Square)
INTEGERS(urelu, Relu)
INTEGERS(usign, Sign)
// Integers are whole already.
#define WHOLE(root)                                                                                \
    COPY(root##_u8, u8)                                                                            \
    COPY(root##_u32, u32)                                                                          \
    COPY(root##_i16, i16)                                                                          \
    COPY(root##_i32, i32)                                                                          \
    COPY(root##_i64, i64)
WHOLE(uceil)
WHOLE(ufloor)
WHOLE(uround)
WHOLE(utrunc)
