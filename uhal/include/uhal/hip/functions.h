#ifndef UHAL_HIP_FUNCTIONS_H
#define UHAL_HIP_FUNCTIONS_H

/* Functions of <math.h> that the compiler lacks for AMD devices, in plain arithmetic, so that a
 * test runs them on a CPU. Functions of f64 are within three ulp. Functions of f32 are computed in
 * f64 and rounded once, which hardly ever misses the nearest value. Infinities, NaN and zeros are
 * as in C's Annex F. <uhal/hip/math.h> includes this and defines UHAL_MATH.
 */

/* e^x - 1 for |x| <= 0.35: the Taylor series, whose remainder is below half an ulp after x^14. */
UHAL_MATH double uhal_expm1_near_0(double x) {
    double sum = 1.0 / 87178291200.0;
    sum = __builtin_fma(sum, x, 1.0 / 6227020800.0);
    sum = __builtin_fma(sum, x, 1.0 / 479001600.0);
    sum = __builtin_fma(sum, x, 1.0 / 39916800.0);
    sum = __builtin_fma(sum, x, 1.0 / 3628800.0);
    sum = __builtin_fma(sum, x, 1.0 / 362880.0);
    sum = __builtin_fma(sum, x, 1.0 / 40320.0);
    sum = __builtin_fma(sum, x, 1.0 / 5040.0);
    sum = __builtin_fma(sum, x, 1.0 / 720.0);
    sum = __builtin_fma(sum, x, 1.0 / 120.0);
    sum = __builtin_fma(sum, x, 1.0 / 24.0);
    sum = __builtin_fma(sum, x, 1.0 / 6.0);
    sum = __builtin_fma(sum, x, 0.5);
    return __builtin_fma(sum * x, x, x);
}

UHAL_MATH double exp(double x) {
    /* Beyond these bounds the result is infinite or zero; the bounds keep the exponent an int. */
    const double bounded = __builtin_fmin(__builtin_fmax(x, -800.0), 800.0);
    const double count = __builtin_rint(bounded * 0x1.71547652b82fep+0);
    /* ln 2 in two parts; the first has zeros at the end, so that its multiples are exact. */
    double rest = __builtin_fma(count, -0x1.62e42fefa0000p-1, bounded);
    rest = __builtin_fma(count, -0x1.cf79abc9e3b3ap-40, rest);
    const double power = 1.0 + uhal_expm1_near_0(rest);
    return __builtin_isnan(x) ? x : __builtin_ldexp(power, static_cast<int>(count));
}

UHAL_MATH double log(double x) {
    int exponent;
    double fraction = __builtin_frexp(x, &exponent);
    /* Moves the fraction from the range 1/2 … 1 to the range sqrt(1/2) … sqrt(2). */
    if (fraction < 0x1.6a09e667f3bcdp-1) {
        fraction *= 2.0;
        exponent -= 1;
    }
    /* log f = 2 artanh s with s = (f - 1) / (f + 1), |s| <= 0.172. */
    const double s = (fraction - 1.0) / (fraction + 1.0);
    const double square = s * s;
    double sum = 2.0 / 23.0;
    sum = __builtin_fma(sum, square, 2.0 / 21.0);
    sum = __builtin_fma(sum, square, 2.0 / 19.0);
    sum = __builtin_fma(sum, square, 2.0 / 17.0);
    sum = __builtin_fma(sum, square, 2.0 / 15.0);
    sum = __builtin_fma(sum, square, 2.0 / 13.0);
    sum = __builtin_fma(sum, square, 2.0 / 11.0);
    sum = __builtin_fma(sum, square, 2.0 / 9.0);
    sum = __builtin_fma(sum, square, 2.0 / 7.0);
    sum = __builtin_fma(sum, square, 2.0 / 5.0);
    sum = __builtin_fma(sum, square, 2.0 / 3.0);
    const double count = exponent;
    const double small = __builtin_fma(count, 0x1.cf79abc9e3b3ap-40, sum * square * s);
    const double result = __builtin_fma(count, 0x1.62e42fefa0000p-1, 2.0 * s + small);
    if (x == 0.0)
        return -__builtin_inf();
    if (x < 0.0)
        return __builtin_nan("");
    return __builtin_isfinite(x) ? result : x;
}

UHAL_MATH double tanh(double x) {
    /* Beyond 20 the result is 1. (e^2x - 1) / (e^2x + 1), with e^2x - 1 computed from parts that do
     * not cancel. */
    const double twice = __builtin_fmin(2.0 * __builtin_fabs(x), 40.0);
    const double count = __builtin_rint(twice * 0x1.71547652b82fep+0);
    double rest = __builtin_fma(count, -0x1.62e42fefa0000p-1, twice);
    rest = __builtin_fma(count, -0x1.cf79abc9e3b3ap-40, rest);
    const double power = __builtin_ldexp(1.0, static_cast<int>(count));
    const double minus_one = __builtin_fma(power, uhal_expm1_near_0(rest), power - 1.0);
    return __builtin_isnan(x) ? x : __builtin_copysign(minus_one / (minus_one + 2.0), x);
}

UHAL_MATH float tanhf(float x) { return static_cast<float>(tanh(static_cast<double>(x))); }

UHAL_MATH float powf(float x, float y) {
    const bool is_whole = __builtin_truncf(y) == y;
    const bool is_odd =
        is_whole && __builtin_fabsf(y) < 0x1p24f && (static_cast<int>(y) & 1) != 0;
    const double magnitude = __builtin_fabs(static_cast<double>(x));
    if (y == 0.0f || x == 1.0f || (x == -1.0f && __builtin_isinf(y)))
        return 1.0f;
    if (x < 0.0f && !__builtin_isinf(x) && !is_whole && !__builtin_isnan(y))
        return __builtin_nanf("");
    const float result = static_cast<float>(exp(static_cast<double>(y) * log(magnitude)));
    return is_odd && __builtin_signbit(x) ? -result : result;
}

#endif
