/* Adapters for slots whose TopsRuntime function has another prototype. TopsRuntime has devices
 * where CUDA has contexts: the token of a device is its ordinal + 1, so no token is null. */
#include "slot_adapters.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "abi.h"
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
    /* A thread always has a device, so a call to unbind the device does nothing. */
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

/* -- launches with parameters in one block, for libraries that take no kernelParams ------------ */

enum { MOST_PARAMETER_BYTES = 4096, LAYOUT_CHAINS = 256 };

struct layout {
    void *function;
    uint32_t bytes;
    uint32_t count;
    struct layout *earlier;
    struct uhal_parameter parameters[];
};

/* This table only grows: a launch may read it while another thread adds an entry. */
static _Atomic(struct layout *) layouts[LAYOUT_CHAINS];

static int packs_parameters;

static _Atomic(struct layout *) *chain_of(const void *function) {
    return &layouts[((uintptr_t)function >> 4) % LAYOUT_CHAINS];
}

/* Returns the newest entry: the runtime may reuse the handle of an unloaded function. */
static const struct layout *layout_of(const void *function) {
    const struct layout *layout = atomic_load(chain_of(function));
    while (layout != NULL && layout->function != function)
        layout = layout->earlier;
    return layout;
}

static int tops_prepare_function(void *function, const struct uhal_signature *signature) {
    const size_t room = signature->count * sizeof(struct uhal_parameter);
    const struct layout *known = layout_of(function);
    struct layout *layout;
    uint32_t index;
    if (known != NULL && known->count == signature->count &&
        memcmp(known->parameters, signature->parameters, room) == 0)
        return topsSuccess;
    layout = calloc(1, sizeof(*layout) + room);
    if (layout == NULL)
        return topsErrorOutOfMemory;
    layout->function = function;
    layout->count = signature->count;
    for (index = 0; index < signature->count; ++index) {
        const struct uhal_parameter *parameter = &signature->parameters[index];
        layout->parameters[index] = *parameter;
        if (parameter->offset + parameter->size > layout->bytes)
            layout->bytes = parameter->offset + parameter->size;
    }
    layout->earlier = atomic_load(chain_of(function));
    while (!atomic_compare_exchange_weak(chain_of(function), &layout->earlier, layout))
        continue;
    return topsSuccess;
}

struct packed {
    unsigned char block[MOST_PARAMETER_BYTES];
    size_t bytes;
    void *extra[5];
};

/* Fills the five words of `extra`. A function that was never prepared has unknown parameters. */
static topsError_t pack(const void *function, void **parameters, struct packed *packed) {
    const struct layout *layout = layout_of(function);
    uint32_t index;
    if (layout == NULL || layout->bytes > sizeof(packed->block))
        return topsErrorInvalidDeviceFunction;
    memset(packed->block, 0, layout->bytes);
    for (index = 0; index < layout->count; ++index)
        memcpy(packed->block + layout->parameters[index].offset, parameters[index],
               layout->parameters[index].size);
    packed->bytes = layout->bytes;
    packed->extra[0] = (void *)(uintptr_t)UHAL_TOPS_LAUNCH_BUFFER;
    packed->extra[1] = packed->block;
    packed->extra[2] = (void *)(uintptr_t)UHAL_TOPS_LAUNCH_BUFFER_SIZE;
    packed->extra[3] = &packed->bytes;
    packed->extra[4] = (void *)(uintptr_t)UHAL_TOPS_LAUNCH_END;
    return topsSuccess;
}

static topsError_t (*launch_kernel)(topsFunction_t function, unsigned int grid_x,
                                    unsigned int grid_y, unsigned int grid_z, unsigned int block_x,
                                    unsigned int block_y, unsigned int block_z,
                                    unsigned int shared_bytes, topsStream_t stream,
                                    void **parameters, void **extra);

static int tops_launch_packed(void *function, unsigned int grid_x, unsigned int grid_y,
                              unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                              unsigned int block_z, unsigned int shared_bytes, void *stream,
                              void **parameters, void **extra) {
    struct packed packed;
    const topsError_t status = pack(function, parameters, &packed);
    (void)extra;
    return status != topsSuccess
               ? status
               : launch_kernel((topsFunction_t)function, grid_x, grid_y, grid_z, block_x, block_y,
                               block_z, shared_bytes, (topsStream_t)stream, NULL, packed.extra);
}

/* -- launch_ex over topsModuleLaunchKernelEx, in both readings of its configuration ------------ */

static topsError_t (*launch_kernel_ex)(const void *config, topsFunction_t function,
                                       void **parameters, void **extra);

/* From gcu400 on, blocks have two axes, and the third axis of a launch is the number of threads of
 * a SIP. */
static int has_sub_threads;

static int launch_with(const void *config, void *function, void **parameters, void **extra) {
    struct packed packed;
    topsError_t status;
    if (!packs_parameters)
        return launch_kernel_ex(config, (topsFunction_t)function, parameters, extra);
    status = pack(function, parameters, &packed);
    return status != topsSuccess
               ? status
               : launch_kernel_ex(config, (topsFunction_t)function, NULL, packed.extra);
}

#define TOPS_LAUNCH_EX(name, configuration)                                                        \
    static int name(const struct uhal_launch_config *wanted, void *function, void **parameters,    \
                    void **extra) {                                                                \
        topsLaunchAttribute attributes[2];                                                         \
        configuration config;                                                                      \
        memset(attributes, 0, sizeof(attributes));                                                 \
        memset(&config, 0, sizeof(config));                                                        \
        memcpy(&config.gridDim, wanted->grid, sizeof(config.gridDim));                             \
        memcpy(&config.blockDim, wanted->block, sizeof(config.blockDim));                          \
        config.dynamicSmemBytes = wanted->shared_bytes;                                            \
        config.stream = (topsStream_t)wanted->stream;                                              \
        config.attrs = attributes;                                                                 \
        if (wanted->cooperative) {                                                                 \
            attributes[config.numAttrs].id = topsLaunchAttributeCooperative;                       \
            attributes[config.numAttrs++].val.cooperative = 1;                                     \
        }                                                                                          \
        if (has_sub_threads) {                                                                     \
            topsLaunchAttribute *const attribute = &attributes[config.numAttrs++];                 \
            attribute->id = topsLaunchAttributeThreadDimension;                                    \
            attribute->val.ThreadDim[0] = config.blockDim.z;                                       \
            attribute->val.ThreadDim[1] = 1;                                                       \
            attribute->val.ThreadDim[2] = 1;                                                       \
            config.blockDim.z = 1;                                                                 \
        }                                                                                          \
        return launch_with(&config, function, parameters, extra);                                  \
    }

TOPS_LAUNCH_EX(tops_launch_ex_72, uhalTopsLaunchConfig72)
TOPS_LAUNCH_EX(tops_launch_ex_64, uhalTopsLaunchConfig64)

/* -- launch over topsModuleLaunchKernelEx, for devices that take no other ---------------------- */

#define TOPS_LAUNCH(name, extended)                                                                \
    static int name(void *function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, \
                    unsigned int block_x, unsigned int block_y, unsigned int block_z,              \
                    unsigned int shared_bytes, void *stream, void **parameters, void **extra) {    \
        struct uhal_launch_config wanted;                                                          \
        memset(&wanted, 0, sizeof(wanted));                                                        \
        wanted.grid[0] = grid_x;                                                                   \
        wanted.grid[1] = grid_y;                                                                   \
        wanted.grid[2] = grid_z;                                                                   \
        wanted.block[0] = block_x;                                                                 \
        wanted.block[1] = block_y;                                                                 \
        wanted.block[2] = block_z;                                                                 \
        wanted.shared_bytes = shared_bytes;                                                        \
        wanted.stream = stream;                                                                    \
        return extended(&wanted, function, parameters, extra);                                     \
    }

TOPS_LAUNCH(tops_launch_72, tops_launch_ex_72)
TOPS_LAUNCH(tops_launch_64, tops_launch_ex_64)

/* -- by name ----------------------------------------------------------------------------------- */

/* The requested adapters show which launches are made. */
#define TOPS_CHOICE(function, target, flag)                                                        \
    if (strcmp(name, #function) == 0)                                                              \
        flag = 1;                                                                                  \
    UHAL_SLOT_ADAPTER(function, target)

uhal_any_function uhal_slot_adapter(const char *name, uhal_any_function vendor) {
    UHAL_SLOT_ADAPTER(tops_current, get_device)
    UHAL_SLOT_ADAPTER(tops_bind, set_device)
    UHAL_SLOT_ADAPTER(tops_alloc_async, malloc_async)
    UHAL_SLOT_ADAPTER(tops_stream_create, stream_create_with_flags)
    UHAL_SLOT_ADAPTER(tops_stream_callback, stream_add_callback)
    UHAL_SLOT_ADAPTER(tops_launch_ex_72, launch_kernel_ex)
    UHAL_SLOT_ADAPTER(tops_launch_ex_64, launch_kernel_ex)
    UHAL_SLOT_ADAPTER(tops_launch_packed, launch_kernel)
    TOPS_CHOICE(tops_prepare_function, launch_kernel, packs_parameters)
    TOPS_CHOICE(tops_launch_72, launch_kernel_ex, has_sub_threads)
    TOPS_CHOICE(tops_launch_64, launch_kernel_ex, has_sub_threads)
    return NULL;
}
