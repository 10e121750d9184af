/* Launches by wgpu-native's own calls, for the lower bound of the benchmark. Passes and batches are
 * as long as libuhal_webgpu's. */
#include "../../webgpu_backend/abi.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

enum { BUFFERS = 2, BYTES = 4096, BATCH = 64 };

#define FUNCTIONS(DO)                                                                              \
    DO(wgpuCreateInstance)                                                                         \
    DO(wgpuInstanceEnumerateAdapters)                                                              \
    DO(wgpuAdapterGetInfo)                                                                         \
    DO(wgpuAdapterInfoFreeMembers)                                                                 \
    DO(wgpuAdapterGetLimits)                                                                       \
    DO(wgpuAdapterHasFeature)                                                                      \
    DO(wgpuAdapterRequestDevice)                                                                   \
    DO(wgpuDeviceRelease)                                                                          \
    DO(wgpuDeviceGetQueue)                                                                         \
    DO(wgpuDeviceCreateShaderModuleTrusted)                                                        \
    DO(wgpuDeviceCreateBindGroupLayout)                                                            \
    DO(wgpuDeviceCreatePipelineLayout)                                                             \
    DO(wgpuDeviceCreateComputePipeline)                                                            \
    DO(wgpuDeviceCreateBuffer)                                                                     \
    DO(wgpuDeviceCreateBindGroup)                                                                  \
    DO(wgpuDeviceCreateCommandEncoder)                                                             \
    DO(wgpuCommandEncoderBeginComputePass)                                                         \
    DO(wgpuComputePassEncoderSetPipeline)                                                          \
    DO(wgpuComputePassEncoderSetBindGroup)                                                         \
    DO(wgpuComputePassEncoderSetImmediates)                                                        \
    DO(wgpuComputePassEncoderDispatchWorkgroups)                                                   \
    DO(wgpuComputePassEncoderEnd)                                                                  \
    DO(wgpuComputePassEncoderRelease)                                                              \
    DO(wgpuCommandEncoderFinish)                                                                   \
    DO(wgpuCommandEncoderRelease)                                                                  \
    DO(wgpuCommandBufferRelease)                                                                   \
    DO(wgpuQueueSubmitForIndex)                                                                    \
    DO(wgpuDevicePoll)

#define DECLARE(name) static __typeof__(name) *p_##name;
FUNCTIONS(DECLARE)

static WGPUDevice device;
static WGPUQueue queue;
static WGPUComputePipeline pipeline;
static WGPUBindGroup group;

int open_floor(const char *library, WGPUDevice opened, const char *text, uint32_t bytes) {
    void *found = dlopen(library, RTLD_NOW);
    if (found == NULL)
        return 1;
#define FIND(name) p_##name = (__typeof__(name) *)dlsym(found, #name);
    FUNCTIONS(FIND)
    device = opened;
    queue = p_wgpuDeviceGetQueue(device);
    const WGPUShaderSourceWGSL source = {.chain = {NULL, WGPUSType_ShaderSourceWGSL},
                                         .code = {text, strlen(text)}};
    const WGPUShaderModuleDescriptor module = {.nextInChain = (WGPUChainedStruct *)&source};
    WGPUBindGroupLayoutEntry entries[BUFFERS];
    WGPUBindGroupEntry bound[BUFFERS];
    memset(entries, 0, sizeof entries);
    memset(bound, 0, sizeof bound);
    for (uint32_t i = 0; i < BUFFERS; ++i) {
        const WGPUBufferDescriptor buffer = {.usage = WGPUBufferUsage_Storage, .size = BYTES};
        entries[i].binding = bound[i].binding = i + 1;
        entries[i].visibility = WGPUShaderStage_Compute;
        entries[i].buffer.type = WGPUBufferBindingType_Storage;
        bound[i].buffer = p_wgpuDeviceCreateBuffer(device, &buffer);
        bound[i].size = BYTES;
    }
    const WGPUBindGroupLayoutDescriptor bindings = {.entryCount = BUFFERS, .entries = entries};
    const WGPUBindGroupLayout layout = p_wgpuDeviceCreateBindGroupLayout(device, &bindings);
    const WGPUPipelineLayoutDescriptor whole = {
        .bindGroupLayoutCount = 1, .bindGroupLayouts = &layout, .immediateSize = bytes};
    const WGPUComputePipelineDescriptor made = {
        .layout = p_wgpuDeviceCreatePipelineLayout(device, &whole),
        .compute = {.module = p_wgpuDeviceCreateShaderModuleTrusted(device, &module, 0),
                    .entryPoint = {"kernel", 6}}};
    pipeline = p_wgpuDeviceCreateComputePipeline(device, &made);
    const WGPUBindGroupDescriptor buffers = {
        .layout = layout, .entryCount = BUFFERS, .entries = bound};
    group = p_wgpuDeviceCreateBindGroup(device, &buffers);
    return 0;
}

enum { ADAPTERS = 64 };
static WGPUAdapter adapter;

/* Finds an adapter by its name; the first call of request_device_once needs it. */
int find_adapter(const char *name) {
    const WGPUInstanceEnumerateAdapterOptions options = {.backends = WGPUInstanceBackend_Vulkan |
                                                                     WGPUInstanceBackend_Metal |
                                                                     WGPUInstanceBackend_DX12};
    const WGPUInstance instance = p_wgpuCreateInstance(NULL);
    WGPUAdapter found[ADAPTERS];
    size_t count = p_wgpuInstanceEnumerateAdapters(instance, &options, NULL);
    if (count > ADAPTERS)
        return 1;
    count = p_wgpuInstanceEnumerateAdapters(instance, &options, found);
    for (size_t i = 0; i < count && adapter == NULL; ++i) {
        WGPUAdapterInfo info = {0};
        p_wgpuAdapterGetInfo(found[i], &info);
        if (info.device.length == strlen(name) && memcmp(info.device.data, name, strlen(name)) == 0)
            adapter = found[i];
        p_wgpuAdapterInfoFreeMembers(info);
    }
    return adapter == NULL;
}

static void on_device(uint32_t status, WGPUDevice made, WGPUStringView message, void *userdata1,
                      void *userdata2) {
    (void)status;
    (void)message;
    (void)userdata2;
    *(WGPUDevice *)userdata1 = made;
}

/* Opens a device with all that uhal asks for, and releases it. */
int request_device_once(void) {
    const uint32_t wanted[] = {
        WGPUNativeFeature_Immediates,   WGPUNativeFeature_ShaderInt64,
        WGPUFeatureName_ShaderF16,      WGPUFeatureName_Subgroups,
        WGPUFeatureName_TimestampQuery, WGPUNativeFeature_TimestampQueryInsideEncoders};
    uint32_t features[sizeof wanted / sizeof *wanted];
    size_t count = 0;
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; ++i)
        if (p_wgpuAdapterHasFeature(adapter, wanted[i]))
            features[count++] = wanted[i];
    WGPULimits limits = {0};
    p_wgpuAdapterGetLimits(adapter, &limits);
    WGPUDevice made = NULL;
    const WGPUDeviceDescriptor descriptor = {
        .requiredFeatureCount = count, .requiredFeatures = features, .requiredLimits = &limits};
    p_wgpuAdapterRequestDevice(
        adapter, &descriptor,
        (WGPURequestDeviceCallbackInfo){
            .mode = WGPUCallbackMode_AllowSpontaneous, .callback = on_device, .userdata1 = &made});
    if (made == NULL)
        return 1;
    p_wgpuDeviceRelease(made);
    return 0;
}

/* The last batch must be full. */
void launch_loop(const void *words, uint32_t bytes, int batches) {
    for (int i = 0; i < batches; ++i) {
        WGPUCommandEncoder encoder = p_wgpuDeviceCreateCommandEncoder(device, NULL);
        WGPUComputePassEncoder pass = p_wgpuCommandEncoderBeginComputePass(encoder, NULL);
        p_wgpuComputePassEncoderSetPipeline(pass, pipeline);
        p_wgpuComputePassEncoderSetBindGroup(pass, 0, group, 0, NULL);
        for (int k = 0; k < BATCH; ++k) {
            p_wgpuComputePassEncoderSetImmediates(pass, 0, words, bytes);
            p_wgpuComputePassEncoderDispatchWorkgroups(pass, 1, 1, 1);
        }
        p_wgpuComputePassEncoderEnd(pass);
        p_wgpuComputePassEncoderRelease(pass);
        WGPUCommandBuffer commands = p_wgpuCommandEncoderFinish(encoder, NULL);
        p_wgpuCommandEncoderRelease(encoder);
        p_wgpuQueueSubmitForIndex(queue, 1, &commands);
        p_wgpuCommandBufferRelease(commands);
    }
}

void finish(void) { p_wgpuDevicePoll(device, 1, NULL); }
