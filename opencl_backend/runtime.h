/* C interface of libuhal_opencl.so: streams, events, copies and launches over OpenCL, in the
 * shapes of the hot table. The library does not link OpenCL: its caller passes the addresses of
 * OpenCL's functions.
 *
 * Readers: uhal/abi.py (ctypes) and the library itself, which includes this header so that a wrong
 * prototype does not compile. Subset: integer defines, enums, typedefs, structs, prototypes.
 *
 * Any thread may call any function, but only one thread at a time may open or close a device.
 * Handles are trusted, because the interface above checks them. A result is 0, OpenCL's status (a
 * negative number), or UHAL_CL_NOT_READY.
 */
#ifndef UHAL_OPENCL_RUNTIME_H
#define UHAL_OPENCL_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define UHAL_CL_VERSION 1

typedef int uhalClResult;
typedef void (*uhal_host_function)(void *user_data);

/* Pageable memory up to this size is read at once, also behind pending work. */
#define UHAL_CL_STAGED_BYTES 1048576

enum { UHAL_CL_NOT_READY = 1 };
enum { UHAL_CL_EVENT_DISABLE_TIMING = 2 };

/* How a device's memory is allocated and named, the best first. */
typedef enum uhalClMemory {
    UHAL_CL_MEMORY_USM = 0,        /* cl_intel_unified_shared_memory */
    UHAL_CL_MEMORY_SVM_FINE = 1,   /* fine-grained shared virtual memory */
    UHAL_CL_MEMORY_SVM_COARSE = 2, /* coarse-grained: the host does not see the memory */
    UHAL_CL_MEMORY_BUFFER = 3 /* cl_ext_buffer_device_address: addresses are the device's own */
} uhalClMemory;

typedef enum uhalClKind {
    UHAL_CL_KIND_STREAM = 0,
    UHAL_CL_KIND_EVENT = 1,
    UHAL_CL_KIND_FUNCTION = 2,
    UHAL_CL_KIND_ALLOCATION = 3,
    UHAL_CL_KIND_PINNED = 4
} uhalClKind;

/* A device, and its platform's functions for its kind of memory; the other functions are null. */
typedef struct uhalClDeviceInfo {
    void *context;
    void *device;
    uhalClMemory memory;
    uint32_t alignment; /* of allocations, bytes */
    void *device_alloc;
    void *host_alloc;
    void *blocking_free;
    void *memcpy;
    void *fill;
    void *set_pointer;
    void *create_buffer;
    void *set_address;
} uhalClDeviceInfo;

typedef enum uhalClArgumentKind {
    UHAL_CL_ARGUMENT_VALUE = 0,
    UHAL_CL_ARGUMENT_POINTER = 1,
    UHAL_CL_ARGUMENT_SHARED = 2,  /* the launch's shared bytes; no caller passes this argument */
    UHAL_CL_ARGUMENT_VARIABLE = 3 /* always `address`; no caller passes this argument */
} uhalClArgumentKind;

/* One argument of the native kernel. */
typedef struct uhalClArgument {
    uhalClArgumentKind kind;
    uint32_t size;
    uint64_t address;
} uhalClArgument;

typedef struct uhalClKernelInfo {
    void *context; /* the device's token */
    void *program; /* built; the new function releases the program at its end */
    const char *name;
    const uhalClArgument *arguments; /* copied */
    uint32_t argument_count;
    uint32_t indirect; /* 1: the kernel also reaches memory through pointers in memory */
} uhalClKernelInfo;

typedef struct uhalClKernelFacts {
    uint64_t block_threads;
    uint64_t shared_bytes;
    uint64_t private_bytes;
} uhalClKernelFacts;

/* Process and devices. `functions` has one address for each name of uhalClFunctionName, in the
 * order of its index. */
uhalClResult uhalClVersion(int *version);
uhalClResult uhalClFunctionName(const char **name, unsigned int index);
uhalClResult uhalClOpen(void *const *functions, unsigned int count);
uhalClResult uhalClLiveCount(uhalClKind kind, size_t *count);
uhalClResult uhalClDeviceOpen(void **context, const uhalClDeviceInfo *info);
uhalClResult uhalClDeviceClose(void *context);
uhalClResult uhalClDeviceAllocated(size_t *bytes, void *context);
uhalClResult uhalClCtxGetCurrent(void **context);
uhalClResult uhalClCtxSetCurrent(void *context);

/* Kernels. Each launching thread has a native kernel to itself during the launch. A launch sets
 * only the arguments that differ from the native kernel's last launch. */
uhalClResult uhalClKernelCreate(void **function, const uhalClKernelInfo *info);
uhalClResult uhalClKernelDestroy(void *function);
uhalClResult uhalClKernelGetFacts(uhalClKernelFacts *facts, void *function);
uhalClResult uhalClKernelGetProgram(void **program, void *function);
uhalClResult uhalClLaunchKernel(void *function, unsigned int grid_x, unsigned int grid_y,
                                unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                unsigned int block_z, unsigned int shared_bytes, void *stream,
                                void **parameters, void **extra);

/* Memory of the current device */
uhalClResult uhalClMemAlloc(uint64_t *address, size_t bytes);
uhalClResult uhalClMemFree(uint64_t address);
uhalClResult uhalClMemHostAlloc(void **pointer, size_t bytes, unsigned int flags);
uhalClResult uhalClMemFreeHost(void *pointer);
uhalClResult uhalClMemcpyHtoDAsync(uint64_t destination, const void *source, size_t bytes,
                                   void *stream);
uhalClResult uhalClMemcpyDtoHAsync(void *destination, uint64_t source, size_t bytes, void *stream);
uhalClResult uhalClMemcpyDtoDAsync(uint64_t destination, uint64_t source, size_t bytes,
                                   void *stream);
uhalClResult uhalClMemsetD8Async(uint64_t destination, unsigned char value, size_t count,
                                 void *stream);
uhalClResult uhalClMemsetD16Async(uint64_t destination, unsigned short value, size_t count,
                                  void *stream);
uhalClResult uhalClMemsetD32Async(uint64_t destination, unsigned int value, size_t count,
                                  void *stream);

/* Streams of the current device: in-order queues. Flags and priorities mean nothing here. */
uhalClResult uhalClStreamCreate(void **stream, unsigned int flags, int priority);
uhalClResult uhalClStreamDestroy(void *stream);
uhalClResult uhalClStreamSynchronize(void *stream);
uhalClResult uhalClStreamQuery(void *stream);
uhalClResult uhalClStreamWaitEvent(void *stream, void *event, unsigned int flags);
uhalClResult uhalClLaunchHostFunc(void *stream, uhal_host_function function, void *user_data);
/* ShareQueue returns the stream's queue, which others may use from now on. WrapQueue makes a stream
 * over a foreign queue, which must be in order and of the device's context. Destroying the stream
 * releases the queue. */
uhalClResult uhalClStreamShareQueue(void **queue, void *stream);
uhalClResult uhalClStreamWrapQueue(void **stream, void *context, void *queue);

/* Events of the current device */
uhalClResult uhalClEventCreate(void **event, unsigned int flags);
uhalClResult uhalClEventDestroy(void *event);
uhalClResult uhalClEventRecord(void *event, void *stream);
uhalClResult uhalClEventSynchronize(void *event);
uhalClResult uhalClEventQuery(void *event);
uhalClResult uhalClEventElapsedTime(float *milliseconds, void *start, void *end);

#ifdef __cplusplus
}
#endif

#endif
