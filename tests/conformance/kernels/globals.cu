/* Module variables, and entries that twin.cu has too. */
#include <uhal/kernel.h>

DEVICE_GLOBAL(f32, table, 64);
DEVICE_GLOBAL(u64, counter, 1);

KERNEL(read_table, (f32 *out)) {
    THREADS(t) {
        if (t < 64) {
            out[t] = table[t];
        }
    }
}

KERNEL(count, (u64 by)) {
    THREADS(t) {
        if (t == 0) {
            counter[0] += by;
        }
    }
}

KERNEL(who, (u32 *out)) {
    THREADS(t) { out[t] = 1; }
}
