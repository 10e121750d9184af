/* Devices: opened with all that their adapters have, and closed. */
#include "device.h"
#include "kernel.h"
#include "memory.h"

#include <stdlib.h>
#include <string.h>

/* -- open and close ---------------------------------------------------------------------------- */

typedef struct request {
    WGPUDevice device;
    char text[512];
} request;

static void copy_text(char *to, size_t room, WGPUStringView from) {
    const size_t length = from.length < room - 1 ? from.length : room - 1;
    if (from.data != NULL)
        memcpy(to, from.data, length);
    to[from.data == NULL ? 0 : length] = '\0';
}

static void on_device(uint32_t status, WGPUDevice device, WGPUStringView message, void *userdata1,
                      void *userdata2) {
    (void)status;
    (void)userdata2;
    request *asked = userdata1;
    asked->device = device;
    copy_text(asked->text, sizeof asked->text, message);
}

static void on_lost(const WGPUDevice *native, uint32_t reason, WGPUStringView message,
                    void *userdata1, void *userdata2) {
    (void)native;
    (void)reason;
    (void)userdata2;
    uhal_wg_device *device = userdata1;
    copy_text(device->lost_because, sizeof device->lost_because, message);
    atomic_store(&device->is_lost, true);
}

/* For a device with timestamps; without a query set, events have no times. */
static void open_times(uhal_wg_device *device) {
    const WGPUQuerySetDescriptor set = {.type = WGPUQueryType_Timestamp,
                                        .count = UHAL_WG_TIMED_EVENTS};
    if (!device->info.has_times)
        return;
    uhal_wg_clear_error();
    device->queries = uhal_wg.wgpu.wgpuDeviceCreateQuerySet(device->device, &set);
    device->times =
        uhal_wg_new_buffer(device, (uint64_t)UHAL_WG_TIMED_EVENTS * UHAL_WG_RESOLVE_ALIGNMENT,
                           WGPUBufferUsage_QueryResolve | WGPUBufferUsage_CopySrc);
    if (uhal_wg_noted_error() != 0) {
        device->queries = NULL;
        return;
    }
    for (uint32_t i = 0; i < UHAL_WG_TIMED_EVENTS; ++i)
        device->free_times[i] = (uint16_t)i;
    device->free_time_count = UHAL_WG_TIMED_EVENTS;
}

uhalWgResult uhalWgDeviceOpen(void **context, unsigned int adapter) {
    uhal_wg_device *device = calloc(1, sizeof *device);
    if (device == NULL)
        return uhal_wg_error(UHAL_WG_OUT_OF_MEMORY, "the host has no memory");
    uhalWgAdapterGetInfo(&device->info, adapter);
    WGPULimits limits = {0};
    uhal_wg.wgpu.wgpuAdapterGetLimits(uhal_wg_adapter(adapter), &limits);
    limits.nextInChain = NULL;
    uint32_t features[8];
    size_t count = 0;
    if (device->info.has_immediates)
        features[count++] = WGPUNativeFeature_Immediates;
    if (device->info.has_int64)
        features[count++] = WGPUNativeFeature_ShaderInt64;
    if (device->info.has_f16)
        features[count++] = WGPUFeatureName_ShaderF16;
    if (device->info.has_subgroups)
        features[count++] = WGPUFeatureName_Subgroups;
    if (device->info.has_times) {
        features[count++] = WGPUFeatureName_TimestampQuery;
        features[count++] = WGPUNativeFeature_TimestampQueryInsideEncoders;
    }
    const WGPUDeviceDescriptor descriptor = {
        .requiredFeatureCount = count,
        .requiredFeatures = features,
        .requiredLimits = &limits,
        .deviceLostCallbackInfo = {.mode = WGPUCallbackMode_AllowSpontaneous,
                                   .callback = on_lost,
                                   .userdata1 = device},
        .uncapturedErrorCallbackInfo = {.callback = uhal_wg_on_error},
    };
    request asked = {0};
    uhal_wg.wgpu.wgpuAdapterRequestDevice(
        uhal_wg_adapter(adapter), &descriptor,
        (WGPURequestDeviceCallbackInfo){
            .mode = WGPUCallbackMode_AllowSpontaneous, .callback = on_device, .userdata1 = &asked});
    if (asked.device == NULL) {
        free(device);
        return uhal_wg_error(UHAL_WG_INTERNAL, "wgpuAdapterRequestDevice: %s", asked.text);
    }
    device->device = asked.device;
    device->queue = uhal_wg.wgpu.wgpuDeviceGetQueue(device->device);
    device->batch = 1;
    pthread_mutex_init(&device->lock, NULL);
    open_times(device);
    int status = uhal_wg_make_own_kernels(device);
    if (status == 0) {
        /* Also on devices with immediates: a kernel may have more parameters than fit. */
        device->uniform_bytes = calloc(1, UHAL_WG_UNIFORM_BYTES);
        device->uniforms = uhal_wg_new_buffer(device, UHAL_WG_UNIFORM_BYTES,
                                              WGPUBufferUsage_Uniform | WGPUBufferUsage_CopyDst);
        if (device->uniform_bytes == NULL)
            status = uhal_wg_error(UHAL_WG_OUT_OF_MEMORY, "the host has no memory");
        else if (device->uniforms == NULL)
            status = uhal_wg_noted_error();
    }
    if (status == 0)
        status = uhal_wg_make_nothing(device);
    *context = device;
    return status;
}

/* The record stays: a stream or an event may be destroyed after its device. */
uhalWgResult uhalWgDeviceClose(void *context) {
    uhal_wg_device *device = context;
    if (uhal_wg_current() == context)
        uhalWgCtxSetCurrent(NULL);
    if (atomic_load(&device->is_lost))
        return 0;
    const int status = uhal_wg_wait(device, device->batch, NULL, NULL);
    pthread_mutex_lock(&device->lock);
    uhal_wg_release_own_kernels(device);
    uhal_wg_release_staging(device);
    uhal_wg_release_nothing(device);
    if (device->times != NULL)
        uhal_wg.wgpu.wgpuBufferRelease(device->times);
    if (device->queries != NULL)
        uhal_wg.wgpu.wgpuQuerySetRelease(device->queries);
    if (device->uniforms != NULL)
        uhal_wg.wgpu.wgpuBufferRelease(device->uniforms);
    free(device->uniform_bytes);
    uhal_wg.wgpu.wgpuQueueRelease(device->queue);
    uhal_wg.wgpu.wgpuDeviceRelease(device->device);
    strcpy(device->lost_because, "the device was closed");
    atomic_store(&device->is_lost, true);
    pthread_mutex_unlock(&device->lock);
    return status;
}

uhalWgResult uhalWgDeviceAllocated(size_t *bytes, void *context) {
    *bytes = atomic_load(&((uhal_wg_device *)context)->allocated);
    return 0;
}

uhalWgResult uhalWgDeviceSubmits(size_t *count, void *context) {
    *count = atomic_load(&((uhal_wg_device *)context)->submits);
    return 0;
}

uhalWgResult uhalWgDeviceGetNative(void **native, void *context) {
    *native = ((uhal_wg_device *)context)->device;
    return 0;
}
