/* The batch of a device: recording it, submitting it, and waiting until it is done. */
#define _POSIX_C_SOURCE 200809L

#include "device.h"

#include <time.h>

int uhal_wg_check_lost(uhal_wg_device *device) {
    if (!atomic_load(&device->is_lost))
        return 0;
    return uhal_wg_error(UHAL_WG_DEVICE_LOST, "%s", device->lost_because);
}

/* -- the batch --------------------------------------------------------------------------------- */

static void end_pass(uhal_wg_device *device) {
    if (device->pass == NULL)
        return;
    uhal_wg.wgpu.wgpuComputePassEncoderEnd(device->pass);
    uhal_wg.wgpu.wgpuComputePassEncoderRelease(device->pass);
    device->pass = NULL;
}

static bool has_encoder(uhal_wg_device *device) {
    if (device->encoder == NULL && uhal_wg_check_lost(device) == 0)
        device->encoder = uhal_wg.wgpu.wgpuDeviceCreateCommandEncoder(device->device, NULL);
    return device->encoder != NULL;
}

WGPUCommandEncoder uhal_wg_encoder(uhal_wg_device *device) {
    end_pass(device);
    return has_encoder(device) ? device->encoder : NULL;
}

WGPUComputePassEncoder uhal_wg_pass(uhal_wg_device *device) {
    if (device->pass == NULL && has_encoder(device)) {
        device->pass = uhal_wg.wgpu.wgpuCommandEncoderBeginComputePass(device->encoder, NULL);
        device->pipeline = NULL;
    }
    return device->pass;
}

int uhal_wg_command(uhal_wg_stream *stream) {
    uhal_wg_device *device = stream->device;
    /* This order costs nothing on x86. Waits need no stricter order: they take the lock before they
     * read the batch. */
    atomic_store_explicit(&stream->last, device->batch, memory_order_release);
    device->commands += 1;
    const uint32_t full = device->series > 0 ? UHAL_WG_FULL_SERIES : UHAL_WG_FULL_BATCH;
    return device->commands < full ? 0 : uhal_wg_submit(device);
}

static void on_done(uint32_t status, WGPUStringView message, void *batch, void *userdata2) {
    (void)status; /* also after a failure: waiting threads must not wait for ever */
    (void)message;
    uhal_wg_device *device = userdata2;
    const uint64_t done = (uint64_t)(uintptr_t)batch;
    uint_fast64_t known = atomic_load(&device->completed);
    while (known < done && !atomic_compare_exchange_weak(&device->completed, &known, done))
        continue;
}

int uhal_wg_submit(uhal_wg_device *device) {
    if (device->commands == 0)
        return 0;
    /* Submitting to a lost device would end the process; polling reports the loss first. */
    uhal_wg.wgpu.wgpuDevicePoll(device->device, 0, NULL);
    int status = uhal_wg_check_lost(device);
    if (status != 0)
        return status;
    WGPUCommandBuffer commands[1];
    size_t count = 0;
    uhal_wg_clear_error();
    if (device->encode_mirrors != NULL)
        device->encode_mirrors(device);
    end_pass(device);
    if (device->encoder != NULL) {
        commands[0] = uhal_wg.wgpu.wgpuCommandEncoderFinish(device->encoder, NULL);
        uhal_wg.wgpu.wgpuCommandEncoderRelease(device->encoder);
        device->encoder = NULL;
        status = uhal_wg_noted_error();
        /* Submitting a failed command buffer would end the process. */
        if (status == 0)
            count = 1;
        else
            uhal_wg.wgpu.wgpuCommandBufferRelease(commands[0]);
    }
    if (device->uniform_end > 0) {
        uhal_wg.wgpu.wgpuQueueWriteBuffer(device->queue, device->uniforms, 0, device->uniform_bytes,
                                          device->uniform_end);
        device->uniform_end = 0;
    }
    uhal_wg.wgpu.wgpuQueueSubmitForIndex(device->queue, count, commands);
    if (count > 0)
        uhal_wg.wgpu.wgpuCommandBufferRelease(commands[0]);
    uhal_wg.wgpu.wgpuQueueOnSubmittedWorkDone(
        device->queue,
        (WGPUQueueWorkDoneCallbackInfo){.mode = WGPUCallbackMode_AllowSpontaneous,
                                        .callback = on_done,
                                        .userdata1 = (void *)(uintptr_t)device->batch,
                                        .userdata2 = device});
    atomic_fetch_add(&device->submits, 1);
    device->batch += 1;
    device->commands = 0;
    return status != 0 ? status : uhal_wg_noted_error();
}

/* -- waiting ----------------------------------------------------------------------------------- */

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000U + (uint64_t)time.tv_nsec;
}

/* wgpu's own wait would keep other threads from submitting. A pause grows with the wait. */
static void pause_after(uint64_t start) {
    enum { LEAST = 5000, MOST = 500000, PART = 8 }; /* ns */
    const uint64_t wanted = (now() - start) / PART;
    if (wanted < LEAST)
        return;
    const struct timespec time = {0, (long)(wanted < MOST ? wanted : MOST)};
    nanosleep(&time, NULL);
}

int uhal_wg_finish(uhal_wg_device *device) {
    return device->read_mirrors == NULL ? 0 : device->read_mirrors(device);
}

static int submit_up_to(uhal_wg_device *device, uint64_t batch) {
    int status = uhal_wg_check_lost(device);
    if (status != 0)
        return status;
    pthread_mutex_lock(&device->lock);
    if (batch >= device->batch)
        status = uhal_wg_submit(device);
    pthread_mutex_unlock(&device->lock);
    return status;
}

/* A batch without commands is done as soon as the batch before it is done. */
static bool is_done(uhal_wg_device *device, uint64_t batch) {
    return atomic_load(&device->completed) >= batch;
}

int uhal_wg_wait(uhal_wg_device *device, uint64_t batch, int (*go_on)(void *), void *user_data) {
    enum { ASK_EVERY = 20000000 }; /* ns */
    if (is_done(device, batch))
        return uhal_wg_finish(device);
    int status = submit_up_to(device, batch);
    if (status != 0)
        return status;
    pthread_mutex_lock(&device->lock);
    const uint64_t last = device->batch - 1;
    pthread_mutex_unlock(&device->lock);
    if (batch > last)
        batch = last;
    const uint64_t start = now();
    uint64_t asked = start;
    while (!is_done(device, batch)) {
        status = uhal_wg_check_lost(device);
        if (status != 0)
            return status;
        uhal_wg.wgpu.wgpuDevicePoll(device->device, 0, NULL);
        if (is_done(device, batch))
            break;
        pause_after(start);
        if (go_on != NULL && now() - asked >= ASK_EVERY) {
            asked = now();
            if (go_on(user_data) == 0)
                return UHAL_WG_NOT_READY;
        }
    }
    return uhal_wg_finish(device);
}

int uhal_wg_query(uhal_wg_device *device, uint64_t batch) {
    if (is_done(device, batch))
        return uhal_wg_finish(device);
    const int status = submit_up_to(device, batch);
    if (status != 0)
        return status;
    uhal_wg.wgpu.wgpuDevicePoll(device->device, 0, NULL);
    return is_done(device, batch) ? uhal_wg_finish(device) : UHAL_WG_NOT_READY;
}

int uhal_wg_wait_flag(uhal_wg_device *device, atomic_int *flag) {
    const uint64_t start = now();
    while (atomic_load(flag) == 0) {
        const int status = uhal_wg_check_lost(device);
        if (status != 0)
            return status;
        uhal_wg.wgpu.wgpuDevicePoll(device->device, 0, NULL);
        if (atomic_load(flag) == 0)
            pause_after(start);
    }
    return 0;
}
