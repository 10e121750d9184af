/* What is allocated, by address: which memory is pinned, and which a kernel may reach. */
#ifndef UHAL_CL_RANGES_H
#define UHAL_CL_RANGES_H

#include "process.h"

#include <stdbool.h>

typedef struct uhal_cl_range {
    uint64_t start;
    size_t bytes;
    const uhal_cl_device *device;
    bool pinned;
    bool native; /* pinned memory: OpenCL's, not the C library's */
} uhal_cl_range;

/* CL_OUT_OF_HOST_MEMORY when there is no room to note it. */
int uhal_cl_ranges_add(const uhal_cl_range *range);

/* Takes out the one that starts there; false: there is none. */
bool uhal_cl_ranges_remove(uint64_t start, uhal_cl_range *removed);

/* Whether all of these bytes are pinned memory. */
bool uhal_cl_ranges_pinned(const void *pointer, size_t bytes);

/* Where the device's own and the pinned memory of OpenCL begins. The caller frees the array. Null:
 * no room, or nothing there. */
void **uhal_cl_ranges_of(const uhal_cl_device *device, size_t *count);

#endif
