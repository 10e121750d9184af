/* Global state of the process, and the state of a device. The functions are set before the first
 * device is opened. Devices, also closed ones, are kept until the process ends, because a stream or
 * an event may be destroyed after them.
 */
#ifndef UHAL_CL_PROCESS_H
#define UHAL_CL_PROCESS_H

#include "functions.h"

#include "address_ranges.h"

/* All other symbols have hidden visibility. */
#pragma GCC visibility push(default)
#include "runtime.h"
#pragma GCC visibility pop

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

enum { UHAL_CL_KINDS = UHAL_CL_KIND_PINNED + 1 };
enum { UHAL_CL_MOST_DEVICES = 64 }; /* checked at the end of the process */

typedef struct uhal_cl_process {
    uhal_cl_functions cl;
    atomic_size_t live[UHAL_CL_KINDS];
    uhal_ranges pinned; /* the host's memory, of `uhal_cl_memory` */
} uhal_cl_process;

extern uhal_cl_process uhal_cl;

struct uhal_cl_stream;

/* One allocation. */
typedef struct uhal_cl_memory {
    uhal_range place;
    struct uhal_cl_device *device;
    cl_mem buffer; /* of a device whose addresses come from buffers */
    bool native;   /* true: allocated by OpenCL and visible to devices; false: by the C library */
} uhal_cl_memory;

/* A device. The functions depend on the device's kind of memory: an extension's or OpenCL's own;
 * the other functions are null. */
typedef struct uhal_cl_device {
    cl_context context;
    cl_device_id device;
    uhalClDeviceInfo info;
    __typeof__(&clDeviceMemAllocINTEL) device_alloc;
    __typeof__(&clHostMemAllocINTEL) host_alloc;
    __typeof__(&clMemBlockingFreeINTEL) blocking_free;
    __typeof__(&clEnqueueMemcpyINTEL) copy;
    __typeof__(&clEnqueueMemFillINTEL) fill;
    __typeof__(&clSetKernelArgMemPointerINTEL) set_pointer;
    __typeof__(&clCreateBufferWithProperties) create_buffer;
    __typeof__(&clSetKernelArgDevicePointerEXT) set_address;
    uhal_ranges memory;      /* its own, of `uhal_cl_memory`: two devices may have one address */
    atomic_size_t allocated; /* bytes */
    /* Counts changes of the allocations: earlier pointer arguments of kernels are then stale. */
    atomic_uint_fast64_t changes;
    /* If markers have no timestamps, timed events fill the first bytes of this memory; else
     * empty. */
    uhal_cl_memory ticked;
    pthread_mutex_t lock; /* of the streams that are open */
    struct uhal_cl_stream *streams;
} uhal_cl_device;

/* The device that is current on this thread, null before the first. */
uhal_cl_device *uhal_cl_current(void);

#endif
