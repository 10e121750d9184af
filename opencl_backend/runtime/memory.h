/* Allocations, and their names in commands. */
#ifndef UHAL_CL_MEMORY_H
#define UHAL_CL_MEMORY_H

#include "process.h"

/* Returns whether all of these bytes are pinned memory. */
bool uhal_cl_is_pinned(const void *pointer, size_t bytes);

/* Addresses of the device's memory and of visible pinned memory, for kernels that reach memory
 * without an argument. The caller frees the array. Null: too little host memory, or no
 * allocations. */
uint64_t *uhal_cl_reached(uhal_cl_device *device, size_t *count);

/* Allocates memory of the device's kind for `made`, whose `device` and `native` are set. The memory
 * is not yet among the device's ranges. */
int uhal_cl_native_allocate(uhal_cl_device *device, size_t bytes, uhal_cl_memory *made);
/* Frees memory after a wait for work that may use it; for unified memory the driver waits. */
int uhal_cl_native_free(const uhal_cl_memory *memory);

/* The buffer that holds a device address, and the offset in it; null: none. */
cl_mem uhal_cl_buffer_at(uhal_cl_device *device, uint64_t address, size_t *offset);

#endif
