/** Fast mathematics by name: f32 functions with more speed and less accuracy.
 *
 * On a device each function is one or a few approximate instructions. On the host each function is
 * the usual one, because the compiler has no faster one. Subnormal numbers may count as zero.
 *
 * Errors on CUDA: see the CUDA C++ Programming Guide, "Intrinsic Functions", and the PTX manual.
 * AMD's instructions are within 1 unit in the last place of f32, plus the rounding of a scaled
 * argument: see the ISA manuals of RDNA and CDNA. OpenCL does not bound its errors.
 */
#ifndef UHAL_FAST_MATH_H
#define UHAL_FAST_MATH_H

#include <uhal/atomics.h>

/** e to the power of x. CUDA: 2 + |1.173 x| units in the last place. */
DEVICE_FUNCTION f32 fast_exp(f32 x) { return uhal_fast_exp(x); }
/** 2 to the power of x. CUDA: 2 units in the last place. */
DEVICE_FUNCTION f32 fast_exp2(f32 x) { return uhal_fast_exp2(x); }
/** The natural logarithm. CUDA: 2^-21.41 between 0.5 and 2, elsewhere 3 units in the last place. */
DEVICE_FUNCTION f32 fast_log(f32 x) { return uhal_fast_log(x); }
/** The logarithm to the base of 2. CUDA: 2^-22 between 0.5 and 2, elsewhere 2 units. */
DEVICE_FUNCTION f32 fast_log2(f32 x) { return uhal_fast_log2(x); }
/** The sine of an angle in radians within -pi and pi. CUDA: 2^-21.41. */
DEVICE_FUNCTION f32 fast_sin(f32 x) { return uhal_fast_sin(x); }
/** The cosine of an angle in radians within -pi and pi. CUDA: 2^-21.19. */
DEVICE_FUNCTION f32 fast_cos(f32 x) { return uhal_fast_cos(x); }
/** The hyperbolic tangent. CUDA: a relative 2^-11. Other devices use fast_exp. */
DEVICE_FUNCTION f32 fast_tanh(f32 x) { return uhal_fast_tanh(x); }
/** The square root. CUDA: a relative 2^-23. */
DEVICE_FUNCTION f32 fast_sqrt(f32 x) { return uhal_fast_sqrt(x); }
/** 1 divided by the square root. CUDA: 2 units in the last place. */
DEVICE_FUNCTION f32 fast_rsqrt(f32 x) { return uhal_fast_rsqrt(x); }
/** 1 / x. CUDA: 1 unit in the last place. */
DEVICE_FUNCTION f32 fast_reciprocal(f32 x) { return uhal_fast_reciprocal(x); }
/** x / y as x times the reciprocal of y, if the reciprocal is a normal number. */
DEVICE_FUNCTION f32 fast_divide(f32 x, f32 y) { return x * uhal_fast_reciprocal(y); }
/** x to the power of y, for x >= 0: fast_exp2(y * fast_log2(x)). */
DEVICE_FUNCTION f32 fast_pow(f32 x, f32 y) { return uhal_fast_pow(x, y); }

#endif
