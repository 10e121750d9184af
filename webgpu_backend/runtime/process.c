#include "process.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uhal_wg_process uhal_wg;

static _Thread_local struct uhal_wg_device *current;

struct uhal_wg_device *uhal_wg_current(void) { return current; }

#define FUNCTION_NAME(name) #name,
static const char *const FUNCTION_NAMES[] = {UHAL_WG_FUNCTIONS(FUNCTION_NAME)};
#undef FUNCTION_NAME

enum { FUNCTION_COUNT = sizeof FUNCTION_NAMES / sizeof *FUNCTION_NAMES };

_Static_assert(sizeof(uhal_wg_functions) == FUNCTION_COUNT * sizeof(void *), "addresses only");

/* -- errors ------------------------------------------------------------------------------------ */

enum { MOST_TEXT = 4096 };

static _Thread_local struct {
    int code;
    char text[MOST_TEXT];
} noted;

void uhal_wg_clear_error(void) { noted.code = 0; }

int uhal_wg_noted_error(void) { return noted.code; }

int uhal_wg_error(int code, const char *format, ...) {
    va_list values;
    va_start(values, format);
    vsnprintf(noted.text, sizeof noted.text, format, values);
    va_end(values);
    return noted.code = code;
}

void uhal_wg_on_error(const WGPUDevice *device, uint32_t type, WGPUStringView message,
                      void *userdata1, void *userdata2) {
    (void)device;
    (void)userdata1;
    (void)userdata2;
    if (noted.code != 0)
        return; /* the first error has the cause */
    const size_t length = message.length < MOST_TEXT - 1 ? message.length : MOST_TEXT - 1;
    memcpy(noted.text, message.data, length);
    noted.text[length] = '\0';
    noted.code = type == WGPUErrorType_Validation    ? UHAL_WG_VALIDATION
                 : type == WGPUErrorType_OutOfMemory ? UHAL_WG_OUT_OF_MEMORY
                                                     : UHAL_WG_INTERNAL;
}

uhalWgResult uhalWgErrorText(const char **text) {
    *text = noted.text;
    return 0;
}

/* -- the library ------------------------------------------------------------------------------- */

uhalWgResult uhalWgVersion(int *version) {
    *version = UHAL_WG_VERSION;
    return 0;
}

uhalWgResult uhalWgFunctionName(const char **name, unsigned int index) {
    if (index >= FUNCTION_COUNT)
        return UHAL_WG_INVALID_VALUE;
    *name = FUNCTION_NAMES[index];
    return 0;
}

uhalWgResult uhalWgOpen(void *const *functions, unsigned int count, unsigned int release) {
    if (count != FUNCTION_COUNT)
        return UHAL_WG_INVALID_VALUE;
    memcpy(&uhal_wg.wgpu, functions, sizeof uhal_wg.wgpu);
    if (release == UHAL_WGPU_NATIVE_OLD_RELEASE)
        uhal_wg_adapt_27(&uhal_wg.wgpu);
    return 0;
}

uhalWgResult uhalWgLiveCount(uhalWgKind kind, size_t *count) {
    *count = atomic_load(&uhal_wg.live[kind]);
    return 0;
}

uhalWgResult uhalWgCtxGetCurrent(void **context) {
    *context = current;
    return 0;
}

uhalWgResult uhalWgCtxSetCurrent(void *context) {
    current = context;
    return 0;
}

/* -- adapters ---------------------------------------------------------------------------------- */

enum { MOST_ADAPTERS = 64 };

static WGPUInstance instance;
static WGPUAdapter adapters[MOST_ADAPTERS];
static unsigned int adapter_count;

WGPUAdapter uhal_wg_adapter(unsigned int index) { return adapters[index]; }

static void copy_text(char *to, size_t room, WGPUStringView from) {
    const size_t length = from.data == NULL ? 0 : from.length < room - 1 ? from.length : room - 1;
    if (length > 0)
        memcpy(to, from.data, length);
    to[length] = '\0';
}

static int rank(const WGPUAdapterInfo *info) {
    const uint32_t type = info->adapterType;
    const int kind = type == WGPUAdapterType_DiscreteGPU     ? 0
                     : type == WGPUAdapterType_IntegratedGPU ? 1
                     : type == WGPUAdapterType_CPU           ? 3
                                                             : 2;
    const bool is_own =
        info->backendType == WGPUBackendType_Metal || info->backendType == WGPUBackendType_D3D12;
    return 2 * kind + !is_own;
}

uhalWgResult uhalWgAdapterCount(unsigned int *count) {
    if (instance == NULL) {
        instance = uhal_wg.wgpu.wgpuCreateInstance(NULL);
        if (instance == NULL)
            return uhal_wg_error(UHAL_WG_INTERNAL, "wgpuCreateInstance gave nothing");
        /* OpenGL lacks 64-bit integers and binding offsets, so it is not listed. */
        const WGPUInstanceEnumerateAdapterOptions options = {
            .backends =
                WGPUInstanceBackend_Vulkan | WGPUInstanceBackend_Metal | WGPUInstanceBackend_DX12};
        const size_t found = uhal_wg.wgpu.wgpuInstanceEnumerateAdapters(instance, &options, NULL);
        if (found > 0 && found <= MOST_ADAPTERS)
            adapter_count = (unsigned int)uhal_wg.wgpu.wgpuInstanceEnumerateAdapters(
                instance, &options, adapters);
        int ranks[MOST_ADAPTERS];
        for (unsigned int i = 0; i < adapter_count; ++i) {
            WGPUAdapterInfo info = {0};
            uhal_wg.wgpu.wgpuAdapterGetInfo(adapters[i], &info);
            const int mine = rank(&info);
            uhal_wg.wgpu.wgpuAdapterInfoFreeMembers(info);
            const WGPUAdapter adapter = adapters[i];
            unsigned int at = i;
            for (; at > 0 && ranks[at - 1] > mine; --at) {
                ranks[at] = ranks[at - 1];
                adapters[at] = adapters[at - 1];
            }
            ranks[at] = mine;
            adapters[at] = adapter;
        }
        if (adapter_count == 0) {
            /* Only a new instance finds a driver that was installed later. */
            uhal_wg.wgpu.wgpuInstanceRelease(instance);
            instance = NULL;
        }
    }
    *count = adapter_count;
    return 0;
}

uhalWgResult uhalWgAdapterGetInfo(uhalWgAdapterInfo *info, unsigned int index) {
    if (index >= adapter_count)
        return UHAL_WG_INVALID_VALUE;
    const WGPUAdapter adapter = adapters[index];
    WGPUAdapterInfo told = {0};
    WGPULimits limits = {0};
    uhal_wg.wgpu.wgpuAdapterGetInfo(adapter, &told);
    uhal_wg.wgpu.wgpuAdapterGetLimits(adapter, &limits);
    memset(info, 0, sizeof *info);
    copy_text(info->name, sizeof info->name, told.device);
    copy_text(info->vendor, sizeof info->vendor, told.vendor);
    copy_text(info->driver, sizeof info->driver, told.description);
    info->backend = told.backendType;
    info->type = told.adapterType;
    info->vendor_id = told.vendorID;
    info->device_id = told.deviceID;
    info->subgroup_min = told.subgroupMinSize;
    info->subgroup_max = told.subgroupMaxSize;
    uhal_wg.wgpu.wgpuAdapterInfoFreeMembers(told);
    const struct {
        uint32_t feature;
        uint32_t *has;
    } wanted[] = {{WGPUNativeFeature_Immediates, &info->has_immediates},
                  {WGPUNativeFeature_ShaderInt64, &info->has_int64},
                  {WGPUFeatureName_ShaderF16, &info->has_f16},
                  {WGPUFeatureName_Subgroups, &info->has_subgroups},
                  {WGPUNativeFeature_TimestampQueryInsideEncoders, &info->has_times}};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; ++i)
        *wanted[i].has = uhal_wg.wgpu.wgpuAdapterHasFeature(adapter, wanted[i].feature) != 0;
    info->max_storage_buffers = limits.maxStorageBuffersPerShaderStage;
    info->max_shared_bytes = limits.maxComputeWorkgroupStorageSize;
    info->max_threads = limits.maxComputeInvocationsPerWorkgroup;
    info->max_block[0] = limits.maxComputeWorkgroupSizeX;
    info->max_block[1] = limits.maxComputeWorkgroupSizeY;
    info->max_block[2] = limits.maxComputeWorkgroupSizeZ;
    info->max_blocks = limits.maxComputeWorkgroupsPerDimension;
    info->max_immediate_bytes = info->has_immediates ? limits.maxImmediateSize : 0;
    info->max_uniform_bytes = limits.maxUniformBufferBindingSize > 65536
                                  ? 65536
                                  : (uint32_t)limits.maxUniformBufferBindingSize;
    info->offset_alignment = limits.minStorageBufferOffsetAlignment;
    info->max_binding_bytes = limits.maxStorageBufferBindingSize;
    info->max_buffer_bytes = limits.maxBufferSize;
    return 0;
}
