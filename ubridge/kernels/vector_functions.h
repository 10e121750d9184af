// Further functions of glibc that have vector versions, as <uhal/vector_math.h> explains. Only the
// operations element by element call them.
#ifndef UBRIDGE_VECTOR_FUNCTIONS_H
#define UBRIDGE_VECTOR_FUNCTIONS_H

#include <math.h>

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__GLIBC__)
#if __GLIBC_PREREQ(2, 35)
extern "C" {
__attribute__((simd("notinbranch"))) float erfcf(float) noexcept;
__attribute__((simd("notinbranch"))) double erfc(double) noexcept;
__attribute__((simd("notinbranch"))) double acos(double) noexcept;
__attribute__((simd("notinbranch"))) double asin(double) noexcept;
__attribute__((simd("notinbranch"))) double atan(double) noexcept;
__attribute__((simd("notinbranch"))) double cosh(double) noexcept;
__attribute__((simd("notinbranch"))) double sinh(double) noexcept;
__attribute__((simd("notinbranch"))) double tan(double) noexcept;
__attribute__((simd("notinbranch"))) float atan2f(float, float) noexcept;
__attribute__((simd("notinbranch"))) double atan2(double, double) noexcept;
}
#endif
#endif

#endif
