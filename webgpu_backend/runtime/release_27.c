/* wgpu-native 27 behind the interface of release 29. Structures that only lack the last members
 * need no function here: release 27 does not read these members.
 */
#include "group.h"

#include "release_27.h"

enum { MOST_FEATURES = 16 };

/* The library's own functions. release_27.h has their structures. */
static struct {
    uint32_t (*get_info)(WGPUAdapter, WGPUAdapterInfo27 *);
    void (*free_members)(WGPUAdapterInfo27);
    WGPUBool (*has_feature)(WGPUAdapter, uint32_t);
    __typeof__(&wgpuAdapterRequestDevice) request_device;
    WGPUBindGroupLayout (*create_layout)(WGPUDevice, const WGPUBindGroupLayoutDescriptor27 *);
    __typeof__(&wgpuDeviceCreateShaderModule) create_module;
    WGPUFuture (*on_work_done)(WGPUQueue, WGPUQueueWorkDoneCallbackInfo27);
} native;

/* -- adapters ---------------------------------------------------------------------------------- */

static uint32_t get_info(WGPUAdapter adapter, WGPUAdapterInfo *info) {
    WGPUAdapterInfo27 told = {0};
    const uint32_t status = native.get_info(adapter, &told);
    *info = (WGPUAdapterInfo){
        .vendor = told.vendor,
        .architecture = told.architecture,
        .device = told.device,
        .description = told.description,
        .backendType = told.backendType,
        .adapterType = told.adapterType,
        .vendorID = told.vendorID,
        .deviceID = told.deviceID,
    };
    return status;
}

static void free_members(WGPUAdapterInfo info) {
    native.free_members((WGPUAdapterInfo27){.vendor = info.vendor,
                                            .architecture = info.architecture,
                                            .device = info.device,
                                            .description = info.description});
}

/* Returns 0 if there is no such feature. Release 27 calls immediates push constants, and WGSL does
   not have them. */
static uint32_t feature_of(uint32_t feature) {
    switch (feature) {
    case WGPUFeatureName_TimestampQuery:
        return WGPUFeatureName_TimestampQuery27;
    case WGPUFeatureName_ShaderF16:
        return WGPUFeatureName_ShaderF1627;
    case WGPUFeatureName_Subgroups:
        return WGPUNativeFeature_Subgroup27;
    case WGPUNativeFeature_Immediates:
        return 0;
    default:
        return feature;
    }
}

static WGPUBool has_feature(WGPUAdapter adapter, uint32_t feature) {
    const uint32_t wanted = feature_of(feature);
    return wanted == 0 ? 0 : native.has_feature(adapter, wanted);
}

static WGPUFuture request_device(WGPUAdapter adapter, const WGPUDeviceDescriptor *descriptor,
                                 WGPURequestDeviceCallbackInfo callback) {
    uint32_t features[MOST_FEATURES];
    size_t count = 0;
    for (size_t i = 0; i < descriptor->requiredFeatureCount && count < MOST_FEATURES; ++i)
        features[count++] = feature_of(descriptor->requiredFeatures[i]);
    WGPUDeviceDescriptor wanted = *descriptor;
    wanted.requiredFeatureCount = count;
    wanted.requiredFeatures = features;
    return native.request_device(adapter, &wanted, callback);
}

/* -- devices ----------------------------------------------------------------------------------- */

static WGPUBindGroupLayout create_layout(WGPUDevice device,
                                         const WGPUBindGroupLayoutDescriptor *descriptor) {
    WGPUBindGroupLayoutEntry27 entries[UHAL_WG_MOST_BINDINGS + 1] = {0};
    for (size_t i = 0; i < descriptor->entryCount; ++i) {
        entries[i].binding = descriptor->entries[i].binding;
        entries[i].visibility = descriptor->entries[i].visibility;
        entries[i].buffer = descriptor->entries[i].buffer;
    }
    const WGPUBindGroupLayoutDescriptor27 wanted = {
        .label = descriptor->label, .entryCount = descriptor->entryCount, .entries = entries};
    return native.create_layout(device, &wanted);
}

/* Release 27 always checks bounds and loops. */
static WGPUShaderModule
create_module(WGPUDevice device, const WGPUShaderModuleDescriptor *descriptor, WGPUFlags checks) {
    (void)checks;
    return native.create_module(device, descriptor);
}

static _Atomic(WGPUQueueWorkDoneCallback) done; /* the runtime has only one */

static void on_done(uint32_t status, void *userdata1, void *userdata2) {
    atomic_load (&done)(status, (WGPUStringView){0}, userdata1, userdata2);
}

static WGPUFuture on_work_done(WGPUQueue queue, WGPUQueueWorkDoneCallbackInfo info) {
    atomic_store(&done, info.callback);
    return native.on_work_done(queue,
                               (WGPUQueueWorkDoneCallbackInfo27){.mode = info.mode,
                                                                 .callback = on_done,
                                                                 .userdata1 = info.userdata1,
                                                                 .userdata2 = info.userdata2});
}

void uhal_wg_adapt_27(uhal_wg_functions *wgpu) {
/* The cast goes through a type without parameters, because the two types differ in their
   structures. */
#define OWN(field, name) native.field = (__typeof__(native.field))(void (*)(void))wgpu->name
    OWN(get_info, wgpuAdapterGetInfo);
    OWN(free_members, wgpuAdapterInfoFreeMembers);
    OWN(has_feature, wgpuAdapterHasFeature);
    OWN(request_device, wgpuAdapterRequestDevice);
    OWN(create_layout, wgpuDeviceCreateBindGroupLayout);
    OWN(create_module, wgpuDeviceCreateShaderModule);
    OWN(on_work_done, wgpuQueueOnSubmittedWorkDone);
#undef OWN
    wgpu->wgpuAdapterGetInfo = get_info;
    wgpu->wgpuAdapterInfoFreeMembers = free_members;
    wgpu->wgpuAdapterHasFeature = has_feature;
    wgpu->wgpuAdapterRequestDevice = request_device;
    wgpu->wgpuDeviceCreateBindGroupLayout = create_layout;
    wgpu->wgpuDeviceCreateShaderModuleTrusted = create_module;
    wgpu->wgpuQueueOnSubmittedWorkDone = on_work_done;
}
