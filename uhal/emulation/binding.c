/* The current device of each thread, for a library whose functions take a device instead. */
#include "emulation.h"

static _Thread_local void *bound;

int uhal_emulated_current(void **context) {
    *context = bound;
    return 0;
}

int uhal_emulated_bind(void *context) {
    bound = context;
    return 0;
}
