/* Tells g++ that glibc has vector versions of the usual functions, so that loops calling them
 * vectorize without -ffast-math. The vector versions are within 4 units in the last place.
 *
 * Used only where the symbols exist for certain at link time; elsewhere the loop stays scalar.
 */
#ifndef UHAL_VECTOR_MATH_H
#define UHAL_VECTOR_MATH_H

#include <math.h>

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__GLIBC__)
#if __GLIBC_PREREQ(2, 35)
#define UHAL_VECTOR_F32(name) __attribute__((simd("notinbranch"))) float name(float) noexcept;
#define UHAL_VECTOR_F64(name) __attribute__((simd("notinbranch"))) double name(double) noexcept;
extern "C" {
UHAL_VECTOR_F32(acosf)
UHAL_VECTOR_F32(asinf)
UHAL_VECTOR_F32(atanf)
UHAL_VECTOR_F32(cosf)
UHAL_VECTOR_F32(coshf)
UHAL_VECTOR_F32(erff)
UHAL_VECTOR_F32(expf)
UHAL_VECTOR_F32(exp2f)
UHAL_VECTOR_F32(expm1f)
UHAL_VECTOR_F32(logf)
UHAL_VECTOR_F32(log1pf)
UHAL_VECTOR_F32(log2f)
UHAL_VECTOR_F32(log10f)
UHAL_VECTOR_F32(sinf)
UHAL_VECTOR_F32(sinhf)
UHAL_VECTOR_F32(tanf)
UHAL_VECTOR_F32(tanhf)
UHAL_VECTOR_F64(cos)
UHAL_VECTOR_F64(erf)
UHAL_VECTOR_F64(exp)
UHAL_VECTOR_F64(exp2)
UHAL_VECTOR_F64(expm1)
UHAL_VECTOR_F64(log)
UHAL_VECTOR_F64(log1p)
UHAL_VECTOR_F64(log2)
UHAL_VECTOR_F64(log10)
UHAL_VECTOR_F64(sin)
UHAL_VECTOR_F64(tanh)
__attribute__((simd("notinbranch"))) float powf(float, float) noexcept;
__attribute__((simd("notinbranch"))) double pow(double, double) noexcept;
}
#undef UHAL_VECTOR_F32
#undef UHAL_VECTOR_F64
#endif
#endif

#endif
