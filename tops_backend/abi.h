/* The part of Enflame's TopsRuntime interface that uhal calls. Names, values and layouts come from
 * the vendor's public headers and documentation. * Readers: uhal/abi.py (ctypes), the compiled
 * lane, and the simulated libtopsrt, which includes this file so that a wrong prototype does not
 * compile. Subset: integer defines, enums, typedefs, structs, prototypes. * Two generations of the
 * library are in use. The published headers describe the older one (TopsRider 2.x, libtopsrt.so.2).
 * The newer generation (TopsRider 3.x, libtopsrt.so.1) adds the functions that have a
 * UHAL_TOPS_NEWER_<symbol>. The newer header is not public, so these prototypes follow code that
 * calls the functions. Unconfirmed points are marked "uncertain".
 */
#ifndef UHAL_TOPS_ABI_H
#define UHAL_TOPS_ABI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef int topsDevice_t;
typedef void *topsDeviceptr_t;
typedef struct itopsStream_t *topsStream_t;
typedef struct itopsEvent_t *topsEvent_t;
typedef struct itopsModule_t *topsModule_t;
typedef struct itopsModuleSymbol_t *topsFunction_t;
typedef struct itopMemPoolHandle_t *topsMemPool_t;
typedef struct itopsGraph_t *topsGraph_t;
typedef struct itopsGraphNode_t *topsGraphNode_t;
typedef struct itopsGraphExec_t *topsGraphExec_t;

/* There is no handle for a legacy stream: the default stream is NULL. */
#define topsStreamPerThread ((topsStream_t)2)

typedef enum topsError_t {
    topsSuccess = 0,
    topsErrorInvalidValue = 1,
    topsErrorOutOfMemory = 2,
    topsErrorMemoryAllocation = 2,
    topsErrorNotInitialized = 3,
    topsErrorInitializationError = 3,
    topsErrorDeinitialized = 4,
    topsErrorProfilerDisabled = 5,
    topsErrorProfilerNotInitialized = 6,
    topsErrorProfilerAlreadyStarted = 7,
    topsErrorProfilerAlreadyStopped = 8,
    topsErrorInvalidConfiguration = 9,
    topsErrorInvalidPitchValue = 12,
    topsErrorInvalidSymbol = 13,
    topsErrorInvalidDevicePointer = 17,
    topsErrorInvalidMemcpyDirection = 21,
    topsErrorInsufficientDriver = 35,
    topsErrorMissingConfiguration = 52,
    topsErrorPriorLaunchFailure = 53,
    topsErrorInvalidDeviceFunction = 98,
    topsErrorNoDevice = 100,
    topsErrorInvalidDevice = 101,
    topsErrorInvalidImage = 200,
    topsErrorInvalidContext = 201,
    topsErrorContextAlreadyCurrent = 202,
    topsErrorMapFailed = 205,
    topsErrorMapBufferObjectFailed = 205,
    topsErrorUnmapFailed = 206,
    topsErrorArrayIsMapped = 207,
    topsErrorAlreadyMapped = 208,
    topsErrorNoBinaryForGcu = 209,
    topsErrorAlreadyAcquired = 210,
    topsErrorNotMapped = 211,
    topsErrorNotMappedAsArray = 212,
    topsErrorNotMappedAsPointer = 213,
    topsErrorECCNotCorrectable = 214,
    topsErrorUnsupportedLimit = 215,
    topsErrorContextAlreadyInUse = 216,
    topsErrorPeerAccessUnsupported = 217,
    topsErrorInvalidKernelFile = 218,
    topsErrorInvalidGraphicsContext = 219,
    topsErrorInvalidSource = 300,
    topsErrorFileNotFound = 301,
    topsErrorSharedObjectSymbolNotFound = 302,
    topsErrorSharedObjectInitFailed = 303,
    topsErrorOperatingSystem = 304,
    topsErrorInvalidHandle = 400,
    topsErrorInvalidResourceHandle = 400,
    topsErrorIllegalState = 401,
    topsErrorNotFound = 500,
    topsErrorNotReady = 600,
    topsErrorIllegalAddress = 700,
    topsErrorLaunchOutOfResources = 701,
    topsErrorLaunchTimeOut = 702,
    topsErrorPeerAccessAlreadyEnabled = 704,
    topsErrorPeerAccessNotEnabled = 705,
    topsErrorSetOnActiveProcess = 708,
    topsErrorContextIsDestroyed = 709,
    topsErrorAssert = 710,
    topsErrorHostMemoryAlreadyRegistered = 712,
    topsErrorHostMemoryNotRegistered = 713,
    topsErrorLaunchFailure = 719,
    topsErrorCooperativeLaunchTooLarge = 720,
    topsErrorNotSupported = 801,
    topsErrorStreamCaptureUnsupported = 900,
    topsErrorStreamCaptureInvalidated = 901,
    topsErrorStreamCaptureMerge = 902,
    topsErrorStreamCaptureUnmatched = 903,
    topsErrorStreamCaptureUnjoined = 904,
    topsErrorStreamCaptureIsolation = 905,
    topsErrorStreamCaptureImplicit = 906,
    topsErrorCapturedEvent = 907,
    topsErrorStreamCaptureWrongThread = 908,
    topsErrorGraphExecUpdateFailure = 910,
    topsErrorUnknown = 999,
    topsErrorRuntimeMemory = 1052,
    topsErrorRuntimeOther = 1053,
    topsErrorTbd = 1054
} topsError_t;

typedef enum topsMemcpyKind {
    topsMemcpyHostToHost = 0,
    topsMemcpyHostToDevice = 1,
    topsMemcpyDeviceToHost = 2,
    topsMemcpyDeviceToDevice = 3,
    topsMemcpyDefault = 4
} topsMemcpyKind;

typedef enum topsMemoryType {
    topsMemoryTypeHost = 1,
    topsMemoryTypeDevice = 2,
    topsMemoryTypeScatter = 4,
    topsMemoryTypeLazy = 8,
    topsMemoryTypeUnified = 9
} topsMemoryType;

typedef enum topsDeviceAttribute_t {
    topsDeviceAttributeClockRate = 0,
    topsDeviceAttributeComputeCapabilityMajor = 1,
    topsDeviceAttributeComputeCapabilityMinor = 2,
    topsDeviceAttributeMaxBlockDimX = 3,
    topsDeviceAttributeMaxBlockDimY = 4,
    topsDeviceAttributeMaxBlockDimZ = 5,
    topsDeviceAttributeMaxGridDimX = 6,
    topsDeviceAttributeMaxGridDimY = 7,
    topsDeviceAttributeMaxGridDimZ = 8,
    topsDeviceAttributeMaxThreadsPerBlock = 9,
    topsDeviceAttributeMultiprocessorCount = 10,
    topsDeviceAttributeMaxSharedMemoryPerBlock = 11,
    topsDeviceAttributeEnflameMcChannel = 10001
} topsDeviceAttribute_t;

typedef enum topsFunction_attribute {
    TOPS_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 0,
    TOPS_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES = 1,
    TOPS_FUNC_ATTRIBUTE_CONST_SIZE_BYTES = 2,
    TOPS_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES = 3,
    TOPS_FUNC_ATTRIBUTE_NUM_REGS = 4,
    TOPS_FUNC_ATTRIBUTE_BINARY_VERSION = 6,
    TOPS_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8
} topsFunction_attribute;

/* Only some queries document the number of written bytes: always give it 8 zeroed bytes. */
typedef enum topsPointer_attribute {
    TOPS_POINTER_ATTRIBUTE_MEMORY_TYPE = 2,
    TOPS_POINTER_ATTRIBUTE_DEVICE_POINTER = 3,
    TOPS_POINTER_ATTRIBUTE_HOST_POINTER = 4,
    TOPS_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9,
    TOPS_POINTER_ATTRIBUTE_RANGE_START_ADDR = 11,
    TOPS_POINTER_ATTRIBUTE_RANGE_SIZE = 12
} topsPointer_attribute;

typedef enum topsStreamFlags {
    topsStreamDefault = 0,
    topsStreamNonBlocking = 1,
    topsStreamCallbackBlocking = 2
} topsStreamFlags;

typedef enum topsEventFlags {
    topsEventDefault = 0,
    topsEventBlockingSync = 1,
    topsEventDisableTiming = 2,
    topsEventInterprocess = 4
} topsEventFlags;

typedef enum topsHostMallocFlags {
    topsHostMallocDefault = 0,
    topsHostMallocPortable = 1,
    topsHostMallocMapped = 2,
    topsHostMallocWriteCombined = 4
} topsHostMallocFlags;

typedef enum topsStreamCaptureMode {
    topsStreamCaptureModeGlobal = 0,
    topsStreamCaptureModeThreadLocal = 1,
    topsStreamCaptureModeRelaxed = 2
} topsStreamCaptureMode;

typedef enum topsStreamCaptureStatus {
    topsStreamCaptureStatusNone = 0,
    topsStreamCaptureStatusActive = 1,
    topsStreamCaptureStatusInvalidated = 2
} topsStreamCaptureStatus;

typedef enum topsLaunchAttributeID {
    topsLaunchAttributeIgnore = 0,
    topsLaunchAttributeCooperative = 2,
    topsLaunchAttributeThreadDimension = 4
} topsLaunchAttributeID;

/* The newer library writes more than the published 792 bytes; their number is uncertain. Pass
 * UHAL_TOPS_PROPERTIES_BYTES of zeros, check gcuArchName, and trust the fields up to gcuArchName.
 * The header of December 2023 has mc_channel at 664 and no unifiedAddressing. */
#define UHAL_TOPS_PROPERTIES_BYTES 4096

typedef struct topsDeviceProp_t {
    char name[256];
    size_t totalGlobalMem;
    size_t sharedMemPerBlock;
    int maxThreadsPerBlock;
    int maxThreadsDim[3];
    int maxGridSize[3];
    int clockRate; /* kHz, as is the next */
    int memoryClockRate;
    int memoryBusWidth; /* bits */
    int major;
    int minor;
    int multiProcessorCount;         /* clusters */
    int maxThreadsPerMultiProcessor; /* SIPs of a cluster; the header allows 0 */
    int computeMode;
    int clockInstructionRate;
    unsigned int arch;
    int concurrentKernels;
    int pciDomainID;
    int pciBusID;
    int pciDeviceID;
    size_t maxSharedMemoryPerMultiProcessor;
    int canMapHostMemory;
    char gcuArchName[256]; /* such as dtu-enflame-tops--gcu300 */
    int cooperativeLaunch;
    int cooperativeMultiDeviceLaunch;
    int kernelExecTimeoutEnabled;
    int ECCEnabled;
    int isLargeBar;
    int managedMemory;
    int directManagedMemAccessFromHost;
    int concurrentManagedAccess;
    int pageableMemoryAccess;
    int unifiedAddressing;
    int mc_channel;
    size_t localMemPerThread;
    char localUuidId[16];
    char remoteUuidId[6][16];
} topsDeviceProp_t;

typedef struct topsIpcMemHandle_t {
    char reserved[64];
} topsIpcMemHandle_t;

typedef struct topsIpcEventHandle_t {
    char reserved[64];
} topsIpcEventHandle_t;

typedef struct topsDim3 {
    unsigned int x, y, z;
} topsDim3;

/* The words of a launch's `extra`; UHAL_TOPS_LAUNCH_END ends the list (CUDA's list ends with 0). */
#define UHAL_TOPS_LAUNCH_BUFFER 1
#define UHAL_TOPS_LAUNCH_BUFFER_SIZE 2
#define UHAL_TOPS_LAUNCH_END 3

/* The value has 32 bytes: the cooperative flag takes the first 4, ThreadDim the first 12. */
typedef struct topsLaunchAttribute {
    topsLaunchAttributeID id;
    union {
        int cooperative;
        unsigned int ThreadDim[3];
        uint64_t bytes[4];
    } val;
} topsLaunchAttribute;

/* The older library's launch configuration. No function of the older library takes this
 * configuration for modules. */
typedef struct uhalTopsLaunchConfig56 {
    topsLaunchAttribute *attrs;
    topsDim3 blockDim;
    size_t dynamicSmemBytes;
    topsDim3 gridDim;
    unsigned int numAttrs;
    topsStream_t stream;
} uhalTopsLaunchConfig56;

/* The newer library's launch configuration. The order of the fields is known. The type of
 * localSmemBytes is uncertain: a size_t makes the structure 72 bytes, an unsigned int 64. */
typedef struct uhalTopsLaunchConfig72 {
    topsLaunchAttribute *attrs;
    topsDim3 blockDim;
    size_t dynamicSmemBytes;
    topsDim3 gridDim;
    size_t localSmemBytes;
    unsigned int numAttrs;
    topsStream_t stream;
} uhalTopsLaunchConfig72;

typedef struct uhalTopsLaunchConfig64 {
    topsLaunchAttribute *attrs;
    topsDim3 blockDim;
    size_t dynamicSmemBytes;
    topsDim3 gridDim;
    unsigned int localSmemBytes;
    unsigned int numAttrs;
    topsStream_t stream;
} uhalTopsLaunchConfig64;

typedef void (*topsStreamCallback_t)(topsStream_t stream, topsError_t status, void *userData);
typedef void (*topsHostFn_t)(void *userData);

/* Process and devices. Versions are 1000 * major + 10 * minor. */
topsError_t topsInit(unsigned int flags);
topsError_t topsDriverGetVersion(int *driverVersion);
topsError_t topsRuntimeGetVersion(int *runtimeVersion);
topsError_t topsGetDeviceCount(int *count);
topsError_t topsSetDevice(int deviceId);
topsError_t topsGetDevice(int *deviceId);
topsError_t topsDeviceGet(topsDevice_t *device, int ordinal);
topsError_t topsDeviceGetName(char *name, int len, topsDevice_t device);
topsError_t topsDeviceGetPCIBusId(char *pciBusId, int len, int device);
topsError_t topsDeviceTotalMem(size_t *bytes, topsDevice_t device);
topsError_t topsDeviceGetAttribute(int *pi, topsDeviceAttribute_t attr, int deviceId);
topsError_t topsGetDeviceProperties(topsDeviceProp_t *prop, int deviceId);
topsError_t topsDeviceSynchronize(void);
const char *topsGetErrorName(topsError_t tops_error);
const char *topsGetErrorString(topsError_t topsError);

/* Modules and launches. topsModuleLoadData takes no size: it reads the size in the container. */
topsError_t topsModuleLoadData(topsModule_t *module, const void *image);
topsError_t topsModuleUnload(topsModule_t module);
topsError_t topsModuleGetFunction(topsFunction_t *function, topsModule_t module, const char *kname);
topsError_t topsModuleGetGlobal(topsDeviceptr_t *dptr, size_t *bytes, topsModule_t hmod,
                                const char *name);
topsError_t topsFuncGetAttribute(int *value, topsFunction_attribute attrib, topsFunction_t hfunc);
/* The header's prose calls kernelParams unimplemented, and newer code uses nothing else. */
topsError_t topsModuleLaunchKernel(topsFunction_t f, unsigned int gridDimX, unsigned int gridDimY,
                                   unsigned int gridDimZ, unsigned int blockDimX,
                                   unsigned int blockDimY, unsigned int blockDimZ,
                                   unsigned int sharedMemBytes, topsStream_t stream,
                                   void **kernelParams, void **extra);

/* Memory. A pointer is a handle of the device that was current; only that device resolves it. */
topsError_t topsMemGetInfo(size_t *free, size_t *total);
topsError_t topsMalloc(void **ptr, size_t size);
topsError_t topsFree(void *ptr);
topsError_t topsMallocAsync(void **dev_ptr, size_t size, topsStream_t stream, uint64_t flags);
topsError_t topsFreeAsync(void *dev_ptr, topsStream_t stream);
topsError_t topsHostMalloc(void **ptr, size_t size, unsigned int flags);
topsError_t topsHostFree(void *ptr);
topsError_t topsHostGetDevicePointer(void **devPtr, void *hostPtr, unsigned int flags);
topsError_t topsPointerGetAttribute(void *data, topsPointer_attribute attribute,
                                    topsDeviceptr_t ptr);

/* Copies and fills; counts of a fill are in elements. The vendor's source of HtoD is not const. */
topsError_t topsMemcpyHtoDAsync(topsDeviceptr_t dst, void *src, size_t sizeBytes,
                                topsStream_t stream);
topsError_t topsMemcpyDtoHAsync(void *dst, topsDeviceptr_t src, size_t sizeBytes,
                                topsStream_t stream);
topsError_t topsMemcpyDtoDAsync(topsDeviceptr_t dst, topsDeviceptr_t src, size_t sizeBytes,
                                topsStream_t stream);
topsError_t topsMemcpyPeerAsync(void *dst, int dstDevice, const void *src, int srcDevice,
                                size_t sizeBytes, topsStream_t stream);
topsError_t topsMemsetD8Async(topsDeviceptr_t dest, unsigned char value, size_t count,
                              topsStream_t stream);
topsError_t topsMemsetD16Async(topsDeviceptr_t dest, unsigned short value, size_t count,
                               topsStream_t stream);
topsError_t topsMemsetD32Async(topsDeviceptr_t dst, int value, size_t count, topsStream_t stream);

/* Other devices and processes. canAccess is a bit field: anything but 0 is yes. */
topsError_t topsDeviceCanAccessPeer(int *canAccess, int deviceId, int peerDeviceId);
topsError_t topsDeviceEnablePeerAccess(int peerDeviceId, unsigned int flags);
topsError_t topsIpcGetMemHandle(topsIpcMemHandle_t *handle, void *devPtr);
topsError_t topsIpcOpenMemHandle(void **devPtr, topsIpcMemHandle_t handle, unsigned int flags);
topsError_t topsIpcCloseMemHandle(void *devPtr);
topsError_t topsIpcGetEventHandle(topsIpcEventHandle_t *handle, topsEvent_t event);
topsError_t topsIpcOpenEventHandle(topsEvent_t *event, topsIpcEventHandle_t handle);

/* Streams, which have no priorities. */
topsError_t topsStreamCreateWithFlags(topsStream_t *stream, unsigned int flags);
topsError_t topsStreamDestroy(topsStream_t stream);
topsError_t topsStreamSynchronize(topsStream_t stream);
topsError_t topsStreamQuery(topsStream_t stream);
topsError_t topsStreamWaitEvent(topsStream_t stream, topsEvent_t event, unsigned int flags);
topsError_t topsStreamAddCallback(topsStream_t stream, topsStreamCallback_t callback,
                                  void *userData, unsigned int flags);

/* Events */
topsError_t topsEventCreateWithFlags(topsEvent_t *event, unsigned int flags);
topsError_t topsEventDestroy(topsEvent_t event);
topsError_t topsEventRecord(topsEvent_t event, topsStream_t stream);
topsError_t topsEventSynchronize(topsEvent_t event);
topsError_t topsEventQuery(topsEvent_t event);
topsError_t topsEventElapsedTime(float *ms, topsEvent_t start, topsEvent_t stop);

/* The newer library only. */
#define UHAL_TOPS_NEWER_topsModuleLaunchKernelEx 1
#define UHAL_TOPS_NEWER_topsLaunchHostFunc 1
#define UHAL_TOPS_NEWER_topsStreamBeginCapture 1
#define UHAL_TOPS_NEWER_topsStreamEndCapture 1
#define UHAL_TOPS_NEWER_topsStreamIsCapturing 1
#define UHAL_TOPS_NEWER_topsStreamGetCaptureInfo 1
#define UHAL_TOPS_NEWER_topsThreadExchangeStreamCaptureMode 1
#define UHAL_TOPS_NEWER_topsGraphInstantiate 1
#define UHAL_TOPS_NEWER_topsGraphLaunch 1
#define UHAL_TOPS_NEWER_topsGraphGetNodes 1
#define UHAL_TOPS_NEWER_topsGraphDestroy 1
#define UHAL_TOPS_NEWER_topsGraphExecDestroy 1

/* config is a uhalTopsLaunchConfig72 or 64. */
topsError_t topsModuleLaunchKernelEx(const void *config, topsFunction_t f, void **kernelParams,
                                     void **extra);
topsError_t topsLaunchHostFunc(topsStream_t stream, topsHostFn_t fn, void *userData);
topsError_t topsStreamBeginCapture(topsStream_t stream, topsStreamCaptureMode mode);
topsError_t topsStreamEndCapture(topsStream_t stream, topsGraph_t *graph);
topsError_t topsStreamIsCapturing(topsStream_t stream, topsStreamCaptureStatus *status);
topsError_t topsStreamGetCaptureInfo(topsStream_t stream, topsStreamCaptureStatus *status,
                                     unsigned long long *id);
topsError_t topsThreadExchangeStreamCaptureMode(topsStreamCaptureMode *mode);
/* Uncertain: the types of the last three parameters, seen as NULL, NULL and 0 only. */
topsError_t topsGraphInstantiate(topsGraphExec_t *exec, topsGraph_t graph,
                                 topsGraphNode_t *errorNode, char *logBuffer, size_t bufferSize);
topsError_t topsGraphLaunch(topsGraphExec_t exec, topsStream_t stream);
topsError_t topsGraphGetNodes(topsGraph_t graph, topsGraphNode_t *nodes, size_t *numNodes);
topsError_t topsGraphDestroy(topsGraph_t graph);
topsError_t topsGraphExecDestroy(topsGraphExec_t exec);

#ifdef __cplusplus
}
#endif

#endif
