#define _DEFAULT_SOURCE /* on_exit */

#include "event.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* -- the end of the process -------------------------------------------------------------------- */

static uhal_cl_device *opened[UHAL_CL_MOST_DEVICES];
static atomic_uint opened_count;

#ifdef __GLIBC__
/* The user can interrupt uhal's own wait for pending work. After that, a runtime for CPUs would
 * wait again, until its kernels end. Exit handlers run in reverse order, so handlers of later
 * libraries have run by now. */
static void leave(int status, void *data) {
    (void)data;
    const unsigned count = atomic_load(&opened_count);
    for (unsigned i = 0; i < count; ++i)
        if (opened[i] != NULL && uhal_cl_streams_pending(opened[i])) {
            fflush(NULL);
            _exit(status);
        }
}
#endif

/* Devices are opened one at a time. Our exit handler is registered after OpenCL's handler, so ours
 * runs first. */
static void note_opened(uhal_cl_device *device) {
    const unsigned count = atomic_load(&opened_count);
    if (count == UHAL_CL_MOST_DEVICES)
        return;
#ifdef __GLIBC__
    on_exit(leave, NULL);
#endif
    opened[count] = device;
    atomic_store(&opened_count, count + 1);
}

/* -- open and close ---------------------------------------------------------------------------- */

uhalClResult uhalClDeviceOpen(void **context, const uhalClDeviceInfo *info) {
    uhal_cl_device *device = calloc(1, sizeof *device);
    if (device == NULL)
        return CL_OUT_OF_HOST_MEMORY;
    pthread_mutex_init(&device->lock, NULL);
    device->memory = (uhal_ranges)UHAL_RANGES_OF(uhal_cl_memory);
    device->context = info->context;
    device->device = info->device;
    device->info = *info;
    device->create_buffer = (__typeof__(device->create_buffer))info->create_buffer;
    device->set_address = (__typeof__(device->set_address))info->set_address;
    if (info->memory == UHAL_CL_MEMORY_USM) {
        device->device_alloc = (__typeof__(device->device_alloc))info->device_alloc;
        device->host_alloc = (__typeof__(device->host_alloc))info->host_alloc;
        device->blocking_free = (__typeof__(device->blocking_free))info->blocking_free;
        device->copy = (__typeof__(device->copy))info->memcpy;
        device->fill = (__typeof__(device->fill))info->fill;
        device->set_pointer = (__typeof__(device->set_pointer))info->set_pointer;
    } else {
        device->copy = uhal_cl.cl.clEnqueueSVMMemcpy;
        device->fill = uhal_cl.cl.clEnqueueSVMMemFill;
        device->set_pointer = uhal_cl.cl.clSetKernelArgSVMPointer;
    }
    uhal_cl_events_open(device);
    note_opened(device);
    *context = device;
    return 0;
}

uhalClResult uhalClDeviceClose(void *context) {
    if (uhal_cl_current() == context)
        uhalClCtxSetCurrent(NULL);
    return uhal_cl_events_close(context);
}

uhalClResult uhalClDeviceAllocated(size_t *bytes, void *context) {
    *bytes = atomic_load(&((uhal_cl_device *)context)->allocated);
    return 0;
}
