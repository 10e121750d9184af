#ifndef UHAL_HIP_ERROR_FUNCTION_H
#define UHAL_HIP_ERROR_FUNCTION_H

/* The error function and its complement for AMD devices, in plain arithmetic like the functions of
 * functions.h, which must be included before. The polynomials are Chebyshev expansions computed in
 * 60 digits. The first polynomial is erf(x) / x in x^2, for x up to 1. The second polynomial
 * is (1 + 2x) e^(x^2) erfc(x) in (x - 4) / (x + 4), for all positive x. Both are truncated with a
 * remainder below 1e-17.
 */

UHAL_MATH double uhal_erf_near_0(double x) {
    const double square = x * x;
    double sum = 0x1.0613987edce0dp-34;
    sum = __builtin_fma(sum, square, -0x1.38a4b8db8a7c5p-30);
    sum = __builtin_fma(sum, square, 0x1.f7b72e5bcd4ffp-27);
    sum = __builtin_fma(sum, square, -0x1.5f1f0634fb062p-23);
    sum = __builtin_fma(sum, square, 0x1.b9df2954a9147p-20);
    sum = __builtin_fma(sum, square, -0x1.f4d1e3a67dc3ep-17);
    sum = __builtin_fma(sum, square, 0x1.f9a321dd3898cp-14);
    sum = __builtin_fma(sum, square, -0x1.c02db3db06d60p-11);
    sum = __builtin_fma(sum, square, 0x1.565bcd0dbc1adp-8);
    sum = __builtin_fma(sum, square, -0x1.b82ce31284e9cp-6);
    sum = __builtin_fma(sum, square, 0x1.ce2f21a042b32p-4);
    sum = __builtin_fma(sum, square, -0x1.812746b0379e6p-2);
    sum = __builtin_fma(sum, square, 0x1.20dd750429b6dp+0);
    return x * sum;
}

/* For x >= 0. */
UHAL_MATH double uhal_erfc_positive(double x) {
    const double bounded = __builtin_fmin(x, 40.0);
    const double t = (bounded - 4.0) / (bounded + 4.0);
    double sum = -0x1.246d137a6fc50p-32;
    sum = __builtin_fma(sum, t, 0x1.ffeb28f8a80afp-31);
    sum = __builtin_fma(sum, t, 0x1.b39ff8659a0bep-29);
    sum = __builtin_fma(sum, t, -0x1.a83c2ea836660p-27);
    sum = __builtin_fma(sum, t, -0x1.613ab11aa8264p-26);
    sum = __builtin_fma(sum, t, 0x1.c8b87aa03a033p-24);
    sum = __builtin_fma(sum, t, 0x1.4cbb15f961c38p-24);
    sum = __builtin_fma(sum, t, -0x1.b8d249727ccfep-21);
    sum = __builtin_fma(sum, t, 0x1.3981051d34cf1p-22);
    sum = __builtin_fma(sum, t, 0x1.7ef6b7a31e6abp-18);
    sum = __builtin_fma(sum, t, -0x1.78861f18ee7b6p-17);
    sum = __builtin_fma(sum, t, -0x1.995385e20c3b6p-16);
    sum = __builtin_fma(sum, t, 0x1.3be04bf52bb5bp-13);
    sum = __builtin_fma(sum, t, -0x1.a1df5db3b79f4p-13);
    sum = __builtin_fma(sum, t, -0x1.8d4a9b00c7997p-11);
    sum = __builtin_fma(sum, t, 0x1.49c672e0029c2p-8);
    sum = __builtin_fma(sum, t, -0x1.0962388397d97p-6);
    sum = __builtin_fma(sum, t, 0x1.3079edf51fc68p-5);
    sum = __builtin_fma(sum, t, -0x1.0fb06dfe5229fp-4);
    sum = __builtin_fma(sum, t, 0x1.7fee004e1e9dcp-4);
    sum = __builtin_fma(sum, t, -0x1.9ddb23c3e8a22p-4);
    sum = __builtin_fma(sum, t, 0x1.16ecefcfa4d42p-4);
    sum = __builtin_fma(sum, t, 0x1.f7f5df66fd6c2p-7);
    sum = __builtin_fma(sum, t, -0x1.1df1ad154a287p-3);
    sum = __builtin_fma(sum, t, 0x1.3ba5916e9fd7fp+0);
    /* The square in two parts: its rounding would be magnified by the exponential. */
    const double square = bounded * bounded;
    const double rest = __builtin_fma(bounded, bounded, -square);
    const double scaled = sum / __builtin_fma(2.0, bounded, 1.0);
    return exp(-square) * __builtin_fma(scaled, -rest, scaled);
}

UHAL_MATH double erf(double x) {
    const double magnitude = __builtin_fabs(x);
    if (!(magnitude >= 1.0))
        return uhal_erf_near_0(x);
    return __builtin_copysign(1.0 - uhal_erfc_positive(magnitude), x);
}

UHAL_MATH double erfc(double x) {
    if (!(x >= 0.5))
        return x > -1.0 ? 1.0 - uhal_erf_near_0(x) : 1.0 - erf(x);
    return uhal_erfc_positive(x);
}

UHAL_MATH float erff(float x) { return static_cast<float>(erf(static_cast<double>(x))); }
UHAL_MATH float erfcf(float x) { return static_cast<float>(erfc(static_cast<double>(x))); }

#endif
