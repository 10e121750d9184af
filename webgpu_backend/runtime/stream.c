/* Streams and events. All streams of a device share its queue, so an event is a batch's number, and
 * a stream's wait for an event does nothing.
 */
#include "device.h"
#include "memory.h"

#include <stdlib.h>
#include <string.h>

uhalWgResult uhalWgStreamCreate(void **handle, unsigned int flags, int priority) {
    (void)flags;
    (void)priority;
    uhal_wg_stream *stream = calloc(1, sizeof *stream);
    if (stream == NULL)
        return uhal_wg_error(UHAL_WG_OUT_OF_MEMORY, "the host has no memory");
    stream->device = uhal_wg_current();
    atomic_fetch_add(&uhal_wg.live[UHAL_WG_KIND_STREAM], 1);
    *handle = stream;
    return 0;
}

uhalWgResult uhalWgStreamDestroy(void *handle) {
    free(handle);
    atomic_fetch_sub(&uhal_wg.live[UHAL_WG_KIND_STREAM], 1);
    return 0;
}

uhalWgResult uhalWgStreamSynchronizeWhile(void *handle, int (*go_on)(void *), void *user_data) {
    uhal_wg_stream *stream = handle;
    const int status = uhal_wg_check_lost(stream->device);
    if (status != 0)
        return status;
    return uhal_wg_wait(stream->device, atomic_load(&stream->last), go_on, user_data);
}

uhalWgResult uhalWgStreamSynchronize(void *handle) {
    return uhalWgStreamSynchronizeWhile(handle, NULL, NULL);
}

uhalWgResult uhalWgStreamQuery(void *handle) {
    uhal_wg_stream *stream = handle;
    const int status = uhal_wg_check_lost(stream->device);
    return status != 0 ? status : uhal_wg_query(stream->device, atomic_load(&stream->last));
}

/* The end submits nothing; the next command or the next wait submits the work. */
uhalWgResult uhalWgStreamSeries(void *handle, int begins) {
    uhal_wg_device *device = ((uhal_wg_stream *)handle)->device;
    int status = 0;
    pthread_mutex_lock(&device->lock);
    if (begins && device->commands >= UHAL_WG_FULL_BATCH)
        status = uhal_wg_submit(device);
    device->series = begins ? device->series + 1 : device->series - 1;
    pthread_mutex_unlock(&device->lock);
    return status;
}

/* -- events ------------------------------------------------------------------------------------ */

enum { NO_TIME = 0xFFFF };

typedef struct uhal_wg_event {
    uhal_wg_device *device;
    bool is_timed;
    uint16_t time;              /* its index among the device's timestamps */
    atomic_uint_fast64_t batch; /* 0: no work precedes the event */
    atomic_bool is_recorded;
} uhal_wg_event;

uhalWgResult uhalWgEventCreate(void **handle, unsigned int flags) {
    uhal_wg_device *device = uhal_wg_current();
    uhal_wg_event *event = calloc(1, sizeof *event);
    if (event == NULL)
        return uhal_wg_error(UHAL_WG_OUT_OF_MEMORY, "the host has no memory");
    event->device = device;
    event->time = NO_TIME;
    event->is_timed = (flags & UHAL_WG_EVENT_DISABLE_TIMING) == 0;
    if (event->is_timed && device != NULL) {
        pthread_mutex_lock(&device->lock);
        if (device->free_time_count > 0)
            event->time = device->free_times[--device->free_time_count];
        pthread_mutex_unlock(&device->lock);
    }
    atomic_fetch_add(&uhal_wg.live[UHAL_WG_KIND_EVENT], 1);
    *handle = event;
    return 0;
}

uhalWgResult uhalWgEventDestroy(void *handle) {
    uhal_wg_event *event = handle;
    if (event->time != NO_TIME) {
        pthread_mutex_lock(&event->device->lock);
        event->device->free_times[event->device->free_time_count++] = event->time;
        pthread_mutex_unlock(&event->device->lock);
    }
    free(event);
    atomic_fetch_sub(&uhal_wg.live[UHAL_WG_KIND_EVENT], 1);
    return 0;
}

/* Adds a device timestamp behind all commands so far. The caller holds the lock. */
static int write_time(uhal_wg_event *event, uhal_wg_stream *stream) {
    uhal_wg_device *device = stream->device;
    const WGPUCommandEncoder encoder = uhal_wg_encoder(device);
    if (encoder == NULL)
        return uhal_wg_noted_error();
    uhal_wg.wgpu.wgpuCommandEncoderWriteTimestamp(encoder, device->queries, event->time);
    uhal_wg.wgpu.wgpuCommandEncoderResolveQuerySet(
        encoder, device->queries, event->time, 1, device->times,
        (uint64_t)event->time * UHAL_WG_RESOLVE_ALIGNMENT);
    return 0;
}

uhalWgResult uhalWgEventRecord(void *handle, void *stream_handle) {
    uhal_wg_event *event = handle;
    uhal_wg_stream *stream = stream_handle;
    uhal_wg_device *device = stream->device;
    int status = uhal_wg_check_lost(device);
    if (status != 0)
        return status;
    if (event->time != NO_TIME) {
        pthread_mutex_lock(&device->lock);
        status = write_time(event, stream);
        const uint64_t batch = device->batch;
        if (status == 0)
            status = uhal_wg_command(stream);
        pthread_mutex_unlock(&device->lock);
        atomic_store(&event->batch, batch);
    } else {
        atomic_store(&event->batch, atomic_load(&stream->last));
    }
    atomic_store(&event->is_recorded, true);
    return status;
}

uhalWgResult uhalWgStreamWaitEvent(void *handle, void *event_handle, unsigned int flags) {
    (void)flags;
    uhal_wg_stream *stream = handle;
    uhal_wg_event *event = event_handle;
    const uint64_t batch = atomic_load(&event->batch);
    if (event->device != stream->device)
        return uhal_wg_wait(event->device, batch, NULL, NULL);
    uint_fast64_t last = atomic_load(&stream->last);
    while (last < batch && !atomic_compare_exchange_weak(&stream->last, &last, batch))
        continue;
    return 0;
}

uhalWgResult uhalWgEventSynchronizeWhile(void *handle, int (*go_on)(void *), void *user_data) {
    uhal_wg_event *event = handle;
    const int status = uhal_wg_check_lost(event->device);
    return status != 0 ? status
                       : uhal_wg_wait(event->device, atomic_load(&event->batch), go_on, user_data);
}

uhalWgResult uhalWgEventSynchronize(void *handle) {
    return uhalWgEventSynchronizeWhile(handle, NULL, NULL);
}

uhalWgResult uhalWgEventQuery(void *handle) {
    uhal_wg_event *event = handle;
    const int status = uhal_wg_check_lost(event->device);
    return status != 0 ? status : uhal_wg_query(event->device, atomic_load(&event->batch));
}

/* The time at which the device passed the event, in device units. */
static int time_of(uhal_wg_event *event, uint64_t *ticks) {
    uhal_wg_device *device = event->device;
    if (event->time == NO_TIME || !atomic_load(&event->is_recorded))
        return uhal_wg_error(UHAL_WG_NO_TIMES, "the event tells no time");
    int status = uhal_wg_query(device, atomic_load(&event->batch));
    if (status != 0)
        return status;
    pthread_mutex_lock(&device->lock);
    uhal_wg_staging *staging = uhal_wg_take_staging(device, 16);
    const WGPUCommandEncoder encoder = staging == NULL ? NULL : uhal_wg_encoder(device);
    status = encoder == NULL ? uhal_wg_noted_error() : 0;
    if (status == 0) {
        uhal_wg.wgpu.wgpuCommandEncoderCopyBufferToBuffer(
            encoder, device->times, (uint64_t)event->time * UHAL_WG_RESOLVE_ALIGNMENT,
            staging->buffer, 0, sizeof *ticks);
        device->commands += 1;
        status = uhal_wg_submit(device);
    }
    pthread_mutex_unlock(&device->lock);
    if (status == 0)
        status = uhal_wg_read_staging(device, staging, 0, ticks, sizeof *ticks);
    if (staging != NULL) {
        pthread_mutex_lock(&device->lock);
        uhal_wg_give_staging(device, staging);
        pthread_mutex_unlock(&device->lock);
    }
    return status;
}

uhalWgResult uhalWgEventElapsedTime(float *milliseconds, void *start, void *end) {
    uint64_t began = 0;
    uint64_t ended = 0;
    int status = time_of(start, &began);
    if (status == 0)
        status = time_of(end, &ended);
    if (status != 0)
        return status;
    const uhal_wg_device *device = ((uhal_wg_event *)start)->device;
    const double period = uhal_wg.wgpu.wgpuQueueGetTimestampPeriod(device->queue);
    *milliseconds = (float)((double)(int64_t)(ended - began) * period * 1e-6);
    return 0;
}
