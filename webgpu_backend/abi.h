/* The part of wgpu-native's C interface that uhal calls. Names, values and layouts come from its
 * public headers: webgpu.h of the WebGPU group, and wgpu.h of wgpu-native 29. * Readers:
 * uhal/abi.py (ctypes) and libuhal_webgpu, which includes this file. Subset: integer defines,
 * typedefs, structs, prototypes. For 64-bit little-endian machines.
 */
#ifndef UHAL_WEBGPU_ABI_H
#define UHAL_WEBGPU_ABI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The release with these layouts: the first number of wgpuGetVersion. For the old release,
 * runtime/release_27.h has the differences. */
#define UHAL_WGPU_NATIVE_RELEASE 29
#define UHAL_WGPU_NATIVE_OLD_RELEASE 27

typedef uint32_t WGPUBool;
typedef uint64_t WGPUFlags;
typedef uint64_t WGPUSubmissionIndex;

typedef struct WGPUInstanceImpl *WGPUInstance;
typedef struct WGPUAdapterImpl *WGPUAdapter;
typedef struct WGPUDeviceImpl *WGPUDevice;
typedef struct WGPUQueueImpl *WGPUQueue;
typedef struct WGPUBufferImpl *WGPUBuffer;
typedef struct WGPUBindGroupImpl *WGPUBindGroup;
typedef struct WGPUBindGroupLayoutImpl *WGPUBindGroupLayout;
typedef struct WGPUPipelineLayoutImpl *WGPUPipelineLayout;
typedef struct WGPUShaderModuleImpl *WGPUShaderModule;
typedef struct WGPUComputePipelineImpl *WGPUComputePipeline;
typedef struct WGPUCommandEncoderImpl *WGPUCommandEncoder;
typedef struct WGPUCommandBufferImpl *WGPUCommandBuffer;
typedef struct WGPUComputePassEncoderImpl *WGPUComputePassEncoder;
typedef struct WGPUQuerySetImpl *WGPUQuerySet;
typedef struct WGPUSamplerImpl *WGPUSampler;
typedef struct WGPUSurfaceImpl *WGPUSurface;
typedef struct WGPUTextureViewImpl *WGPUTextureView;

typedef struct WGPUFuture {
    uint64_t id;
} WGPUFuture;

typedef struct WGPUStringView {
    const char *data;
    size_t length;
} WGPUStringView;

typedef struct WGPUChainedStruct {
    struct WGPUChainedStruct *next;
    uint32_t sType;
} WGPUChainedStruct;

/* Values of WGPUChainedStruct.sType. */
#define WGPUSType_ShaderSourceWGSL 2

#define WGPUCallbackMode_AllowSpontaneous 3
#define WGPU_WHOLE_SIZE 0xFFFFFFFFFFFFFFFFU

/* -- instance and adapters --------------------------------------------------------------------- */

#define WGPUInstanceBackend_Vulkan 1
#define WGPUInstanceBackend_GL 2
#define WGPUInstanceBackend_Metal 4
#define WGPUInstanceBackend_DX12 8

#define WGPUBackendType_D3D12 4
#define WGPUBackendType_Metal 5
#define WGPUBackendType_Vulkan 6
#define WGPUBackendType_OpenGL 7
#define WGPUBackendType_OpenGLES 8

#define WGPUAdapterType_DiscreteGPU 1
#define WGPUAdapterType_IntegratedGPU 2
#define WGPUAdapterType_CPU 3
#define WGPUAdapterType_Unknown 4

#define WGPUFeatureName_TimestampQuery 9
#define WGPUFeatureName_ShaderF16 11
#define WGPUFeatureName_Subgroups 18
#define WGPUNativeFeature_Immediates 0x00030001
#define WGPUNativeFeature_TimestampQueryInsideEncoders 0x00030024
#define WGPUNativeFeature_ShaderInt64 0x00030026

typedef struct WGPUInstanceEnumerateAdapterOptions {
    const WGPUChainedStruct *nextInChain;
    WGPUFlags backends;
} WGPUInstanceEnumerateAdapterOptions;

typedef struct WGPUAdapterInfo {
    WGPUChainedStruct *nextInChain;
    WGPUStringView vendor;
    WGPUStringView architecture;
    WGPUStringView device;
    WGPUStringView description;
    uint32_t backendType;
    uint32_t adapterType;
    uint32_t vendorID;
    uint32_t deviceID;
    uint32_t subgroupMinSize;
    uint32_t subgroupMaxSize;
} WGPUAdapterInfo;

typedef struct WGPULimits {
    WGPUChainedStruct *nextInChain;
    uint32_t maxTextureDimension1D;
    uint32_t maxTextureDimension2D;
    uint32_t maxTextureDimension3D;
    uint32_t maxTextureArrayLayers;
    uint32_t maxBindGroups;
    uint32_t maxBindGroupsPlusVertexBuffers;
    uint32_t maxBindingsPerBindGroup;
    uint32_t maxDynamicUniformBuffersPerPipelineLayout;
    uint32_t maxDynamicStorageBuffersPerPipelineLayout;
    uint32_t maxSampledTexturesPerShaderStage;
    uint32_t maxSamplersPerShaderStage;
    uint32_t maxStorageBuffersPerShaderStage;
    uint32_t maxStorageTexturesPerShaderStage;
    uint32_t maxUniformBuffersPerShaderStage;
    uint64_t maxUniformBufferBindingSize;
    uint64_t maxStorageBufferBindingSize;
    uint32_t minUniformBufferOffsetAlignment;
    uint32_t minStorageBufferOffsetAlignment;
    uint32_t maxVertexBuffers;
    uint64_t maxBufferSize;
    uint32_t maxVertexAttributes;
    uint32_t maxVertexBufferArrayStride;
    uint32_t maxInterStageShaderVariables;
    uint32_t maxColorAttachments;
    uint32_t maxColorAttachmentBytesPerSample;
    uint32_t maxComputeWorkgroupStorageSize;
    uint32_t maxComputeInvocationsPerWorkgroup;
    uint32_t maxComputeWorkgroupSizeX;
    uint32_t maxComputeWorkgroupSizeY;
    uint32_t maxComputeWorkgroupSizeZ;
    uint32_t maxComputeWorkgroupsPerDimension;
    uint32_t maxImmediateSize;
} WGPULimits;

uint32_t wgpuGetVersion(void);
WGPUInstance wgpuCreateInstance(const void *descriptor);
void wgpuInstanceRelease(WGPUInstance instance);
size_t wgpuInstanceEnumerateAdapters(WGPUInstance instance,
                                     const WGPUInstanceEnumerateAdapterOptions *options,
                                     WGPUAdapter *adapters);
uint32_t wgpuAdapterGetInfo(WGPUAdapter adapter, WGPUAdapterInfo *info);
void wgpuAdapterInfoFreeMembers(WGPUAdapterInfo info);
uint32_t wgpuAdapterGetLimits(WGPUAdapter adapter, WGPULimits *limits);
WGPUBool wgpuAdapterHasFeature(WGPUAdapter adapter, uint32_t feature);
void wgpuAdapterRelease(WGPUAdapter adapter);

/* -- devices ----------------------------------------------------------------------------------- */

#define WGPUErrorType_Validation 2
#define WGPUErrorType_OutOfMemory 3
#define WGPUErrorType_Internal 4
#define WGPUErrorType_Unknown 5

typedef void (*WGPURequestDeviceCallback)(uint32_t status, WGPUDevice device,
                                          WGPUStringView message, void *userdata1, void *userdata2);
typedef void (*WGPUDeviceLostCallback)(const WGPUDevice *device, uint32_t reason,
                                       WGPUStringView message, void *userdata1, void *userdata2);
typedef void (*WGPUUncapturedErrorCallback)(const WGPUDevice *device, uint32_t type,
                                            WGPUStringView message, void *userdata1,
                                            void *userdata2);

typedef struct WGPURequestDeviceCallbackInfo {
    WGPUChainedStruct *nextInChain;
    uint32_t mode;
    WGPURequestDeviceCallback callback;
    void *userdata1;
    void *userdata2;
} WGPURequestDeviceCallbackInfo;

typedef struct WGPUDeviceLostCallbackInfo {
    WGPUChainedStruct *nextInChain;
    uint32_t mode;
    WGPUDeviceLostCallback callback;
    void *userdata1;
    void *userdata2;
} WGPUDeviceLostCallbackInfo;

typedef struct WGPUUncapturedErrorCallbackInfo {
    WGPUChainedStruct *nextInChain;
    WGPUUncapturedErrorCallback callback;
    void *userdata1;
    void *userdata2;
} WGPUUncapturedErrorCallbackInfo;

typedef struct WGPUQueueDescriptor {
    WGPUChainedStruct *nextInChain;
    WGPUStringView label;
} WGPUQueueDescriptor;

typedef struct WGPUDeviceDescriptor {
    WGPUChainedStruct *nextInChain;
    WGPUStringView label;
    size_t requiredFeatureCount;
    const uint32_t *requiredFeatures;
    const WGPULimits *requiredLimits;
    WGPUQueueDescriptor defaultQueue;
    WGPUDeviceLostCallbackInfo deviceLostCallbackInfo;
    WGPUUncapturedErrorCallbackInfo uncapturedErrorCallbackInfo;
} WGPUDeviceDescriptor;

WGPUFuture wgpuAdapterRequestDevice(WGPUAdapter adapter, const WGPUDeviceDescriptor *descriptor,
                                    WGPURequestDeviceCallbackInfo callbackInfo);
WGPUQueue wgpuDeviceGetQueue(WGPUDevice device);
WGPUBool wgpuDevicePoll(WGPUDevice device, WGPUBool wait, const WGPUSubmissionIndex *index);
void wgpuDeviceDestroy(WGPUDevice device);
void wgpuDeviceRelease(WGPUDevice device);
void wgpuQueueRelease(WGPUQueue queue);

/* -- buffers ----------------------------------------------------------------------------------- */

#define WGPUBufferUsage_MapRead 1
#define WGPUBufferUsage_CopySrc 4
#define WGPUBufferUsage_CopyDst 8
#define WGPUBufferUsage_Uniform 64
#define WGPUBufferUsage_Storage 128
#define WGPUBufferUsage_QueryResolve 512
#define WGPUMapMode_Read 1
#define WGPUMapAsyncStatus_Success 1

typedef struct WGPUBufferDescriptor {
    WGPUChainedStruct *nextInChain;
    WGPUStringView label;
    WGPUFlags usage;
    uint64_t size;
    WGPUBool mappedAtCreation;
} WGPUBufferDescriptor;

typedef void (*WGPUBufferMapCallback)(uint32_t status, WGPUStringView message, void *userdata1,
                                      void *userdata2);

typedef struct WGPUBufferMapCallbackInfo {
    WGPUChainedStruct *nextInChain;
    uint32_t mode;
    WGPUBufferMapCallback callback;
    void *userdata1;
    void *userdata2;
} WGPUBufferMapCallbackInfo;

WGPUBuffer wgpuDeviceCreateBuffer(WGPUDevice device, const WGPUBufferDescriptor *descriptor);
WGPUFuture wgpuBufferMapAsync(WGPUBuffer buffer, WGPUFlags mode, size_t offset, size_t size,
                              WGPUBufferMapCallbackInfo callbackInfo);
const void *wgpuBufferGetConstMappedRange(WGPUBuffer buffer, size_t offset, size_t size);
void wgpuBufferUnmap(WGPUBuffer buffer);
void wgpuBufferRelease(WGPUBuffer buffer);

/* -- bind groups, shaders, pipelines ----------------------------------------------------------- */

#define WGPUShaderStage_Compute 4
#define WGPUBufferBindingType_Uniform 2
#define WGPUBufferBindingType_Storage 3

typedef struct WGPUBufferBindingLayout {
    WGPUChainedStruct *nextInChain;
    uint32_t type;
    WGPUBool hasDynamicOffset;
    uint64_t minBindingSize;
} WGPUBufferBindingLayout;

typedef struct WGPUSamplerBindingLayout {
    WGPUChainedStruct *nextInChain;
    uint32_t type;
} WGPUSamplerBindingLayout;

typedef struct WGPUTextureBindingLayout {
    WGPUChainedStruct *nextInChain;
    uint32_t sampleType;
    uint32_t viewDimension;
    WGPUBool multisampled;
} WGPUTextureBindingLayout;

typedef struct WGPUStorageTextureBindingLayout {
    WGPUChainedStruct *nextInChain;
    uint32_t access;
    uint32_t format;
    uint32_t viewDimension;
} WGPUStorageTextureBindingLayout;

typedef struct WGPUBindGroupLayoutEntry {
    WGPUChainedStruct *nextInChain;
    uint32_t binding;
    WGPUFlags visibility;
    uint32_t bindingArraySize;
    WGPUBufferBindingLayout buffer;
    WGPUSamplerBindingLayout sampler;
    WGPUTextureBindingLayout texture;
    WGPUStorageTextureBindingLayout storageTexture;
} WGPUBindGroupLayoutEntry;

typedef struct WGPUBindGroupLayoutDescriptor {
    WGPUChainedStruct *nextInChain;
    WGPUStringView label;
    size_t entryCount;
    const WGPUBindGroupLayoutEntry *entries;
} WGPUBindGroupLayoutDescriptor;

typedef struct WGPUBindGroupEntry {
    WGPUChainedStruct *nextInChain;
    uint32_t binding;
    WGPUBuffer buffer;
    uint64_t offset;
    uint64_t size;
    WGPUSampler sampler;
    WGPUTextureView textureView;
} WGPUBindGroupEntry;

typedef struct WGPUBindGroupDescriptor {
    WGPUChainedStruct *nextInChain;
    WGPUStringView label;
    WGPUBindGroupLayout layout;
    size_t entryCount;
    const WGPUBindGroupEntry *entries;
} WGPUBindGroupDescriptor;

typedef struct WGPUPipelineLayoutDescriptor {
    WGPUChainedStruct *nextInChain;
    WGPUStringView label;
    size_t bindGroupLayoutCount;
    const WGPUBindGroupLayout *bindGroupLayouts;
    uint32_t immediateSize;
} WGPUPipelineLayoutDescriptor;

typedef struct WGPUShaderModuleDescriptor {
    WGPUChainedStruct *nextInChain;
    WGPUStringView label;
} WGPUShaderModuleDescriptor;

typedef struct WGPUShaderSourceWGSL {
    WGPUChainedStruct chain;
    WGPUStringView code;
} WGPUShaderSourceWGSL;

typedef struct WGPUConstantEntry {
    WGPUChainedStruct *nextInChain;
    WGPUStringView key;
    double value;
} WGPUConstantEntry;

typedef struct WGPUComputeState {
    WGPUChainedStruct *nextInChain;
    WGPUShaderModule module;
    WGPUStringView entryPoint;
    size_t constantCount;
    const WGPUConstantEntry *constants;
} WGPUComputeState;

typedef struct WGPUComputePipelineDescriptor {
    WGPUChainedStruct *nextInChain;
    WGPUStringView label;
    WGPUPipelineLayout layout;
    WGPUComputeState compute;
} WGPUComputePipelineDescriptor;

WGPUBindGroupLayout
wgpuDeviceCreateBindGroupLayout(WGPUDevice device, const WGPUBindGroupLayoutDescriptor *descriptor);
WGPUBindGroup wgpuDeviceCreateBindGroup(WGPUDevice device,
                                        const WGPUBindGroupDescriptor *descriptor);
WGPUPipelineLayout wgpuDeviceCreatePipelineLayout(WGPUDevice device,
                                                  const WGPUPipelineLayoutDescriptor *descriptor);
WGPUShaderModule wgpuDeviceCreateShaderModule(WGPUDevice device,
                                              const WGPUShaderModuleDescriptor *descriptor);
/* `checks` 0: neither bounds nor loops are checked. */
WGPUShaderModule wgpuDeviceCreateShaderModuleTrusted(WGPUDevice device,
                                                     const WGPUShaderModuleDescriptor *descriptor,
                                                     WGPUFlags checks);
WGPUComputePipeline
wgpuDeviceCreateComputePipeline(WGPUDevice device, const WGPUComputePipelineDescriptor *descriptor);
void wgpuBindGroupRelease(WGPUBindGroup group);
void wgpuBindGroupLayoutRelease(WGPUBindGroupLayout layout);
void wgpuPipelineLayoutRelease(WGPUPipelineLayout layout);
void wgpuShaderModuleRelease(WGPUShaderModule module);
void wgpuComputePipelineRelease(WGPUComputePipeline pipeline);

/* -- commands ---------------------------------------------------------------------------------- */

WGPUCommandEncoder wgpuDeviceCreateCommandEncoder(WGPUDevice device, const void *descriptor);
WGPUComputePassEncoder wgpuCommandEncoderBeginComputePass(WGPUCommandEncoder encoder,
                                                          const void *descriptor);
void wgpuCommandEncoderCopyBufferToBuffer(WGPUCommandEncoder encoder, WGPUBuffer source,
                                          uint64_t sourceOffset, WGPUBuffer destination,
                                          uint64_t destinationOffset, uint64_t size);
WGPUCommandBuffer wgpuCommandEncoderFinish(WGPUCommandEncoder encoder, const void *descriptor);
void wgpuCommandEncoderRelease(WGPUCommandEncoder encoder);
void wgpuCommandBufferRelease(WGPUCommandBuffer commands);
void wgpuComputePassEncoderSetPipeline(WGPUComputePassEncoder pass, WGPUComputePipeline pipeline);
void wgpuComputePassEncoderSetBindGroup(WGPUComputePassEncoder pass, uint32_t index,
                                        WGPUBindGroup group, size_t offsetCount,
                                        const uint32_t *offsets);
void wgpuComputePassEncoderSetImmediates(WGPUComputePassEncoder pass, uint32_t offset,
                                         const void *data, size_t size);
void wgpuComputePassEncoderDispatchWorkgroups(WGPUComputePassEncoder pass, uint32_t x, uint32_t y,
                                              uint32_t z);
void wgpuComputePassEncoderEnd(WGPUComputePassEncoder pass);
void wgpuComputePassEncoderRelease(WGPUComputePassEncoder pass);
WGPUSubmissionIndex wgpuQueueSubmitForIndex(WGPUQueue queue, size_t count,
                                            const WGPUCommandBuffer *commands);
void wgpuQueueWriteBuffer(WGPUQueue queue, WGPUBuffer buffer, uint64_t offset, const void *data,
                          size_t size);

typedef void (*WGPUQueueWorkDoneCallback)(uint32_t status, WGPUStringView message, void *userdata1,
                                          void *userdata2);

typedef struct WGPUQueueWorkDoneCallbackInfo {
    WGPUChainedStruct *nextInChain;
    uint32_t mode;
    WGPUQueueWorkDoneCallback callback;
    void *userdata1;
    void *userdata2;
} WGPUQueueWorkDoneCallbackInfo;

WGPUFuture wgpuQueueOnSubmittedWorkDone(WGPUQueue queue,
                                        WGPUQueueWorkDoneCallbackInfo callbackInfo);

/* -- times ------------------------------------------------------------------------------------- */

#define WGPUQueryType_Timestamp 2

typedef struct WGPUQuerySetDescriptor {
    WGPUChainedStruct *nextInChain;
    WGPUStringView label;
    uint32_t type;
    uint32_t count;
} WGPUQuerySetDescriptor;

WGPUQuerySet wgpuDeviceCreateQuerySet(WGPUDevice device, const WGPUQuerySetDescriptor *descriptor);
void wgpuQuerySetRelease(WGPUQuerySet set);
void wgpuCommandEncoderWriteTimestamp(WGPUCommandEncoder encoder, WGPUQuerySet set, uint32_t index);
void wgpuCommandEncoderResolveQuerySet(WGPUCommandEncoder encoder, WGPUQuerySet set, uint32_t first,
                                       uint32_t count, WGPUBuffer destination, uint64_t offset);
float wgpuQueueGetTimestampPeriod(WGPUQueue queue);

#ifdef __cplusplus
}
#endif

#endif
