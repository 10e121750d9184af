/* Functions of TopsRuntime that Ubridge, torch_gcu, Triton and FlagCX call, but uhal does not.
 * Sources: the vendor's public headers and code that calls the runtime, as for tops_backend/abi.h.
 */
#ifndef UHAL_SIMULATED_TOPS_WIDER_ABI_H
#define UHAL_SIMULATED_TOPS_WIDER_ABI_H

#include "../../tops_backend/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct topsPointerAttribute_t {
    topsMemoryType memoryType;
    int device;
    void *device_pointer;
    void *host_pointer;
    int isManaged;
    unsigned int allocationFlags;
} topsPointerAttribute_t;

topsError_t topsGetLastError(void);
topsError_t topsPeekAtLastError(void);
topsError_t topsDeviceComputeCapability(int *major, int *minor, topsDevice_t device);
topsError_t topsDeviceGetByPCIBusId(int *device, const char *pciBusId);
topsError_t topsPointerGetAttributes(topsPointerAttribute_t *attributes, const void *ptr);

topsError_t topsHostRegister(void *hostPtr, size_t sizeBytes, unsigned int flags);
topsError_t topsHostUnregister(void *hostPtr);
topsError_t topsDeviceGetMemPool(topsMemPool_t *mem_pool, int device);
topsError_t topsDeviceGetDefaultMemPool(topsMemPool_t *pool, int device);
topsError_t topsMallocFromPoolAsync(void **dev_ptr, size_t size, topsMemPool_t mem_pool,
                                    topsStream_t stream);
topsError_t topsMemPoolTrimTo(topsMemPool_t mem_pool, size_t min_bytes_to_hold);

topsError_t topsMemcpy(void *dst, const void *src, size_t sizeBytes, topsMemcpyKind kind);
topsError_t topsMemcpyAsync(void *dst, const void *src, size_t sizeBytes, topsMemcpyKind kind,
                            topsStream_t stream);
topsError_t topsMemcpyHtoD(topsDeviceptr_t dst, void *src, size_t sizeBytes);
topsError_t topsMemcpyDtoH(void *dst, topsDeviceptr_t src, size_t sizeBytes);
topsError_t topsMemcpyDtoD(topsDeviceptr_t dst, topsDeviceptr_t src, size_t sizeBytes);
topsError_t topsMemcpyPeer(void *dst, int dstDevice, const void *src, int srcDevice,
                           size_t sizeBytes);
topsError_t topsMemset(void *dst, int value, size_t sizeBytes);
topsError_t topsMemsetAsync(void *dst, int value, size_t sizeBytes, topsStream_t stream);
topsError_t topsMemsetD8(topsDeviceptr_t dest, unsigned char value, size_t count);
topsError_t topsMemsetD16(topsDeviceptr_t dest, unsigned short value, size_t count);
topsError_t topsMemsetD32(topsDeviceptr_t dest, int value, size_t count);

topsError_t topsStreamCreate(topsStream_t *stream);
topsError_t topsEventCreate(topsEvent_t *event);
topsError_t topsModuleLoad(topsModule_t *module, const char *fname);
topsError_t topsModuleLoadDataEx(topsModule_t *module, const void *image, unsigned int numOptions,
                                 int *options, void **optionValues);

/* The newer library only. */
topsError_t topsStreamSetLaunchLimit(topsStream_t stream, size_t clusterNum, size_t sipNum);
topsError_t topsStreamGetLaunchLimit(topsStream_t stream, size_t *clusterNum, size_t *sipNum);
topsError_t topsGraphInstantiateWithFlags(topsGraphExec_t *exec, topsGraph_t graph,
                                          unsigned long long flags);

#ifdef __cplusplus
}
#endif

#endif
