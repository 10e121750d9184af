/* The names of globals.cu with other contents: modules must not share variables. */
#include <uhal/kernel.h>

DEVICE_GLOBAL(u64, counter, 1);

KERNEL(count, (u64 by)) {
    THREADS(t) {
        if (t == 0) {
            counter[0] += 1000 * by;
        }
    }
}

KERNEL(who, (u32 *out)) {
    THREADS(t) { out[t] = 2; }
}
