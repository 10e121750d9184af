/* C interface of libuhal_hsa.so: streams, events, copies and launches over the HSA runtime, in the
 * shapes of the hot table. The library does not link ROCm: its caller passes the addresses of the
 * HSA runtime's functions.
 *
 * Readers: uhal/abi.py (ctypes) and the library itself, which includes this header so that a wrong
 * prototype does not compile. Subset: integer defines, enums, typedefs, structs, prototypes.
 *
 * Any thread may call any function, but only one thread at a time may open or close a device.
 * Handles are trusted, because the interface above checks them. A result is 0, the HSA runtime's
 * hsa_status_t, or a code below.
 */
#ifndef UHAL_HSA_RUNTIME_H
#define UHAL_HSA_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define UHAL_HSA_VERSION 3

typedef int uhalHsaResult;
typedef void (*uhal_host_function)(void *user_data);
typedef int (*uhal_go_on)(void *user_data);

/* Pageable memory up to this size is staged: a source is read before the call returns. */
#define UHAL_HSA_STAGED_BYTES 1048576

/* The device is lost: every later call on it returns the same code. If a queue failed with a
 * hsa_status_t, the code is UHAL_HSA_LOST + this status. */
enum {
    UHAL_HSA_NOT_READY = 0x8000,
    UHAL_HSA_LOST = 0x10000,
    UHAL_HSA_LOST_MEMORY_APERTURE_VIOLATION = 0x10029,
    UHAL_HSA_LOST_ILLEGAL_INSTRUCTION = 0x1002A,
    UHAL_HSA_LOST_MEMORY_FAULT = 0x1002B,
    UHAL_HSA_LOST_OUT_OF_REGISTERS = 0x1002D,
    UHAL_HSA_LOST_ERROR = 0x11000, /* any error outside this list */
    UHAL_HSA_LOST_INVALID_ARGUMENT = 0x11001,
    UHAL_HSA_LOST_INVALID_ALLOCATION = 0x11003,
    UHAL_HSA_LOST_OUT_OF_RESOURCES = 0x11008,
    UHAL_HSA_LOST_INVALID_PACKET_FORMAT = 0x11009,
    UHAL_HSA_LOST_INCOMPATIBLE_ARGUMENTS = 0x1100D,
    UHAL_HSA_LOST_INVALID_ISA = 0x1100F,
    UHAL_HSA_LOST_INVALID_CODE_OBJECT = 0x11010,
    UHAL_HSA_LOST_EXCEPTION = 0x11016,
    UHAL_HSA_LOST_COPY = 0x18001,     /* a copy failed */
    UHAL_HSA_LOST_DEADLINE = 0x18002, /* nothing moved until the deadline */
    UHAL_HSA_LOST_PEER = 0x18003      /* the device waits for another, lost device */
};

/* Codes of captures; uhalHsaCaptureText says why a capture is invalid. */
enum {
    UHAL_HSA_ILLEGAL_STATE = 0x8100,
    UHAL_HSA_CAPTURE_UNSUPPORTED = 0x8101,
    UHAL_HSA_CAPTURE_INVALIDATED = 0x8102,
    UHAL_HSA_CAPTURE_MERGE = 0x8103,
    UHAL_HSA_CAPTURE_UNMATCHED = 0x8104,
    UHAL_HSA_CAPTURE_UNJOINED = 0x8105,
    UHAL_HSA_CAPTURE_ISOLATION = 0x8106,
    UHAL_HSA_CAPTURED_EVENT = 0x8107
};

/* The only mode: only a call on a capturing stream can invalidate the stream's capture. */
enum { UHAL_HSA_STREAM_CAPTURE_MODE_RELAXED = 2 };
enum {
    UHAL_HSA_STREAM_CAPTURE_STATUS_NONE = 0,
    UHAL_HSA_STREAM_CAPTURE_STATUS_ACTIVE = 1,
    UHAL_HSA_STREAM_CAPTURE_STATUS_INVALIDATED = 2
};

enum { UHAL_HSA_EVENT_DISABLE_TIMING = 2 };
enum { UHAL_HSA_MAX_QUEUES = 64, UHAL_HSA_MAX_DEVICES = 64 };

typedef enum uhalHsaKind {
    UHAL_HSA_KIND_STREAM = 0,
    UHAL_HSA_KIND_EVENT = 1,
    UHAL_HSA_KIND_MODULE = 2,
    UHAL_HSA_KIND_ALLOCATION = 3,
    UHAL_HSA_KIND_PINNED = 4,
    UHAL_HSA_KIND_GRAPH = 5,
    UHAL_HSA_KIND_GRAPH_EXEC = 6
} uhalHsaKind;

/* Settings of every device. `agents` are all GPUs, open or not: each can access pinned memory. */
typedef struct uhalHsaSettings {
    uint64_t timestamp_frequency; /* ticks per second */
    uint64_t deadline_ns;         /* longest wait of the host; 0: no limit */
    uint32_t queues;              /* shared by a device's streams; 0: one for each stream */
    uint32_t agent_count;
    uint64_t agents[UHAL_HSA_MAX_DEVICES];
} uhalHsaSettings;

/* A GPU, and the pools to allocate from, by their handles. */
typedef struct uhalHsaDeviceInfo {
    uint64_t agent;
    uint64_t host_agent; /* the CPU agent named in copies from and to the host */
    uint64_t device_pool;
    uint64_t pinned_pool; /* host memory that the device accesses directly */
    uint64_t kernarg_pool;
    uint32_t device_pool_is_host; /* 1: the device has no memory of its own */
    uint32_t queue_packets;
    uint32_t ordinal;
} uhalHsaDeviceInfo;

/* One argument that a caller gives. */
typedef struct uhalHsaParameter {
    uint32_t offset;
    uint32_t size;
    uint32_t is_pointer;
} uhalHsaParameter;

/* An argument that the launcher fills; `kind` is its metadata name: hidden_block_count_x. */
typedef struct uhalHsaHidden {
    const char *kind;
    uint32_t offset;
} uhalHsaHidden;

/* A kernel's metadata. Everything is copied. */
typedef struct uhalHsaKernelInfo {
    const char *name;
    const char *symbol;
    const uhalHsaParameter *parameters;
    const uhalHsaHidden *hidden;
    uint32_t parameter_count;
    uint32_t hidden_count;
    uint32_t kernarg_bytes;
    uint32_t group_bytes;
    uint32_t private_bytes;
    uint32_t max_block_threads;
    uint32_t vector_registers; /* 0: unknown */
    uint32_t foreign;          /* 1: the kernel has arguments that callers cannot pass */
} uhalHsaKernelInfo;

/* Process and devices. `functions` has one address for each name of uhalHsaFunctionName, in the
 * order of its index. */
uhalHsaResult uhalHsaVersion(int *version);
uhalHsaResult uhalHsaFunctionName(const char **name, unsigned int index);
uhalHsaResult uhalHsaOpen(void *const *functions, unsigned int count,
                          const uhalHsaSettings *settings);
uhalHsaResult uhalHsaLiveCount(uhalHsaKind kind, size_t *count);
uhalHsaResult uhalHsaDeviceOpen(void **context, const uhalHsaDeviceInfo *info);
uhalHsaResult uhalHsaDeviceClose(void *context);
uhalHsaResult uhalHsaDeviceSynchronize(void *context);
uhalHsaResult uhalHsaDeviceAllocated(size_t *bytes, void *context);
/* Facts of the last loss reported to this thread; empty when there was none. */
uhalHsaResult uhalHsaFaultText(char *text, size_t bytes);
uhalHsaResult uhalHsaCtxGetCurrent(void **context);
uhalHsaResult uhalHsaCtxSetCurrent(void *context);

/* Modules of the current device. `call` says which function of the runtime failed. */
uhalHsaResult uhalHsaModuleLoad(void **module, const void *image, size_t bytes,
                                const uhalHsaKernelInfo *kernels, unsigned int count,
                                const char **call);
uhalHsaResult uhalHsaModuleUnload(void *module);
uhalHsaResult uhalHsaModuleGetFunction(void **function, void *module, const char *name);
uhalHsaResult uhalHsaModuleGetGlobal(uint64_t *address, size_t *bytes, void *module,
                                     const char *name);
uhalHsaResult uhalHsaFuncGetInfo(uhalHsaKernelInfo *info, void *function);
uhalHsaResult uhalHsaLaunchKernel(void *function, unsigned int grid_x, unsigned int grid_y,
                                  unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                  unsigned int block_z, unsigned int shared_bytes, void *stream,
                                  void **parameters, void **extra);

/* Memory of the current device */
uhalHsaResult uhalHsaMemAlloc(uint64_t *address, size_t bytes);
uhalHsaResult uhalHsaMemFree(uint64_t address);
uhalHsaResult uhalHsaMemHostAlloc(void **pointer, size_t bytes, unsigned int flags);
uhalHsaResult uhalHsaMemFreeHost(void *pointer);
uhalHsaResult uhalHsaMemAllowAccess(void *context, void *peer);
uhalHsaResult uhalHsaMemGetDevice(uint64_t *agent, uint64_t address);
uhalHsaResult uhalHsaMemcpyHtoDAsync(uint64_t destination, const void *source, size_t bytes,
                                     void *stream);
uhalHsaResult uhalHsaMemcpyDtoHAsync(void *destination, uint64_t source, size_t bytes,
                                     void *stream);
uhalHsaResult uhalHsaMemcpyDtoDAsync(uint64_t destination, uint64_t source, size_t bytes,
                                     void *stream);
uhalHsaResult uhalHsaMemcpyPeerAsync(uint64_t destination, void *destination_context,
                                     uint64_t source, void *source_context, size_t bytes,
                                     void *stream);
uhalHsaResult uhalHsaMemsetD8Async(uint64_t destination, unsigned char value, size_t count,
                                   void *stream);
uhalHsaResult uhalHsaMemsetD16Async(uint64_t destination, unsigned short value, size_t count,
                                    void *stream);
uhalHsaResult uhalHsaMemsetD32Async(uint64_t destination, unsigned int value, size_t count,
                                    void *stream);

/* Streams of the current device. Flags and priorities mean nothing here. */
uhalHsaResult uhalHsaStreamCreate(void **stream, unsigned int flags, int priority);
uhalHsaResult uhalHsaStreamDestroy(void *stream);
uhalHsaResult uhalHsaStreamSynchronize(void *stream);
/* Functions whose names end in While call `go_on` every 20 ms; if it returns 0, they return
 * NOT_READY. */
uhalHsaResult uhalHsaStreamSynchronizeWhile(void *stream, uhal_go_on go_on, void *user_data);
uhalHsaResult uhalHsaStreamQuery(void *stream);
uhalHsaResult uhalHsaStreamWaitEvent(void *stream, void *event, unsigned int flags);
uhalHsaResult uhalHsaLaunchHostFunc(void *stream, uhal_host_function function, void *user_data);
/* Returns how many launches of a stream have completed, and how many may have begun. After a loss,
 * launches that may have begun but have not completed are suspect. A graph counts as one launch,
 * from the first of its kernels to the last. */
uhalHsaResult uhalHsaStreamProgress(void *stream, uint64_t *completed, uint64_t *begun,
                                    uint64_t *index);

/* Events of the current device */
uhalHsaResult uhalHsaEventCreate(void **event, unsigned int flags);
uhalHsaResult uhalHsaEventDestroy(void *event);
uhalHsaResult uhalHsaEventRecord(void *event, void *stream);
uhalHsaResult uhalHsaEventSynchronize(void *event);
uhalHsaResult uhalHsaEventSynchronizeWhile(void *event, uhal_go_on go_on, void *user_data);
uhalHsaResult uhalHsaEventQuery(void *event);
uhalHsaResult uhalHsaEventElapsedTime(float *milliseconds, void *start, void *end);

/* Graphs. A capturing stream records kernels, copies of pinned and device memory, and fills. A
 * stream that waits for an event recorded in a capture joins the capture. Before the end, the
 * capture's first stream must wait for the joined stream. Any other call invalidates the capture. A
 * graph runs in the order of recording; launches of one executable graph never overlap. Launched
 * work still runs when the graph is destroyed; kernels must outlive their graphs. */
uhalHsaResult uhalHsaStreamBeginCapture(void *stream, int mode);
uhalHsaResult uhalHsaStreamEndCapture(void *stream, void **graph);
uhalHsaResult uhalHsaStreamIsCapturing(void *stream, int *status);
/* The reason for this thread's last refused call on a capture. */
uhalHsaResult uhalHsaCaptureText(char *text, size_t bytes);
/* The kernels in the order they were launched in. `nodes` null: only counts. */
uhalHsaResult uhalHsaGraphGetKernels(void *graph, void **nodes, size_t *count);
uhalHsaResult uhalHsaGraphDestroy(void *graph);
uhalHsaResult uhalHsaGraphInstantiate(void **executable, void *graph);
uhalHsaResult uhalHsaGraphExecDestroy(void *executable);
uhalHsaResult uhalHsaGraphLaunch(void *executable, void *stream);
/* Earlier launches keep their values, and this call does not wait for them. Returns
 * HSA_STATUS_ERROR_INVALID_ARGUMENT also if the kernel has more bytes of arguments than the
 * recorded kernel, rounded up to a multiple of 64. */
uhalHsaResult uhalHsaGraphExecKernelNodeSetParams(void *executable, void *node, void *function,
                                                  unsigned int grid_x, unsigned int grid_y,
                                                  unsigned int grid_z, unsigned int block_x,
                                                  unsigned int block_y, unsigned int block_z,
                                                  unsigned int shared_bytes, void **parameters);

#ifdef __cplusplus
}
#endif

#endif
