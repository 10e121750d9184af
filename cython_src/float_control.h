/* The calling thread's floating-point mode: rounding, and flushing tiny numbers to 0 (MXCSR, FPCR).
 * A thread inherits its creator's mode; libraries compiled with -ffast-math change it when they are
 * loaded.
 */
#ifndef UHAL_FLOAT_CONTROL_H
#define UHAL_FLOAT_CONTROL_H

#include <stdint.h>

#if defined(__x86_64__)

typedef struct uhal_float_control {
    uint32_t mxcsr;
    uint16_t x87;
} uhal_float_control;

static inline uhal_float_control uhal_float_control_now(void) {
    uhal_float_control now;
    __asm__ __volatile__("stmxcsr %0\n\tfnstcw %1" : "=m"(now.mxcsr), "=m"(now.x87));
    return now;
}

static inline void uhal_float_control_set(uhal_float_control control) {
    __asm__ __volatile__("ldmxcsr %0\n\tfldcw %1" : : "m"(control.mxcsr), "m"(control.x87));
}

/* The mode at a program's start, as the ABI defines it. */
static inline uhal_float_control uhal_float_control_default(void) {
    const uhal_float_control control = {0x1F80, 0x037F};
    return control;
}

#elif defined(__aarch64__)

typedef struct uhal_float_control {
    uint64_t fpcr;
} uhal_float_control;

static inline uhal_float_control uhal_float_control_now(void) {
    uhal_float_control now;
    __asm__ __volatile__("mrs %0, fpcr" : "=r"(now.fpcr));
    return now;
}

static inline void uhal_float_control_set(uhal_float_control control) {
    __asm__ __volatile__("msr fpcr, %0" : : "r"(control.fpcr));
}

static inline uhal_float_control uhal_float_control_default(void) {
    const uhal_float_control control = {0};
    return control;
}

#else

typedef struct uhal_float_control {
    int unknown;
} uhal_float_control;

static inline uhal_float_control uhal_float_control_now(void) {
    const uhal_float_control now = {0};
    return now;
}

static inline void uhal_float_control_set(uhal_float_control control) { (void)control; }

static inline uhal_float_control uhal_float_control_default(void) {
    return uhal_float_control_now();
}

#endif
#endif
