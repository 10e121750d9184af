/* Device memory and pinned host memory. */
#define _POSIX_C_SOURCE 200809L

#include "ranges.h"
#include "stream.h"

#include <stdlib.h>

static void *shared_virtual(const uhal_cl_device *device, size_t bytes) {
    const cl_bitfield fine =
        device->info.memory == UHAL_CL_MEMORY_SVM_FINE ? CL_MEM_SVM_FINE_GRAIN_BUFFER : 0;
    return uhal_cl.cl.clSVMAlloc(device->context, CL_MEM_READ_WRITE | fine, bytes,
                                 device->info.alignment);
}

/* Waits for work that may use it: unified memory does so itself. */
static int native_free(uhal_cl_device *device, void *pointer) {
    if (device->info.memory == UHAL_CL_MEMORY_USM)
        return device->blocking_free(device->context, pointer);
    const int status = uhal_cl_streams_finish(device);
    uhal_cl.cl.clSVMFree(device->context, pointer);
    return status;
}

/* Too little memory has as many names as there are places to notice it. */
static int full(int status) {
    switch (status) {
    case CL_INVALID_BUFFER_SIZE: /* more than the device ever gives at once */
    case CL_MEM_OBJECT_ALLOCATION_FAILURE:
    case CL_OUT_OF_HOST_MEMORY:
        return CL_OUT_OF_RESOURCES;
    default:
        return status;
    }
}

uhalClResult uhalClMemAlloc(uint64_t *address, size_t bytes) {
    uhal_cl_device *device = uhal_cl_current();
    if (device == NULL)
        return CL_INVALID_CONTEXT;
    int status = 0;
    void *pointer;
    if (device->info.memory == UHAL_CL_MEMORY_USM)
        pointer = device->device_alloc(device->context, device->device, NULL, bytes,
                                       device->info.alignment, &status);
    else
        pointer = shared_virtual(device, bytes);
    if (pointer == NULL)
        return full(status != 0 ? status : CL_OUT_OF_RESOURCES);
    const uhal_cl_range range = {(uint64_t)(uintptr_t)pointer, bytes, device, false, true};
    status = uhal_cl_ranges_add(&range);
    if (status != 0) {
        native_free(device, pointer);
        return full(status);
    }
    atomic_fetch_add(&device->allocated, bytes);
    atomic_fetch_add(&device->changes, 1);
    atomic_fetch_add(&uhal_cl.live[UHAL_CL_KIND_ALLOCATION], 1);
    *address = range.start;
    return 0;
}

uhalClResult uhalClMemFree(uint64_t address) {
    uhal_cl_range range;
    if (!uhal_cl_ranges_remove(address, &range))
        return CL_INVALID_VALUE;
    uhal_cl_device *device = (uhal_cl_device *)range.device;
    /* Before the memory is given back: another may have the address at once. */
    atomic_fetch_add(&device->changes, 1);
    atomic_fetch_sub(&device->allocated, range.bytes);
    atomic_fetch_sub(&uhal_cl.live[UHAL_CL_KIND_ALLOCATION], 1);
    return native_free(device, (void *)(uintptr_t)address);
}

uhalClResult uhalClMemHostAlloc(void **pointer, size_t bytes, unsigned int flags) {
    (void)flags; /* the device sees it wherever it can */
    uhal_cl_device *device = uhal_cl_current();
    if (device == NULL)
        return CL_INVALID_CONTEXT;
    int status = 0;
    *pointer = NULL;
    if (device->info.memory == UHAL_CL_MEMORY_USM)
        *pointer =
            device->host_alloc(device->context, NULL, bytes, device->info.alignment, &status);
    else if (device->info.memory == UHAL_CL_MEMORY_SVM_FINE)
        *pointer = shared_virtual(device, bytes);
    else if (posix_memalign(pointer, device->info.alignment, bytes) != 0)
        *pointer = NULL;
    if (*pointer == NULL)
        return full(status != 0 ? status : CL_OUT_OF_RESOURCES);
    const uhal_cl_range range = {(uint64_t)(uintptr_t)*pointer, bytes, device, true,
                                 device->info.memory != UHAL_CL_MEMORY_SVM_COARSE};
    status = uhal_cl_ranges_add(&range);
    if (status != 0) {
        if (range.native)
            native_free(device, *pointer);
        else
            free(*pointer);
        return full(status);
    }
    atomic_fetch_add(&device->changes, 1);
    atomic_fetch_add(&uhal_cl.live[UHAL_CL_KIND_PINNED], 1);
    return 0;
}

uhalClResult uhalClMemFreeHost(void *pointer) {
    uhal_cl_range range;
    if (!uhal_cl_ranges_remove((uint64_t)(uintptr_t)pointer, &range))
        return CL_INVALID_VALUE;
    uhal_cl_device *device = (uhal_cl_device *)range.device;
    atomic_fetch_add(&device->changes, 1);
    atomic_fetch_sub(&uhal_cl.live[UHAL_CL_KIND_PINNED], 1);
    if (range.native)
        return native_free(device, pointer);
    const int status = uhal_cl_streams_finish(device);
    free(pointer);
    return status;
}
