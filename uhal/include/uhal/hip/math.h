/* <math.h> for device code compiled without a C library and without AMD's device libraries. The
 * compiler's own expansions of functions round to nearest, as IEEE 754 requires. The compiler's f32
 * exponentials and logarithms are within the three ulp that OpenCL allows. The headers included
 * below have all other functions. */
#ifndef UHAL_HIP_MATH_H
#define UHAL_HIP_MATH_H

#define NAN __builtin_nanf("")
#define INFINITY __builtin_inff()
#define HUGE_VAL __builtin_inf()

#define UHAL_MATH_1(name)                                                                          \
    UHAL_MATH float name##f(float x) { return __builtin_##name##f(x); }                            \
    UHAL_MATH double name(double x) { return __builtin_##name(x); }
#define UHAL_MATH_2(name)                                                                          \
    UHAL_MATH float name##f(float x, float y) { return __builtin_##name##f(x, y); }                \
    UHAL_MATH double name(double x, double y) { return __builtin_##name(x, y); }
#define UHAL_MATH static inline __attribute__((device, always_inline))

UHAL_MATH_1(fabs)
UHAL_MATH_1(floor)
UHAL_MATH_1(ceil)
UHAL_MATH_1(trunc)
UHAL_MATH_1(round)
UHAL_MATH_1(rint)
UHAL_MATH_1(nearbyint)
UHAL_MATH_1(sqrt)
UHAL_MATH_2(copysign)
UHAL_MATH_2(fmin)
UHAL_MATH_2(fmax)

UHAL_MATH float fmaf(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
UHAL_MATH double fma(double x, double y, double z) { return __builtin_fma(x, y, z); }

UHAL_MATH float expf(float x) { return __builtin_expf(x); }
UHAL_MATH float exp2f(float x) { return __builtin_exp2f(x); }
UHAL_MATH float logf(float x) { return __builtin_logf(x); }
UHAL_MATH float log2f(float x) { return __builtin_log2f(x); }
UHAL_MATH float log10f(float x) { return __builtin_log10f(x); }

#include "functions.h"

#include "error_function.h"
#include "power.h"
#include "trigonometry.h"

#undef UHAL_MATH
#undef UHAL_MATH_1
#undef UHAL_MATH_2

#define isnan(x) __builtin_isnan(x)
#define isinf(x) __builtin_isinf(x)
#define isfinite(x) __builtin_isfinite(x)
#define signbit(x) __builtin_signbit(x)

#endif
