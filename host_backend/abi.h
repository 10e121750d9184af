/* C interface of libuhal_host.so, the host backend's native library: a small CUDA driver on CPU
 * threads. Functions are spelled after CUDA's and codes have CUDA's numbers.
 *
 * Readers: uhal/abi.py (ctypes) and the runtime itself, which includes it so that a wrong prototype
 * does not compile. Subset: integer defines, enums, typedefs, structs, prototypes.
 *
 * Any function may be called from any thread. Handles are trusted, because the interface above
 * checks them.
 */
#ifndef UHAL_HOST_ABI_H
#define UHAL_HOST_ABI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define UHAL_HOST_ABI_VERSION 4

typedef int uhalHostResult;

enum {
    UHAL_HOST_SUCCESS = 0,
    UHAL_HOST_ERROR_INVALID_VALUE = 1,
    UHAL_HOST_ERROR_OUT_OF_MEMORY = 2,
    UHAL_HOST_ERROR_NOT_INITIALIZED = 3,
    UHAL_HOST_ERROR_NO_DEVICE = 100,
    UHAL_HOST_ERROR_INVALID_DEVICE = 101,
    UHAL_HOST_ERROR_INVALID_IMAGE = 200,
    UHAL_HOST_ERROR_INVALID_CONTEXT = 201,
    UHAL_HOST_ERROR_NO_BINARY_FOR_CPU = 209,
    UHAL_HOST_ERROR_SHARED_OBJECT_INIT_FAILED = 303,
    UHAL_HOST_ERROR_OPERATING_SYSTEM = 304,
    UHAL_HOST_ERROR_INVALID_HANDLE = 400,
    UHAL_HOST_ERROR_ILLEGAL_STATE = 401,
    UHAL_HOST_ERROR_NOT_FOUND = 500,
    UHAL_HOST_ERROR_NOT_READY = 600,
    UHAL_HOST_ERROR_LAUNCH_OUT_OF_RESOURCES = 701,
    UHAL_HOST_ERROR_HOST_MEMORY_ALREADY_REGISTERED = 712,
    UHAL_HOST_ERROR_HOST_MEMORY_NOT_REGISTERED = 713,
    UHAL_HOST_ERROR_LAUNCH_FAILED = 719, /* sticky */
    UHAL_HOST_ERROR_NOT_SUPPORTED = 801,
    UHAL_HOST_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
    UHAL_HOST_ERROR_STREAM_CAPTURE_INVALIDATED = 901,
    UHAL_HOST_ERROR_STREAM_CAPTURE_MERGE = 902,
    UHAL_HOST_ERROR_STREAM_CAPTURE_UNMATCHED = 903,
    UHAL_HOST_ERROR_STREAM_CAPTURE_UNJOINED = 904,
    UHAL_HOST_ERROR_STREAM_CAPTURE_ISOLATION = 905,
    UHAL_HOST_ERROR_CAPTURED_EVENT = 907,
    UHAL_HOST_ERROR_UNKNOWN = 999
};

enum { UHAL_HOST_STREAM_DEFAULT = 0, UHAL_HOST_STREAM_NON_BLOCKING = 1 };
enum { UHAL_HOST_STREAM_PRIORITY_LEAST = 0, UHAL_HOST_STREAM_PRIORITY_GREATEST = -1 };
enum {
    UHAL_HOST_EVENT_DEFAULT = 0,
    UHAL_HOST_EVENT_BLOCKING_SYNC = 1,
    UHAL_HOST_EVENT_DISABLE_TIMING = 2,
    UHAL_HOST_EVENT_INTERPROCESS = 4
};

/* The only mode: only a call on a capturing stream can invalidate the stream's capture. */
enum { UHAL_HOST_STREAM_CAPTURE_MODE_RELAXED = 2 };
enum {
    UHAL_HOST_STREAM_CAPTURE_STATUS_NONE = 0,
    UHAL_HOST_STREAM_CAPTURE_STATUS_ACTIVE = 1,
    UHAL_HOST_STREAM_CAPTURE_STATUS_INVALIDATED = 2
};

typedef enum uhalHostKind {
    UHAL_HOST_KIND_STREAM = 0,
    UHAL_HOST_KIND_EVENT = 1,
    UHAL_HOST_KIND_MODULE = 2,
    UHAL_HOST_KIND_ALLOCATION = 3,
    UHAL_HOST_KIND_PINNED = 4,
    UHAL_HOST_KIND_GRAPH = 5,
    UHAL_HOST_KIND_GRAPH_EXEC = 6
} uhalHostKind;

typedef void (*uhal_host_function)(void *user_data);
typedef int (*uhal_go_on)(void *user_data);

/* Pageable sources up to this size are copied to a buffer, so that the caller does not wait. */
#define UHAL_HOST_STAGED_BYTES 65536

typedef struct uhalHostDeviceProperties {
    unsigned int processors;        /* cores this process may use */
    unsigned int instruction_level; /* x86-64 level of the CPU, 1 to 4; 0 on other machines */
    unsigned int max_threads_per_block;
    unsigned int max_block[3];
    unsigned int max_grid[3];
    unsigned int max_shared_bytes;
    unsigned int max_parameter_bytes;
    unsigned int queue_depth; /* tasks a stream holds before a caller waits */
    uint64_t total_memory;    /* bytes */
} uhalHostDeviceProperties;

/* One parameter of a kernel; the fields match struct uhal_host_parameter. */
typedef struct uhalHostParameter {
    uint32_t size;
    uint32_t alignment;
    uint32_t flags; /* 1: pointer, 2: to const */
    uint32_t dtype; /* character code, 0 if the type is not scalar */
} uhalHostParameter;

/* Pointers stay valid while the module is loaded. */
typedef struct uhalHostKernelInfo {
    const char *entry;
    const char *parameter_text;
    const uhalHostParameter *parameters;
    uint32_t parameter_count;
    uint32_t max_threads_per_block;
} uhalHostKernelInfo;

typedef struct uhalHostFuncAttributes {
    unsigned int max_threads_per_block;
    unsigned int max_dynamic_shared_bytes;
    double nanoseconds_per_item; /* measured so far, per work-item; negative: never run */
} uhalHostFuncAttributes;

/* Process, devices */
uhalHostResult uhalHostInit(unsigned int flags);
uhalHostResult uhalHostGetVersion(int *version);
uhalHostResult uhalHostGetErrorName(uhalHostResult error, const char **name);
uhalHostResult uhalHostGetErrorString(uhalHostResult error, const char **text);
const char *uhalHostLastErrorText(void); /* details of this thread's last failure; never null */
uhalHostResult uhalHostLiveCount(uhalHostKind kind, size_t *count);
uhalHostResult uhalHostDeviceGetCount(int *count);
uhalHostResult uhalHostDeviceGetName(char *name, int bytes, int ordinal);
uhalHostResult uhalHostDeviceGetProperties(uhalHostDeviceProperties *properties, int ordinal);
uhalHostResult uhalHostDeviceGetContext(void **context, int ordinal);
/* Reports of launches whose kernels got no memory for their own use. The word is not 0 while
 * reports exist. TakeReport returns the stream's handle, the number of earlier launches on the
 * stream, and the kernel's name cut to `bytes`. Without a report, TakeReport returns
 * UHAL_HOST_ERROR_NOT_FOUND. */
uhalHostResult uhalHostDeviceGetReportWord(void **word, int ordinal);
uhalHostResult uhalHostDeviceTakeReport(uint64_t *stream, uint64_t *launch, char *entry,
                                        size_t bytes, int ordinal);
uhalHostResult uhalHostCtxGetCurrent(void **context);
uhalHostResult uhalHostCtxSetCurrent(void *context);
uhalHostResult uhalHostCtxSynchronize(void);

/* Modules: an image is a shared library built with <uhal/kernel.h>. */
uhalHostResult uhalHostModuleLoadData(void **module, const void *image, size_t bytes);
uhalHostResult uhalHostModuleUnload(void *module);
uhalHostResult uhalHostModuleGetKernelCount(unsigned int *count, void *module);
uhalHostResult uhalHostModuleGetKernel(uhalHostKernelInfo *info, unsigned int index, void *module);
uhalHostResult uhalHostModuleGetFunction(void **function, void *module, const char *name);
uhalHostResult uhalHostModuleGetGlobal(uint64_t *address, size_t *bytes, void *module,
                                       const char *name);
uhalHostResult uhalHostFuncGetAttributes(uhalHostFuncAttributes *attributes, void *function);
uhalHostResult uhalHostLaunchKernel(void *function, unsigned int grid_x, unsigned int grid_y,
                                    unsigned int grid_z, unsigned int block_x,
                                    unsigned int block_y, unsigned int block_z,
                                    unsigned int shared_bytes, void *stream, void **parameters,
                                    void **extra);

/* Memory */
uhalHostResult uhalHostMemGetInfo(size_t *free_bytes, size_t *total_bytes);
uhalHostResult uhalHostMemAlloc(uint64_t *address, size_t bytes);
uhalHostResult uhalHostMemFree(uint64_t address);
uhalHostResult uhalHostMemAllocAsync(uint64_t *address, size_t bytes, void *stream);
uhalHostResult uhalHostMemFreeAsync(uint64_t address, void *stream);
uhalHostResult uhalHostMemHostAlloc(void **pointer, size_t bytes, unsigned int flags);
uhalHostResult uhalHostMemFreeHost(void *pointer);
uhalHostResult uhalHostMemHostRegister(void *pointer, size_t bytes, unsigned int flags);
uhalHostResult uhalHostMemHostUnregister(void *pointer);
uhalHostResult uhalHostMemHostIsPinned(int *pinned, const void *pointer, size_t bytes);
uhalHostResult uhalHostMemcpyHtoDAsync(uint64_t destination, const void *source, size_t bytes,
                                       void *stream);
uhalHostResult uhalHostMemcpyDtoHAsync(void *destination, uint64_t source, size_t bytes,
                                       void *stream);
uhalHostResult uhalHostMemcpyDtoDAsync(uint64_t destination, uint64_t source, size_t bytes,
                                       void *stream);
uhalHostResult uhalHostMemcpyPeerAsync(uint64_t destination, void *destination_context,
                                       uint64_t source, void *source_context, size_t bytes,
                                       void *stream);
uhalHostResult uhalHostMemsetD8Async(uint64_t destination, unsigned char value, size_t count,
                                     void *stream);
uhalHostResult uhalHostMemsetD16Async(uint64_t destination, unsigned short value, size_t count,
                                      void *stream);
uhalHostResult uhalHostMemsetD32Async(uint64_t destination, unsigned int value, size_t count,
                                      void *stream);

/* Streams */
uhalHostResult uhalHostStreamCreateWithPriority(void **stream, unsigned int flags, int priority);
uhalHostResult uhalHostStreamDestroy(void *stream);
uhalHostResult uhalHostStreamSynchronize(void *stream);
/* Functions whose names end in While call `go_on` every 50 ms; if it returns 0, they return
 * NOT_READY. */
uhalHostResult uhalHostStreamSynchronizeWhile(void *stream, uhal_go_on go_on, void *user_data);
uhalHostResult uhalHostStreamQuery(void *stream);
/* Returns the number of completed launches of the stream, and the number of launches that had begun
 * when a kernel failed. A graph counts as one launch. `place` is the failed kernel's index in a
 * graph. The call also works on a lost device. */
uhalHostResult uhalHostStreamProgress(void *stream, uint64_t *completed, uint64_t *begun,
                                      uint64_t *place);
uhalHostResult uhalHostStreamWaitEvent(void *stream, void *event, unsigned int flags);
uhalHostResult uhalHostLaunchHostFunc(void *stream, uhal_host_function function, void *user_data);
/* A call of a C function that returns an int and takes integers and addresses. A thread that may
 * block makes the call. `status` is the address of an int that lives as long as the work. The first
 * result other than 0 is stored there, and later calls with the same `status` are skipped. Nothing
 * is called on a lost device. */
typedef struct uhalHostCall {
    uint64_t function;
    int64_t arguments[8];
    uint64_t status;
} uhalHostCall;
uhalHostResult uhalHostLaunchCall(void *stream, const uhalHostCall *call);
/* An MPI_User_function of f16 or bf16; `op` is sum, prod, max or min. */
uhalHostResult uhalHostGetReduction(uint64_t *function, const char *dtype, const char *op);

/* Events */
uhalHostResult uhalHostEventCreate(void **event, unsigned int flags);
uhalHostResult uhalHostEventDestroy(void *event);
uhalHostResult uhalHostEventRecord(void *event, void *stream);
uhalHostResult uhalHostEventSynchronize(void *event);
uhalHostResult uhalHostEventSynchronizeWhile(void *event, uhal_go_on go_on, void *user_data);
uhalHostResult uhalHostEventQuery(void *event);
uhalHostResult uhalHostEventElapsedTime(float *milliseconds, void *start, void *end);

/* Graphs. A capturing stream records kernels, copies of pinned and device memory, fills, host
 * functions and calls. A stream that waits for an event recorded in a capture joins the capture.
 * Before the end, the capture's first stream must wait for the joined stream. Any other call
 * invalidates the capture, and uhalHostLastErrorText names it. A launched graph runs as one task,
 * in the order of recording; launches of one executable graph never overlap. Objects may be
 * destroyed at any time; launched work still runs. */
uhalHostResult uhalHostStreamBeginCapture(void *stream, int mode);
uhalHostResult uhalHostStreamEndCapture(void *stream, void **graph);
uhalHostResult uhalHostStreamIsCapturing(void *stream, int *status);
/* The kernels in the order they were launched in. `nodes` null: only counts. */
uhalHostResult uhalHostGraphGetKernels(void *graph, void **nodes, size_t *count);
/* All steps, and the host functions and calls among them. */
uhalHostResult uhalHostGraphGetCounts(void *graph, size_t *steps, size_t *host_functions);
uhalHostResult uhalHostGraphDestroy(void *graph);
uhalHostResult uhalHostGraphInstantiate(void **executable, void *graph);
uhalHostResult uhalHostGraphExecDestroy(void *executable);
uhalHostResult uhalHostGraphLaunch(void *executable, void *stream);
/* Earlier launches keep their values, and this call does not wait for them. Pending launches run
 * from a copy of the graph. The graph keeps the copy for its next change. */
uhalHostResult uhalHostGraphExecKernelNodeSetParams(
    void *executable, void *node, void *function, unsigned int grid_x, unsigned int grid_y,
    unsigned int grid_z, unsigned int block_x, unsigned int block_y, unsigned int block_z,
    unsigned int shared_bytes, void **parameters);

#ifdef __cplusplus
}
#endif

#endif
