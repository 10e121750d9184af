// A strip: neighbouring f32 values of one row that one work-item keeps in registers.
//
// Compilers for CPUs do not reliably keep an array in vector registers across a loop, so there a
// strip is made of vectors as wide as the target's. On a GPU a register holds one value, and with a
// short strip neighbouring work-items read neighbouring memory.
#ifndef UBRIDGE_STRIP_H
#define UBRIDGE_STRIP_H

#include <string.h>

#include <uhal/kernel.h>

#if defined(__CUDACC__) || defined(__HIP__)
enum : u32 { STRIP = 4 };
typedef f32 Vector;
#else
enum : u32 { STRIP = 16 };
#if defined(__AVX512F__)
typedef f32 Vector __attribute__((vector_size(64)));
#elif defined(__AVX__)
typedef f32 Vector __attribute__((vector_size(32)));
#else
typedef f32 Vector __attribute__((vector_size(16)));
#endif
#endif

struct Strip {
    static constexpr u32 LANES = sizeof(Vector) / sizeof(f32);
    Vector parts[STRIP / LANES];
};

// strip += factor * the STRIP values at `values`
DEVICE_FUNCTION void add_multiple(Strip &strip, f32 factor, const f32 *values)
{
    for (u32 i = 0; i < STRIP / Strip::LANES; ++i) {
        Vector addend;
        memcpy(&addend, values + i * Strip::LANES, sizeof addend);
        strip.parts[i] += factor * addend;
    }
}

// Writes the first `count` values of the strip.
DEVICE_FUNCTION void store(const Strip &strip, f32 *values, u32 count)
{
    f32 all[STRIP];
    memcpy(all, &strip, sizeof all);
    if (count >= STRIP) {
        memcpy(values, all, sizeof all);
        return;
    }
    for (u32 i = 0; i < STRIP; ++i)
        if (i < count)
            values[i] = all[i];
}

#endif
