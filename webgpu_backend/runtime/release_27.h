/* The interface of wgpu-native 27 where it differs from abi.h, which is release 29's. Names end in
 * `27`; values and layouts come from release 27. Other headers declare the types without `27`.
 */
#ifndef UHAL_WG_RELEASE_27_H
#define UHAL_WG_RELEASE_27_H

#define WGPUFeatureName_TimestampQuery27 3
#define WGPUFeatureName_ShaderF1627 10
#define WGPUNativeFeature_Subgroup27 0x00030021

typedef struct WGPUAdapterInfo27 {
    WGPUChainedStruct *nextInChain;
    WGPUStringView vendor;
    WGPUStringView architecture;
    WGPUStringView device;
    WGPUStringView description;
    uint32_t backendType;
    uint32_t adapterType;
    uint32_t vendorID;
    uint32_t deviceID;
} WGPUAdapterInfo27;

typedef struct WGPUBindGroupLayoutEntry27 {
    WGPUChainedStruct *nextInChain;
    uint32_t binding;
    uint64_t visibility;
    WGPUBufferBindingLayout buffer;
    WGPUSamplerBindingLayout sampler;
    WGPUTextureBindingLayout texture;
    WGPUStorageTextureBindingLayout storageTexture;
} WGPUBindGroupLayoutEntry27;

typedef struct WGPUBindGroupLayoutDescriptor27 {
    WGPUChainedStruct *nextInChain;
    WGPUStringView label;
    size_t entryCount;
    const WGPUBindGroupLayoutEntry27 *entries;
} WGPUBindGroupLayoutDescriptor27;

typedef void (*WGPUQueueWorkDoneCallback27)(uint32_t status, void *userdata1, void *userdata2);

typedef struct WGPUQueueWorkDoneCallbackInfo27 {
    WGPUChainedStruct *nextInChain;
    uint32_t mode;
    WGPUQueueWorkDoneCallback27 callback;
    void *userdata1;
    void *userdata2;
} WGPUQueueWorkDoneCallbackInfo27;

#endif
