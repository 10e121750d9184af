/* A kernel that loses the device on request. */
#include <uhal/kernel.h>

KERNEL(fault, (u32 now, u32 *out)) {
    if (now) {
#if defined(__CUDACC__) || defined(__HIP__)
        *(volatile u32 *)nullptr = 1;
#else
        REGISTER(u32, too_few, 1);
        THREADS(t) { too_few(0) = t; }
#endif
    }
    THREADS(t) { out[t] = 1; }
}
