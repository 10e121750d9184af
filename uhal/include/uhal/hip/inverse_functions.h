/* Rarer functions for AMD devices, in plain arithmetic like those of functions.h. A kernel that
 * needs these functions includes this header besides <math.h>, on AMD devices only.
 *
 * f64 is within 3 ulp; f32 is computed in f64 and rounded once.
 */
#ifndef UHAL_HIP_INVERSE_FUNCTIONS_H
#define UHAL_HIP_INVERSE_FUNCTIONS_H

#ifndef UHAL_MATH
#define UHAL_MATH static inline __attribute__((device, always_inline))
#endif

UHAL_MATH double log1p(double x) {
    const double sum = 1.0 + x;
    /* The rounding error of the sum, if it is finite: ln(s + r) is about ln s + r / s. */
    const double lost = x - (sum - 1.0);
    const double corrected = log(sum) + lost / sum;
    const double result = sum > 0.0 && sum < __builtin_inf() ? corrected : log(sum);
    /* Below half a rounding of 1 the sum has no information. The sign of 0 stays. */
    return __builtin_fabs(x) < 0x1p-54 ? x : result;
}

/* For x >= 0, infinite included. The argument is reduced to -7/16 … 7/16 by the angles whose
 * tangents are 1/2, 1, 3/2 and infinite, in two parts each. The polynomial comes from fdlibm's
 * s_atan.c (Sun Microsystems, 1993): its error is below 2^-58. */
UHAL_MATH double uhal_angle(double x) {
    double near = x, angle = 0.0, angle_rest = 0.0;
    if (x >= 39.0 / 16.0) {
        near = -1.0 / x;
        angle = 0x1.921fb54442d18p+0;
        angle_rest = 0x1.1a62633145c07p-54;
    } else if (x >= 19.0 / 16.0) {
        near = (x - 1.5) / (1.0 + 1.5 * x);
        angle = 9.82793723247329054082e-01;
        angle_rest = 1.39033110312309984516e-17;
    } else if (x >= 11.0 / 16.0) {
        near = (x - 1.0) / (x + 1.0);
        angle = 0x1.921fb54442d18p-1;
        angle_rest = 0x1.1a62633145c07p-55;
    } else if (x >= 7.0 / 16.0) {
        near = (2.0 * x - 1.0) / (2.0 + x);
        angle = 4.63647609000806093515e-01;
        angle_rest = 2.26987774529616870924e-17;
    }
    const double square = near * near;
    double sum = 1.62858201153657823623e-02;
    sum = __builtin_fma(sum, square, -3.65315727442169155270e-02);
    sum = __builtin_fma(sum, square, 4.97687799461593236017e-02);
    sum = __builtin_fma(sum, square, -5.83357013379057348645e-02);
    sum = __builtin_fma(sum, square, 6.66107313738753120669e-02);
    sum = __builtin_fma(sum, square, -7.69187620504482999495e-02);
    sum = __builtin_fma(sum, square, 9.09088713343650656196e-02);
    sum = __builtin_fma(sum, square, -1.11111104054623557880e-01);
    sum = __builtin_fma(sum, square, 1.42857142725034663711e-01);
    sum = __builtin_fma(sum, square, -1.99999999998764832476e-01);
    sum = __builtin_fma(sum, square, 3.33333333333329318027e-01);
    return angle - ((near * (square * sum) - angle_rest) - near);
}

UHAL_MATH double atan2(double y, double x) {
    const double height = __builtin_fabs(y), width = __builtin_fabs(x);
    const bool both_infinite = __builtin_isinf(y) && __builtin_isinf(x);
    const double ratio = both_infinite ? 1.0 : height == 0.0 ? 0.0 : height / width;
    const double angle = uhal_angle(ratio);
    const double turned = 0x1.921fb54442d18p+1 - (angle - 0x1.1a62633145c07p-53);
    const double found = __builtin_copysign(__builtin_signbit(x) ? turned : angle, y);
    return __builtin_isnan(x) || __builtin_isnan(y) ? x + y : found;
}

UHAL_MATH double log2(double x) { return log(x) * 0x1.71547652b82fep+0; }
UHAL_MATH double log10(double x) { return log(x) * 0x1.bcb7b1526e50ep-2; }

/* The exact remainder, by long division of the significands. */
UHAL_MATH double fmod(double x, double y) {
    const double size = __builtin_fabs(x), divisor = __builtin_fabs(y);
    if (!(size < __builtin_inf()) || !(divisor > 0.0))
        return __builtin_nan("");
    double rest = size;
    while (rest >= divisor) {
        int of_rest, of_divisor;
        (void)__builtin_frexp(rest, &of_rest);
        (void)__builtin_frexp(divisor, &of_divisor);
        /* The largest power of two times the divisor that is not above the remainder. */
        const double whole = __builtin_ldexp(divisor, of_rest - of_divisor);
        rest -= whole > rest ? __builtin_ldexp(divisor, of_rest - of_divisor - 1) : whole;
    }
    return __builtin_copysign(rest, x);
}

UHAL_MATH float fmodf(float x, float y) {
    return static_cast<float>(fmod(static_cast<double>(x), static_cast<double>(y)));
}

UHAL_MATH double tan(double x) {
    if (x == 0.0 || !__builtin_isfinite(x))
        return x == 0.0 ? x : x - x;
    const uhal_reduced_angle angle = uhal_reduce_angle(x);
    const double sine = uhal_sine_near_0(angle.high, angle.low);
    const double cosine = uhal_cosine_near_0(angle.high, angle.low);
    return angle.quadrant % 2 == 0 ? sine / cosine : -cosine / sine;
}

UHAL_MATH float tanf(float x) { return static_cast<float>(tan(static_cast<double>(x))); }

/* Half of e^|x| as a square, because e^|x| itself may be infinite. */
UHAL_MATH double cosh(double x) {
    const double root = exp(0.5 * __builtin_fabs(x));
    return 0.5 * root * root + 0.5 / root / root;
}

UHAL_MATH double sinh(double x) {
    const double size = __builtin_fabs(x), lacks_one = expm1(size);
    const double root = exp(0.5 * size);
    const double found =
        size > 40.0 ? 0.5 * root * root : 0.5 * (lacks_one + lacks_one / (lacks_one + 1.0));
    return __builtin_copysign(found, x);
}

UHAL_MATH float coshf(float x) { return static_cast<float>(cosh(static_cast<double>(x))); }
UHAL_MATH float sinhf(float x) { return static_cast<float>(sinh(static_cast<double>(x))); }

UHAL_MATH double atan(double x) { return atan2(x, 1.0); }
UHAL_MATH double asin(double x) { return atan2(x, __builtin_sqrt((1.0 - x) * (1.0 + x))); }
UHAL_MATH double acos(double x) { return atan2(__builtin_sqrt((1.0 - x) * (1.0 + x)), x); }

UHAL_MATH float atanf(float x) { return static_cast<float>(atan(static_cast<double>(x))); }
UHAL_MATH float asinf(float x) { return static_cast<float>(asin(static_cast<double>(x))); }
UHAL_MATH float acosf(float x) { return static_cast<float>(acos(static_cast<double>(x))); }
UHAL_MATH float log1pf(float x) { return static_cast<float>(log1p(static_cast<double>(x))); }

UHAL_MATH float atan2f(float y, float x) {
    return static_cast<float>(atan2(static_cast<double>(y), static_cast<double>(x)));
}

#endif
