/* The current device of a thread, for a library whose calls name their device. */
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
