/** Constant tables, in the device's constant memory.
 *
 *     CONSTANT_TABLE(f32, weights, 4) = {0.25f, 0.5f, 0.125f, 0.125f};
 *     …
 *     y[i] = weights[i % 4] * x[i];
 */
#ifndef UHAL_TABLE_H
#define UHAL_TABLE_H

#include <uhal/kernel.h>

/** A table of `count` values outside of functions, for kernels of the file. The initial values
 * follow the macro and never change. */
#if defined(__CUDACC__)
#define CONSTANT_TABLE(type, name, count) static __constant__ const type name[count]
#elif defined(__HIP__)
#define CONSTANT_TABLE(type, name, count) static __attribute__((constant)) const type name[count]
#else
#define CONSTANT_TABLE(type, name, count) alignas(64) static const type name[count]
#endif

#endif
