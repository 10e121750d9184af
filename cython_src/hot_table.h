/* The hot table: the native calls the lane makes on a launch, a copy or a wait.
 *
 * A backend fills it with addresses. Each slot has the prototype of the CUDA driver function named
 * beside it: handles are void*, device addresses uint64_t, and the result is an int, 0 on success.
 * A vendor function with this prototype is used directly; others get a one-line adapter. The list
 * below is the only definition of the slots: the struct, the names the loader knows and the
 * prototypes the tests compare with the ABI headers are all expansions of it.
 *
 * `required` slots are never null. An `optional` slot may be null; calls that need it then raise an
 * error that says so.
 */
#ifndef UHAL_HOT_TABLE_H
#define UHAL_HOT_TABLE_H

#include <stddef.h>
#include <stdint.h>

typedef void (*uhal_host_function)(void *user_data);

/* Returns whether to continue a wait; 0: stop. */
typedef int (*uhal_go_on)(void *user_data);

/* One kernel parameter as prepare_function receives it. */
struct uhal_parameter {
    uint32_t offset; /* in the parameter block, bytes */
    uint32_t size;   /* bytes */
    uint32_t is_pointer;
};

struct uhal_signature {
    uint32_t count;
    const struct uhal_parameter *parameters;
};

/* A launch with more than geometry, as launch_ex receives it. */
struct uhal_launch_config {
    unsigned int grid[3];
    unsigned int block[3];
    unsigned int cluster[3]; /* in blocks; all 0: no clusters */
    unsigned int shared_bytes;
    int cooperative;  /* 1: all blocks of the grid are resident together */
    int has_priority; /* 1: `priority` replaces the stream's priority */
    int priority;
    void *stream;
};

/* clang-format off */
#define UHAL_SLOTS(SLOT)                                                                           \
    /* cuCtxGetCurrent, cuCtxSetCurrent */                                                         \
    SLOT(required, current, (void **context))                                                      \
    SLOT(required, bind, (void *context))                                                          \
    /* cuLaunchKernel; cuLaunchKernelEx through an adapter (slot_adapters.h) */                     \
    SLOT(required, launch, (void *function, unsigned int grid_x, unsigned int grid_y,              \
                            unsigned int grid_z, unsigned int block_x, unsigned int block_y,       \
                            unsigned int block_z, unsigned int shared_bytes, void *stream,         \
                            void **parameters, void **extra))                                      \
    SLOT(optional, launch_ex, (const struct uhal_launch_config *config, void *function,            \
                               void **parameters, void **extra))                                   \
    SLOT(optional, prepare_function, (void *function, const struct uhal_signature *signature))     \
    /* cuMemAlloc, cuMemFree, cuMemAllocAsync, cuMemFreeAsync, cuMemHostAlloc, cuMemFreeHost */    \
    SLOT(required, alloc, (uint64_t *address, size_t bytes))                                       \
    SLOT(required, free, (uint64_t address))                                                       \
    SLOT(optional, alloc_async, (uint64_t *address, size_t bytes, void *stream))                   \
    SLOT(optional, free_async, (uint64_t address, void *stream))                                   \
    SLOT(required, host_alloc, (void **pointer, size_t bytes, unsigned int flags))                 \
    SLOT(required, host_free, (void *pointer))                                                     \
    /* cuMemcpyHtoDAsync, cuMemcpyDtoHAsync, cuMemcpyDtoDAsync, cuMemcpyPeerAsync */               \
    SLOT(required, copy_h2d, (uint64_t destination, const void *source, size_t bytes,              \
                              void *stream))                                                       \
    SLOT(required, copy_d2h, (void *destination, uint64_t source, size_t bytes, void *stream))     \
    SLOT(required, copy_d2d, (uint64_t destination, uint64_t source, size_t bytes, void *stream))  \
    SLOT(optional, copy_peer, (uint64_t destination, void *destination_context, uint64_t source,   \
                               void *source_context, size_t bytes, void *stream))                  \
    /* cuMemsetD8Async, cuMemsetD16Async, cuMemsetD32Async; count is in elements */                \
    SLOT(required, memset_8, (uint64_t destination, unsigned char value, size_t count,             \
                              void *stream))                                                       \
    SLOT(required, memset_16, (uint64_t destination, unsigned short value, size_t count,           \
                               void *stream))                                                      \
    SLOT(required, memset_32, (uint64_t destination, unsigned int value, size_t count,             \
                               void *stream))                                                      \
    /* cuStreamCreateWithPriority, cuStreamDestroy, cuStreamSynchronize, cuStreamQuery,            \
       cuStreamWaitEvent, cuLaunchHostFunc */                                                      \
    SLOT(required, stream_create, (void **stream, unsigned int flags, int priority))               \
    SLOT(required, stream_destroy, (void *stream))                                                 \
    SLOT(required, stream_synchronize, (void *stream))                                             \
    /* Not in CUDA: like stream_synchronize, but calls `go_on` at least every 50 ms, without a     \
       lock, and returns not_ready once `go_on` returns 0. If the slot is null, the lane uses      \
       a separate thread for waits that the caller may give up. */                                 \
    SLOT(optional, stream_synchronize_while, (void *stream, uhal_go_on go_on, void *user_data))    \
    SLOT(required, stream_query, (void *stream))                                                   \
    SLOT(required, stream_wait_event, (void *stream, void *event, unsigned int flags))             \
    SLOT(required, stream_callback, (void *stream, uhal_host_function function, void *user_data))  \
    /* Not in CUDA: returns how many launches of a stream have completed, and how many may have    \
       begun; a graph counts as one launch. If the launch that began last is a graph, `index` is   \
       the graph's running kernel, or UINT64_MAX if unknown. The counts narrow the suspects        \
       of a fault. */                                                                              \
    SLOT(optional, stream_progress,                                                                \
         (void *stream, uint64_t *completed, uint64_t *begun, uint64_t *index))                    \
    /* Not in CUDA: `begins` 1 says that a series of operations follows on the stream without a     \
       pause, 0 that the series is over. A backend that batches may then submit the series as a    \
       whole. The lane surrounds a plan without a graph so, also if an operation fails. */         \
    SLOT(optional, stream_series, (void *stream, int begins))                                      \
    /* cuEventCreate, cuEventDestroy, cuEventRecord, cuEventSynchronize, cuEventQuery,             \
       cuEventElapsedTime */                                                                       \
    SLOT(required, event_create, (void **event, unsigned int flags))                               \
    SLOT(required, event_destroy, (void *event))                                                   \
    SLOT(required, event_record, (void *event, void *stream))                                      \
    SLOT(required, event_synchronize, (void *event))                                               \
    /* The counterpart of stream_synchronize_while for events. */                                  \
    SLOT(optional, event_synchronize_while, (void *event, uhal_go_on go_on, void *user_data))      \
    SLOT(required, event_query, (void *event))                                                     \
    SLOT(required, event_elapsed, (float *milliseconds, void *start, void *end))                   \
    /* cuModuleGetFunction, cuModuleUnload */                                                      \
    SLOT(required, get_function, (void **function, void *module, const char *name))                \
    SLOT(required, module_unload, (void *module))                                                  \
    /* cuGraphLaunch; cuGraphExecKernelNodeSetParams through an adapter (slot_adapters.h) */        \
    SLOT(optional, graph_launch, (void *executable, void *stream))                                 \
    SLOT(optional, graph_update_kernel, (void *executable, void *node, void *function,             \
                                         unsigned int grid_x, unsigned int grid_y,                 \
                                         unsigned int grid_z, unsigned int block_x,                \
                                         unsigned int block_y, unsigned int block_z,               \
                                         unsigned int shared_bytes, void **parameters))
/* clang-format on */

enum { UHAL_MAX_STICKY_CODES = 16 };

#define UHAL_SLOT_FIELD(need, name, parameters) int(*name) parameters;
typedef struct uhal_hot_table {
    UHAL_SLOTS(UHAL_SLOT_FIELD)
    int not_ready;     /* the result of stream_query and event_query while work is pending */
    int out_of_memory; /* the result of alloc when the device is full */
    int frees_wait;    /* 1: free and host_free wait for everything that is pending */
    /* pageable sources up to this size are read at once, also behind pending work */
    size_t staged_bytes;
    int sticky_count; /* codes after which every later call on the device fails */
    int sticky[UHAL_MAX_STICKY_CODES];
} uhal_hot_table;
#undef UHAL_SLOT_FIELD

#endif
