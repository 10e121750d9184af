/* Ordinary memory in place of pinned memory: copies are slower but correct. */
#include "emulation.h"

#include <stdlib.h>

enum { PAGE = 4096 };

int uhal_emulated_host_alloc(void **pointer, size_t bytes, unsigned int flags) {
    (void)flags;
    *pointer = NULL;
    return posix_memalign(pointer, PAGE, bytes != 0 ? bytes : 1) == 0 ? 0 : uhal_base.out_of_memory;
}

int uhal_emulated_host_free(void *pointer) {
    free(pointer);
    return 0;
}
