/* C interface of libuhal_webgpu.so: adapters, streams, events, copies and launches over wgpu-native, in
 * the shapes of the hot table. The library does not link wgpu-native: its caller passes the
 * addresses of wgpu's functions.
 *
 * Readers: uhal/abi.py (ctypes) and the library itself, which includes this header so that a wrong
 * prototype does not compile. Subset: integer defines, enums, typedefs, structs, prototypes.
 *
 * Any function may be called from any thread; devices are opened and closed one at a time. Handles
 * are trusted: the interface above checks them. A result is 0 or one of UHAL_WG_…; uhalWgErrorText
 * has wgpu's message for the last error of the calling thread.
 */
#ifndef UHAL_WEBGPU_RUNTIME_H
#define UHAL_WEBGPU_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define UHAL_WG_VERSION 3
/* Words of a kernel's parameters, the grid's included. */
#define UHAL_WG_MOST_WORDS 1024

typedef int uhalWgResult;

enum {
    UHAL_WG_NOT_READY = 1,
    UHAL_WG_OUT_OF_MEMORY = 2,
    UHAL_WG_INVALID_VALUE = 3,
    UHAL_WG_INVALID_SHADER = 4,   /* naga or the driver's compiler refused the shader */
    UHAL_WG_VALIDATION = 5,       /* wgpu refused a command */
    UHAL_WG_INTERNAL = 6,         /* wgpu or the driver failed */
    UHAL_WG_DEVICE_LOST = 7,      /* every later call fails, too */
    UHAL_WG_NO_TIMES = 8,         /* an event without times */
    UHAL_WG_BEYOND_BINDING = 9,   /* more memory behind a pointer than a binding can hold */
    UHAL_WG_NO_MAPPED_MEMORY = 10 /* no page-locked memory begins at the address */
};

enum { UHAL_WG_EVENT_DISABLE_TIMING = 2 };

/* An address is a buffer's number above this bit, an offset in bytes below. */
#define UHAL_WG_OFFSET_BITS 40
/* Ordinary memory is always read at once. */
#define UHAL_WG_STAGED_BYTES 0x7FFFFFFFFFFFFFFF

typedef enum uhalWgKind {
    UHAL_WG_KIND_STREAM = 0,
    UHAL_WG_KIND_EVENT = 1,
    UHAL_WG_KIND_FUNCTION = 2,
    UHAL_WG_KIND_ALLOCATION = 3,
    UHAL_WG_KIND_PINNED = 4
} uhalWgKind;

typedef struct uhalWgAdapterInfo {
    char name[256];
    char vendor[256];
    char driver[256];
    uint32_t backend; /* WGPUBackendType_… */
    uint32_t type;    /* WGPUAdapterType_… */
    uint32_t vendor_id;
    uint32_t device_id;
    uint32_t has_immediates;
    uint32_t has_int64;
    uint32_t has_f16;
    uint32_t has_subgroups;
    uint32_t has_times;
    uint32_t subgroup_min;
    uint32_t subgroup_max;
    uint32_t max_storage_buffers; /* storage buffers that a kernel may have */
    uint32_t max_shared_bytes;
    uint32_t max_threads;
    uint32_t max_block[3];
    uint32_t max_blocks; /* of one dispatch, along each axis */
    uint32_t max_immediate_bytes;
    uint32_t max_uniform_bytes;
    uint32_t offset_alignment;
    uint64_t max_binding_bytes;
    uint64_t max_buffer_bytes;
} uhalWgAdapterInfo;

typedef enum uhalWgArgumentKind {
    UHAL_WG_ARGUMENT_VALUE = 0,
    UHAL_WG_ARGUMENT_POINTER = 1,
    UHAL_WG_ARGUMENT_FIXED = 2,   /* always `address`; no caller passes it */
    UHAL_WG_ARGUMENT_INDIRECT = 3 /* the address that lies at `address` on the host */
} uhalWgArgumentKind;

/* The destination of an argument: words for a value, an offset and a tag for a pointer. */
typedef struct uhalWgArgument {
    uhalWgArgumentKind kind;
    uint32_t size;
    uint32_t word;    /* first word of the argument; UINT32_MAX: unused */
    uint32_t tag;     /* the word behind the offset of a pointer that is not null */
    uint32_t binding; /* binding of the argument's buffer, from 0; UINT32_MAX: none */
    uint64_t address;
} uhalWgArgument;

typedef struct uhalWgKernelInfo {
    void *context; /* the device's token */
    const char *text;
    size_t text_bytes;
    const uhalWgArgument *arguments; /* copied */
    uint32_t argument_count;
    uint32_t binding_count;
    uint32_t words;       /* of parameters: grid's x, y, z, the first block's x, then arguments */
    uint32_t has_uniform; /* 1: parameters are a uniform buffer, 0: immediates */
    uint32_t has_shared;  /* 1: the kernel's shared memory has the launch's shared bytes */
} uhalWgKernelInfo;

/* Process, adapters and devices. `functions` has one address for each name of uhalWgFunctionName,
 * in the order of its index; null where wgpu-native's `release` has no such function. Adapters are listed best first: discrete, integrated, unknown, then
 * processors; among equals, Metal and Direct3D before Vulkan. */
uhalWgResult uhalWgVersion(int *version);
uhalWgResult uhalWgFunctionName(const char **name, unsigned int index);
uhalWgResult uhalWgOpen(void *const *functions, unsigned int count, unsigned int release);
uhalWgResult uhalWgErrorText(const char **text);
uhalWgResult uhalWgLiveCount(uhalWgKind kind, size_t *count);
uhalWgResult uhalWgAdapterCount(unsigned int *count);
uhalWgResult uhalWgAdapterGetInfo(uhalWgAdapterInfo *info, unsigned int index);
uhalWgResult uhalWgDeviceOpen(void **context, unsigned int adapter);
uhalWgResult uhalWgDeviceClose(void *context);
uhalWgResult uhalWgDeviceAllocated(size_t *bytes, void *context);
uhalWgResult uhalWgDeviceSubmits(size_t *count, void *context);
uhalWgResult uhalWgDeviceGetNative(void **device, void *context);
uhalWgResult uhalWgCtxGetCurrent(void **context);
uhalWgResult uhalWgCtxSetCurrent(void *context);

/* Kernels. */
uhalWgResult uhalWgKernelCreate(void **function, const uhalWgKernelInfo *info);
uhalWgResult uhalWgKernelDestroy(void *function);
uhalWgResult uhalWgLaunchKernel(void *function, unsigned int grid_x, unsigned int grid_y,
                                unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                unsigned int block_z, unsigned int shared_bytes, void *stream,
                                void **parameters, void **extra);

/* Memory of the current device. The device has a copy of page-locked memory, updated before a
 * kernel and read back when the host waits for the kernel. */
uhalWgResult uhalWgMemAlloc(uint64_t *address, size_t bytes);
uhalWgResult uhalWgMemFree(uint64_t address);
uhalWgResult uhalWgMemHostAlloc(void **pointer, size_t bytes, unsigned int flags);
uhalWgResult uhalWgMemFreeHost(void *pointer);
uhalWgResult uhalWgMemHostGetDevicePointer(uint64_t *address, void *pointer);
uhalWgResult uhalWgMemcpyHtoDAsync(uint64_t destination, const void *source, size_t bytes,
                                   void *stream);
uhalWgResult uhalWgMemcpyDtoHAsync(void *destination, uint64_t source, size_t bytes, void *stream);
uhalWgResult uhalWgMemcpyDtoDAsync(uint64_t destination, uint64_t source, size_t bytes,
                                   void *stream);
uhalWgResult uhalWgMemsetD8Async(uint64_t destination, unsigned char value, size_t count,
                                 void *stream);
uhalWgResult uhalWgMemsetD16Async(uint64_t destination, unsigned short value, size_t count,
                                  void *stream);
uhalWgResult uhalWgMemsetD32Async(uint64_t destination, unsigned int value, size_t count,
                                  void *stream);

/* Streams of the current device: all share its one queue. Flags and priorities mean nothing here. */
uhalWgResult uhalWgStreamCreate(void **stream, unsigned int flags, int priority);
uhalWgResult uhalWgStreamDestroy(void *stream);
uhalWgResult uhalWgStreamSynchronize(void *stream);
uhalWgResult uhalWgStreamSynchronizeWhile(void *stream, int (*go_on)(void *user_data),
                                          void *user_data);
uhalWgResult uhalWgStreamQuery(void *stream);
uhalWgResult uhalWgStreamSeries(void *stream, int begins);
uhalWgResult uhalWgStreamWaitEvent(void *stream, void *event, unsigned int flags);

/* Events of the current device. */
uhalWgResult uhalWgEventCreate(void **event, unsigned int flags);
uhalWgResult uhalWgEventDestroy(void *event);
uhalWgResult uhalWgEventRecord(void *event, void *stream);
uhalWgResult uhalWgEventSynchronize(void *event);
uhalWgResult uhalWgEventSynchronizeWhile(void *event, int (*go_on)(void *user_data),
                                         void *user_data);
uhalWgResult uhalWgEventQuery(void *event);
uhalWgResult uhalWgEventElapsedTime(float *milliseconds, void *start, void *end);

#ifdef __cplusplus
}
#endif

#endif
