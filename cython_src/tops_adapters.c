/* TopsRuntime has devices where CUDA has contexts: the token of a device is its ordinal + 1, so
 * that none is null. */
#include "tops_adapters.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../tops_backend/abi.h"
#include "hot_table.h"

/* -- current and bind over topsGetDevice and topsSetDevice ------------------------------------- */

static topsError_t (*get_device)(int *device);
static topsError_t (*set_device)(int device);

static int tops_current(void **context) {
    int device = 0;
    const topsError_t status = get_device(&device);
    *context = status == topsSuccess ? (void *)((intptr_t)device + 1) : NULL;
    return status;
}

static int tops_bind(void *context) {
    /* A thread always has a device: there is no way back to having none, and no harm in one. */
    return context == NULL ? topsSuccess : set_device((int)((intptr_t)context - 1));
}

/* -- alloc_async over topsMallocAsync, which also takes flags ---------------------------------- */

static topsError_t (*malloc_async)(void **pointer, size_t bytes, topsStream_t stream,
                                   uint64_t flags);

static int tops_alloc_async(uint64_t *address, size_t bytes, void *stream) {
    void *pointer = NULL;
    const topsError_t status = malloc_async(&pointer, bytes, (topsStream_t)stream, 0);
    *address = (uint64_t)(uintptr_t)pointer;
    return status;
}

/* -- stream_create over topsStreamCreateWithFlags, which knows no priority --------------------- */

static topsError_t (*stream_create_with_flags)(topsStream_t *stream, unsigned int flags);

static int tops_stream_create(void **stream, unsigned int flags, int priority) {
    (void)priority;
    return stream_create_with_flags((topsStream_t *)stream, flags);
}

/* -- stream_callback over topsStreamAddCallback, for libraries without topsLaunchHostFunc ------ */

static topsError_t (*stream_add_callback)(topsStream_t stream, topsStreamCallback_t callback,
                                          void *user_data, unsigned int flags);

struct host_call {
    uhal_host_function function;
    void *user_data;
};

static void run_host_call(topsStream_t stream, topsError_t status, void *user_data) {
    const struct host_call call = *(struct host_call *)user_data;
    (void)stream;
    (void)status;
    free(user_data);
    call.function(call.user_data);
}

static int tops_stream_callback(void *stream, uhal_host_function function, void *user_data) {
    struct host_call *call = malloc(sizeof(*call));
    topsError_t status;
    if (call == NULL)
        return topsErrorOutOfMemory;
    call->function = function;
    call->user_data = user_data;
    status = stream_add_callback((topsStream_t)stream, run_host_call, call, topsStreamDefault);
    if (status != topsSuccess)
        free(call);
    return status;
}

/* -- launch_ex over topsModuleLaunchKernelEx, in both readings of its configuration ------------ */

static topsError_t (*launch_kernel_ex)(const void *config, topsFunction_t function,
                                       void **parameters, void **extra);

#define TOPS_LAUNCH_EX(name, configuration)                                                        \
    static int name(const struct uhal_launch_config *wanted, void *function, void **parameters,    \
                    void **extra) {                                                                \
        topsLaunchAttribute attribute;                                                             \
        configuration config;                                                                      \
        memset(&attribute, 0, sizeof(attribute));                                                  \
        memset(&config, 0, sizeof(config));                                                        \
        memcpy(&config.gridDim, wanted->grid, sizeof(config.gridDim));                             \
        memcpy(&config.blockDim, wanted->block, sizeof(config.blockDim));                          \
        config.dynamicSmemBytes = wanted->shared_bytes;                                            \
        config.stream = (topsStream_t)wanted->stream;                                              \
        if (wanted->cooperative) {                                                                 \
            attribute.id = topsLaunchAttributeCooperative;                                         \
            attribute.val.cooperative = 1;                                                         \
            config.attrs = &attribute;                                                             \
            config.numAttrs = 1;                                                                   \
        }                                                                                          \
        return launch_kernel_ex(&config, (topsFunction_t)function, parameters, extra);             \
    }

TOPS_LAUNCH_EX(tops_launch_ex_72, uhalTopsLaunchConfig72)
TOPS_LAUNCH_EX(tops_launch_ex_64, uhalTopsLaunchConfig64)

/* -- by name ----------------------------------------------------------------------------------- */

#define TOPS_ADAPTER(adapter, target)                                                              \
    if (strcmp(name, #adapter) == 0) {                                                             \
        target = (__typeof__(target))vendor;                                                       \
        return (uhal_any_function)adapter;                                                         \
    }

uhal_any_function uhal_tops_adapter(const char *name, uhal_any_function vendor) {
    TOPS_ADAPTER(tops_current, get_device)
    TOPS_ADAPTER(tops_bind, set_device)
    TOPS_ADAPTER(tops_alloc_async, malloc_async)
    TOPS_ADAPTER(tops_stream_create, stream_create_with_flags)
    TOPS_ADAPTER(tops_stream_callback, stream_add_callback)
    TOPS_ADAPTER(tops_launch_ex_72, launch_kernel_ex)
    TOPS_ADAPTER(tops_launch_ex_64, launch_kernel_ex)
    return NULL;
}
