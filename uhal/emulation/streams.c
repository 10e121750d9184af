/* Streams for a library with synchronous calls: nothing is ever pending. */
#include "emulation.h"

#include <stdlib.h>

int uhal_emulated_stream_create(void **stream, unsigned int flags, int priority) {
    (void)flags;
    (void)priority;
    *stream = malloc(1); /* a unique address */
    return *stream != NULL ? 0 : uhal_base.out_of_memory;
}

int uhal_emulated_stream_destroy(void *stream) {
    free(stream);
    return 0;
}

int uhal_emulated_stream_synchronize(void *stream) {
    (void)stream;
    return 0;
}

int uhal_emulated_stream_query(void *stream) {
    (void)stream;
    return 0;
}
