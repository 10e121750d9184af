#ifndef UHAL_HIP_POWER_H
#define UHAL_HIP_POWER_H

/* pow and expm1 for AMD devices, in plain arithmetic like the functions of functions.h, which must
 * be included before.
 */

struct uhal_pair {
    double high;
    double low;
};

UHAL_MATH uhal_pair uhal_product(double x, double y) {
    const double high = x * y;
    return {high, __builtin_fma(x, y, -high)};
}

/* For |x| >= |y|. */
UHAL_MATH uhal_pair uhal_ordered_sum(double x, double y) {
    const double high = x + y;
    return {high, x - high + y};
}

/* log x of a positive finite x to about 2^-66. */
UHAL_MATH uhal_pair uhal_precise_log(double x) {
    int exponent;
    double fraction = __builtin_frexp(x, &exponent);
    if (fraction < 0x1.6a09e667f3bcdp-1) {
        fraction *= 2.0;
        exponent -= 1;
    }
    /* log f = 2 (s + s^3/3 + s^5/5 + …), s = (f - 1) / (f + 1); the first two terms in pairs. */
    const double above = fraction - 1.0;
    const uhal_pair below = uhal_ordered_sum(fraction >= 1.0 ? fraction : 1.0,
                                             fraction >= 1.0 ? 1.0 : fraction);
    const double s = above / below.high;
    const double s_rest =
        (__builtin_fma(-s, below.high, above) - s * below.low) / below.high;
    const uhal_pair square = uhal_product(s, s);
    const double square_rest = __builtin_fma(2.0 * s, s_rest, square.low);
    double sum = 2.0 / 25.0;
    sum = __builtin_fma(sum, square.high, 2.0 / 23.0);
    sum = __builtin_fma(sum, square.high, 2.0 / 21.0);
    sum = __builtin_fma(sum, square.high, 2.0 / 19.0);
    sum = __builtin_fma(sum, square.high, 2.0 / 17.0);
    sum = __builtin_fma(sum, square.high, 2.0 / 15.0);
    sum = __builtin_fma(sum, square.high, 2.0 / 13.0);
    sum = __builtin_fma(sum, square.high, 2.0 / 11.0);
    sum = __builtin_fma(sum, square.high, 2.0 / 9.0);
    sum = __builtin_fma(sum, square.high, 2.0 / 7.0);
    sum = __builtin_fma(sum, square.high, 2.0 / 5.0);
    const uhal_pair cube = uhal_product(square.high, s);
    const double cube_rest =
        cube.low + __builtin_fma(square.high, s_rest, square_rest * s);
    const uhal_pair third = uhal_product(cube.high, 2.0 / 3.0);
    const double third_rest =
        third.low + __builtin_fma(cube.high, 0x1.5555555555555p-55, cube_rest * (2.0 / 3.0));
    const double tail = sum * square.high * cube.high;

    const double count = exponent;
    /* The first part of ln 2 ends in zeros, so its product with the exponent is exact. */
    const uhal_pair first = uhal_ordered_sum(count * 0x1.62e42fefa0000p-1, 2.0 * s);
    const bool scaled = exponent != 0;
    const double base = scaled ? first.high : 2.0 * s;
    const double base_rest = scaled ? first.low : 0.0;
    const uhal_pair second = uhal_ordered_sum(base, third.high);
    const double low = base_rest + second.low + 2.0 * s_rest + third_rest + tail +
                       count * 0x1.cf79abc9e3b3ap-40;
    return uhal_ordered_sum(second.high, low);
}

/* e^(high + low) for a low far below high. */
UHAL_MATH double uhal_exp_of_pair(double high, double low) {
    const double bounded = __builtin_fmin(__builtin_fmax(high, -800.0), 800.0);
    const double count = __builtin_rint(bounded * 0x1.71547652b82fep+0);
    double rest = __builtin_fma(count, -0x1.62e42fefa0000p-1, bounded);
    rest = __builtin_fma(count, -0x1.cf79abc9e3b3ap-40, rest) + low;
    return __builtin_ldexp(1.0 + uhal_expm1_near_0(rest), static_cast<int>(count));
}

UHAL_MATH double pow(double x, double y) {
    const bool is_whole = __builtin_trunc(y) == y;
    const double half = 0.5 * y;
    const bool is_odd = is_whole && __builtin_trunc(half) != half;
    const double magnitude = __builtin_fabs(x);
    const double sign = is_odd && __builtin_signbit(x) ? -1.0 : 1.0;
    if (y == 0.0 || x == 1.0 || (x == -1.0 && __builtin_isinf(y)))
        return 1.0;
    if (__builtin_isnan(x) || __builtin_isnan(y))
        return x + y;
    if (__builtin_isinf(y))
        return (magnitude > 1.0) == (y > 0.0) ? __builtin_inf() : 0.0;
    if (magnitude == 0.0 || __builtin_isinf(x))
        return sign * ((magnitude == 0.0) == (y > 0.0) ? 0.0 : __builtin_inf());
    if (x < 0.0 && !is_whole)
        return __builtin_nan("");
    const uhal_pair logarithm = uhal_precise_log(magnitude);
    const uhal_pair exponent = uhal_product(y, logarithm.high);
    /* An exponent that overflows has no remainder. */
    const double rest = __builtin_fabs(exponent.high) < 800.0
                            ? __builtin_fma(y, logarithm.low, exponent.low)
                            : 0.0;
    return sign * uhal_exp_of_pair(exponent.high, rest);
}

UHAL_MATH double expm1(double x) {
    const double bounded = __builtin_fmin(__builtin_fmax(x, -60.0), 710.0);
    if (__builtin_fabs(bounded) < 0.34)
        return x == 0.0 ? x : uhal_expm1_near_0(x);
    const double count = __builtin_rint(bounded * 0x1.71547652b82fep+0);
    double rest = __builtin_fma(count, -0x1.62e42fefa0000p-1, bounded);
    rest = __builtin_fma(count, -0x1.cf79abc9e3b3ap-40, rest);
    /* Half of the power: the whole power may be infinite before the multiplication. */
    const double power = __builtin_ldexp(0.5, static_cast<int>(count));
    const double result = __builtin_fma(power, uhal_expm1_near_0(rest), power - 0.5) * 2.0;
    return __builtin_isnan(x) ? x : result;
}

UHAL_MATH float expm1f(float x) { return static_cast<float>(expm1(static_cast<double>(x))); }

#endif
