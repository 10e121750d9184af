#ifndef UHAL_HIP_TRIGONOMETRY_H
#define UHAL_HIP_TRIGONOMETRY_H

/* Sine and cosine for AMD devices, in plain arithmetic and as exact as functions.h. x of any size
 * is reduced to within pi/4 of a multiple of pi/2 in more than f64's precision.
 */

struct uhal_reduced_angle {
    double high;
    double low;
    unsigned quadrant; /* number of multiples of pi/2 subtracted; only the last two bits matter */
};

/* For |x| < 2^27: pi/2 in three parts; the first product is exact with a fused multiply-add. */
UHAL_MATH uhal_reduced_angle uhal_reduce_small_angle(double x) {
    const double count = __builtin_rint(x * 0x1.45f306dc9c883p-1);
    const double first = __builtin_fma(-count, 0x1.921fb54442d18p+0, x);
    const double second = count * 0x1.1a62633145c07p-54;
    const double second_rest = __builtin_fma(count, 0x1.1a62633145c07p-54, -second);
    const double high = first - second;
    const double taken = first - high;
    const double low = (taken - second) - second_rest - count * -0x1.f1976b7ed8fbcp-110;
    return {high, low, static_cast<unsigned>(static_cast<int>(count))};
}

/* For any finite |x| >= 2^27, after Payne and Hanek: multiplies only a window of bits of 2/pi.
 * Products of higher bits are whole turns; products of lower bits are too small to matter. */
UHAL_MATH uhal_reduced_angle uhal_reduce_large_angle(double x) {
    typedef unsigned long long word;
    typedef unsigned __int128 product;
    /* 64 zeros, then 1216 bits of 2/pi after the binary point. */
    const word bits[] = {
        0x0000000000000000ULL, 0xA2F9836E4E441529ULL, 0xFC2757D1F534DDC0ULL, 0xDB6295993C439041ULL,
        0xFE5163ABDEBBC561ULL, 0xB7246E3A424DD2E0ULL, 0x06492EEA09D1921CULL, 0xFE1DEB1CB129A73EULL,
        0xE88235F52EBB4484ULL, 0xE99C7026B45F7E41ULL, 0x3991D639835339F4ULL, 0x9C845F8BBDF9283BULL,
        0x1FF897FFDE05980FULL, 0xEF2F118B5A0A6D1FULL, 0x6D367ECF27CB09B7ULL, 0x4F463F669E5FEA2DULL,
        0x7527BAC7EBE5F17BULL, 0x3D0739F78A5292EAULL, 0x6BFB5FB11F8D5D08ULL, 0x56033046FC7B6BABULL,
    };
    word pattern;
    __builtin_memcpy(&pattern, &x, sizeof pattern);
    /* |x| = integer * 2^exponent */
    const word integer = (pattern & 0xFFFFFFFFFFFFFULL) | 0x10000000000000ULL;
    const int exponent = static_cast<int>(pattern >> 52 & 0x7FF) - 1075;
    /* The first bit whose product is below 4. */
    const unsigned start = static_cast<unsigned>(exponent + 62);
    const unsigned index = start / 64;
    const unsigned shift = start % 64;
    word window[3];
    for (unsigned i = 0; i < 3; ++i) {
        const word next = shift == 0 ? 0 : bits[index + i + 1] >> (64 - shift);
        window[i] = bits[index + i] << shift | next;
    }
    /* integer * window modulo 2^192; the two highest bits are whole quadrants. */
    const product low = static_cast<product>(integer) * window[2];
    const product middle = static_cast<product>(integer) * window[1] + static_cast<word>(low >> 64);
    const word high = integer * window[0] + static_cast<word>(middle >> 64);
    unsigned quadrant = static_cast<unsigned>(high >> 62);
    word fraction = high << 2 | static_cast<word>(middle) >> 62;
    word rest = static_cast<word>(middle) << 2 | static_cast<word>(low) >> 62;
    /* Round to the nearest quadrant: fractions from a half on become negative. */
    const bool beyond = fraction >> 63 != 0;
    if (beyond) {
        quadrant += 1;
        fraction = ~fraction;
        rest = ~rest;
    }
    const double upper = static_cast<double>(fraction & ~0x7FFULL) * 0x1p-64;
    const double lower = static_cast<double>(fraction & 0x7FFULL) * 0x1p-64 +
                         static_cast<double>(rest) * 0x1p-128;
    const double turned = upper + lower;
    const double lost = upper - turned + lower;
    const double angle = turned * 0x1.921fb54442d18p+0;
    const double correction = __builtin_fma(turned, 0x1.921fb54442d18p+0, -angle) +
                              (turned * 0x1.1a62633145c07p-54 + lost * 0x1.921fb54442d18p+0);
    const bool negative = beyond != (x < 0.0);
    quadrant = x < 0.0 ? 0U - quadrant : quadrant;
    return {negative ? -angle : angle, negative ? -correction : correction, quadrant};
}

UHAL_MATH uhal_reduced_angle uhal_reduce_angle(double x) {
    return __builtin_fabs(x) < 0x1p27 ? uhal_reduce_small_angle(x) : uhal_reduce_large_angle(x);
}

/* Taylor series for |high| <= pi/4. */
UHAL_MATH double uhal_sine_near_0(double high, double low) {
    const double square = high * high;
    double sum = 1.0 / 355687428096000.0;
    sum = __builtin_fma(sum, square, -1.0 / 1307674368000.0);
    sum = __builtin_fma(sum, square, 1.0 / 6227020800.0);
    sum = __builtin_fma(sum, square, -1.0 / 39916800.0);
    sum = __builtin_fma(sum, square, 1.0 / 362880.0);
    sum = __builtin_fma(sum, square, -1.0 / 5040.0);
    sum = __builtin_fma(sum, square, 1.0 / 120.0);
    sum = __builtin_fma(sum, square, -1.0 / 6.0);
    const double slope = __builtin_fma(square, -0.5, 1.0);
    return high + __builtin_fma(sum * square, high, low * slope);
}

UHAL_MATH double uhal_cosine_near_0(double high, double low) {
    const double square = high * high;
    double sum = 1.0 / 20922789888000.0;
    sum = __builtin_fma(sum, square, -1.0 / 87178291200.0);
    sum = __builtin_fma(sum, square, 1.0 / 479001600.0);
    sum = __builtin_fma(sum, square, -1.0 / 3628800.0);
    sum = __builtin_fma(sum, square, 1.0 / 40320.0);
    sum = __builtin_fma(sum, square, -1.0 / 720.0);
    sum = __builtin_fma(sum, square, 1.0 / 24.0);
    const double half = 0.5 * square;
    const double near = 1.0 - half;
    const double lost = 1.0 - near - half;
    return near + (lost + __builtin_fma(square * square, sum, -high * low));
}

UHAL_MATH double sin(double x) {
    if (x == 0.0)
        return x;
    if (!__builtin_isfinite(x))
        return x - x;
    const uhal_reduced_angle angle = uhal_reduce_angle(x);
    const double result = angle.quadrant % 2 == 0 ? uhal_sine_near_0(angle.high, angle.low)
                                                  : uhal_cosine_near_0(angle.high, angle.low);
    return angle.quadrant % 4 < 2 ? result : -result;
}

UHAL_MATH double cos(double x) {
    if (!__builtin_isfinite(x))
        return x - x;
    const uhal_reduced_angle angle = uhal_reduce_angle(x);
    const double result = angle.quadrant % 2 == 0 ? uhal_cosine_near_0(angle.high, angle.low)
                                                  : uhal_sine_near_0(angle.high, angle.low);
    return (angle.quadrant + 1) % 4 < 2 ? result : -result;
}

UHAL_MATH float sinf(float x) { return static_cast<float>(sin(static_cast<double>(x))); }
UHAL_MATH float cosf(float x) { return static_cast<float>(cos(static_cast<double>(x))); }

#endif
