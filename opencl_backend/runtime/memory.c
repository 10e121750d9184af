/* Device memory and pinned host memory. */
#define _POSIX_C_SOURCE 200809L

#include "memory.h"
#include "stream.h"

#include <stdlib.h>

/* -- native allocations ------------------------------------------------------------------------ */

static void *shared_virtual(const uhal_cl_device *device, size_t bytes) {
    const cl_bitfield fine =
        device->info.memory == UHAL_CL_MEMORY_SVM_FINE ? CL_MEM_SVM_FINE_GRAIN_BUFFER : 0;
    return uhal_cl.cl.clSVMAlloc(device->context, CL_MEM_READ_WRITE | fine, bytes,
                                 device->info.alignment);
}

/* A buffer whose address the device keeps as long as it lives. */
static int addressed_buffer(const uhal_cl_device *device, size_t bytes, uhal_cl_memory *made) {
    const cl_properties properties[] = {CL_MEM_DEVICE_PRIVATE_ADDRESS_EXT, CL_TRUE, 0};
    cl_mem_device_address_ext address = 0;
    cl_int status = 0;
    made->buffer =
        device->create_buffer(device->context, properties, CL_MEM_READ_WRITE, bytes, NULL, &status);
    if (status != 0)
        return status;
    /* One entry for each device: the context has one device. */
    status = uhal_cl.cl.clGetMemObjectInfo(made->buffer, CL_MEM_DEVICE_ADDRESS_EXT, sizeof address,
                                           &address, NULL);
    if (status != 0)
        uhal_cl.cl.clReleaseMemObject(made->buffer);
    made->place.start = address;
    return status;
}

int uhal_cl_native_allocate(uhal_cl_device *device, size_t bytes, uhal_cl_memory *made) {
    void *pointer;
    int status = 0;
    if (device->info.memory == UHAL_CL_MEMORY_BUFFER)
        return addressed_buffer(device, bytes, made);
    if (device->info.memory == UHAL_CL_MEMORY_USM)
        pointer = device->device_alloc(device->context, device->device, NULL, bytes,
                                       device->info.alignment, &status);
    else
        pointer = shared_virtual(device, bytes);
    made->place.start = (uint64_t)(uintptr_t)pointer;
    return pointer != NULL || status != 0 ? status : CL_OUT_OF_RESOURCES;
}

int uhal_cl_native_free(const uhal_cl_memory *memory) {
    uhal_cl_device *device = memory->device;
    void *pointer = (void *)(uintptr_t)memory->place.start;
    if (memory->native && device->info.memory == UHAL_CL_MEMORY_USM)
        return device->blocking_free(device->context, pointer);
    int status = uhal_cl_streams_finish(device);
    if (memory->buffer != NULL) {
        const int released = uhal_cl.cl.clReleaseMemObject(memory->buffer);
        status = status != 0 ? status : released;
    } else if (memory->native) {
        uhal_cl.cl.clSVMFree(device->context, pointer);
    } else {
        free(pointer);
    }
    return status;
}

/* Maps OpenCL's codes for too little memory to one code. */
static int full(int status) {
    switch (status) {
    case CL_INVALID_BUFFER_SIZE: /* larger than the device's largest allocation */
    case CL_MEM_OBJECT_ALLOCATION_FAILURE:
    case CL_OUT_OF_HOST_MEMORY:
        return CL_OUT_OF_RESOURCES;
    default:
        return status;
    }
}

/* -- the slots --------------------------------------------------------------------------------- */

uhalClResult uhalClMemAlloc(uint64_t *address, size_t bytes) {
    uhal_cl_device *device = uhal_cl_current();
    if (device == NULL)
        return CL_INVALID_CONTEXT;
    uhal_cl_memory made = {.place = {0, bytes}, .device = device, .native = true};
    const int status = uhal_cl_native_allocate(device, bytes, &made);
    if (status != 0)
        return full(status);
    if (!uhal_ranges_add(&device->memory, &made)) {
        uhal_cl_native_free(&made);
        return CL_OUT_OF_RESOURCES;
    }
    atomic_fetch_add(&device->allocated, bytes);
    atomic_fetch_add(&device->changes, 1);
    atomic_fetch_add(&uhal_cl.live[UHAL_CL_KIND_ALLOCATION], 1);
    *address = made.place.start;
    return 0;
}

uhalClResult uhalClMemFree(uint64_t address) {
    uhal_cl_device *device = uhal_cl_current();
    uhal_cl_memory freed;
    if (device == NULL || !uhal_ranges_remove(&device->memory, address, &freed))
        return CL_INVALID_VALUE;
    /* Count the change before the memory is freed: the address may be allocated again at once. */
    atomic_fetch_add(&device->changes, 1);
    atomic_fetch_sub(&device->allocated, freed.place.bytes);
    atomic_fetch_sub(&uhal_cl.live[UHAL_CL_KIND_ALLOCATION], 1);
    return uhal_cl_native_free(&freed);
}

uhalClResult uhalClMemHostAlloc(void **pointer, size_t bytes, unsigned int flags) {
    (void)flags; /* every host allocation is mapped if possible */
    uhal_cl_device *device = uhal_cl_current();
    if (device == NULL)
        return CL_INVALID_CONTEXT;
    int status = 0;
    *pointer = NULL;
    uhal_cl_memory made = {.place = {0, bytes}, .device = device, .native = true};
    switch (device->info.memory) {
    case UHAL_CL_MEMORY_USM:
        *pointer =
            device->host_alloc(device->context, NULL, bytes, device->info.alignment, &status);
        break;
    case UHAL_CL_MEMORY_SVM_FINE:
        *pointer = shared_virtual(device, bytes);
        break;
    default:
        made.native = false;
        if (posix_memalign(pointer, device->info.alignment, bytes) != 0)
            *pointer = NULL;
    }
    if (*pointer == NULL)
        return full(status != 0 ? status : CL_OUT_OF_RESOURCES);
    made.place.start = (uint64_t)(uintptr_t)*pointer;
    if (!uhal_ranges_add(&uhal_cl.pinned, &made)) {
        uhal_cl_native_free(&made);
        return CL_OUT_OF_RESOURCES;
    }
    atomic_fetch_add(&device->changes, 1);
    atomic_fetch_add(&uhal_cl.live[UHAL_CL_KIND_PINNED], 1);
    return 0;
}

uhalClResult uhalClMemFreeHost(void *pointer) {
    uhal_cl_memory freed;
    if (!uhal_ranges_remove(&uhal_cl.pinned, (uint64_t)(uintptr_t)pointer, &freed))
        return CL_INVALID_VALUE;
    atomic_fetch_add(&freed.device->changes, 1);
    atomic_fetch_sub(&uhal_cl.live[UHAL_CL_KIND_PINNED], 1);
    return uhal_cl_native_free(&freed);
}

/* -- queries by other files --------------------------------------------------------------------- */

bool uhal_cl_is_pinned(const void *pointer, size_t bytes) {
    const uint64_t address = (uint64_t)(uintptr_t)pointer;
    uhal_cl_memory found;
    return uhal_ranges_find(&uhal_cl.pinned, address, &found) &&
           bytes <= found.place.bytes - (address - found.place.start);
}

cl_mem uhal_cl_buffer_at(uhal_cl_device *device, uint64_t address, size_t *offset) {
    uhal_cl_memory found;
    if (!uhal_ranges_find(&device->memory, address, &found))
        return NULL;
    *offset = address - found.place.start;
    return found.buffer;
}

/* Appends the ranges that the device can access. False: no room. */
static bool append(uhal_ranges *ranges, const uhal_cl_device *device, uint64_t **starts,
                   size_t *count) {
    pthread_mutex_lock(&ranges->lock);
    uint64_t *grown = realloc(*starts, (*count + ranges->count + 1) * sizeof *grown);
    for (size_t i = 0; grown != NULL && i < ranges->count; ++i) {
        const uhal_cl_memory *one = (const uhal_cl_memory *)uhal_ranges_at(ranges, i);
        if (one->device == device && one->native)
            grown[(*count)++] = one->place.start;
    }
    pthread_mutex_unlock(&ranges->lock);
    if (grown != NULL)
        *starts = grown;
    return grown != NULL;
}

uint64_t *uhal_cl_reached(uhal_cl_device *device, size_t *count) {
    uint64_t *starts = NULL;
    *count = 0;
    if (append(&device->memory, device, &starts, count) &&
        append(&uhal_cl.pinned, device, &starts, count))
        return starts;
    free(starts);
    *count = 0;
    return NULL;
}
