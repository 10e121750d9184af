#include "event.h"

#include <stdlib.h>

#include "capture.h"
#include "fault.h"
#include "wait.h"

typedef struct uhal_hsa_event {
    uhal_hsa_device *device;
    unsigned int flags;
    pthread_mutex_t lock;
    int recorded; /* ever */
    uhal_hsa_mark *mark;
    uhal_hsa_point *point; /* point in a capture; NULL: the last record was outside captures */
} uhal_hsa_event;

uhal_hsa_mark *uhal_hsa_event_mark(void *handle) {
    uhal_hsa_event *event = handle;
    pthread_mutex_lock(&event->lock);
    uhal_hsa_mark *mark = event->mark;
    if (mark != NULL)
        uhal_hsa_mark_keep(mark);
    pthread_mutex_unlock(&event->lock);
    return mark;
}

int uhal_hsa_event_captured(void *handle) {
    uhal_hsa_event *event = handle;
    pthread_mutex_lock(&event->lock);
    const int captured = event->point != NULL;
    pthread_mutex_unlock(&event->lock);
    return captured;
}

int uhal_hsa_event_join(void *handle, uhal_hsa_stream *stream) {
    uhal_hsa_event *event = handle;
    pthread_mutex_lock(&event->lock);
    const int status = event->recorded ? uhal_hsa_capture_wait(stream, event->point) : 0;
    pthread_mutex_unlock(&event->lock);
    return status;
}

/* Replaces the state of the last record. */
static void leave(uhal_hsa_event *event, uhal_hsa_mark *mark, uhal_hsa_point *point) {
    pthread_mutex_lock(&event->lock);
    uhal_hsa_mark *mark_before = event->mark;
    uhal_hsa_point *point_before = event->point;
    event->recorded = 1;
    event->mark = mark;
    event->point = point;
    pthread_mutex_unlock(&event->lock);
    uhal_hsa_mark_drop(mark_before);
    uhal_hsa_point_delete(point_before);
}

uhalHsaResult uhalHsaEventCreate(void **handle, unsigned int flags) {
    uhal_hsa_device *device = uhal_hsa_current();
    if (device == NULL)
        return HSA_STATUS_ERROR_INVALID_AGENT;
    int status = uhal_hsa_check(device);
    if (status == 0 && (flags & UHAL_HSA_EVENT_DISABLE_TIMING) == 0)
        status = (int)uhal_hsa_device_time(device);
    if (status != 0)
        return status;
    uhal_hsa_event *event = calloc(1, sizeof *event);
    if (event == NULL)
        return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
    event->device = device;
    event->flags = flags;
    pthread_mutex_init(&event->lock, NULL);
    atomic_fetch_add(&uhal_hsa.live[UHAL_HSA_KIND_EVENT], 1);
    *handle = event;
    return 0;
}

/* Streams that wait for the event continue to wait: their packets hold the event's mark. */
uhalHsaResult uhalHsaEventDestroy(void *handle) {
    uhal_hsa_event *event = handle;
    leave(event, NULL, NULL);
    pthread_mutex_destroy(&event->lock);
    free(event);
    atomic_fetch_sub(&uhal_hsa.live[UHAL_HSA_KIND_EVENT], 1);
    return 0;
}

uhalHsaResult uhalHsaEventRecord(void *handle, void *into) {
    uhal_hsa_event *event = handle;
    uhal_hsa_stream *stream = into;
    uhal_hsa_queue *queue = stream->queue;
    uhal_hsa_mark *mark;
    int status = uhal_hsa_check(queue->device);
    if (status != 0)
        return status;
    if (uhal_hsa_capturing(stream)) {
        uhal_hsa_point *point;
        status = uhal_hsa_capture_record(stream, &point);
        if (status == 0)
            leave(event, NULL, point);
        return status;
    }
    /* A timed event needs a packet of its own; other events use the mark of the work before. */
    if (event->flags & UHAL_HSA_EVENT_DISABLE_TIMING)
        status = uhal_hsa_queue_cover(queue, atomic_load(&stream->upto), &mark);
    else
        status = uhal_hsa_queue_mark(queue, NULL, 0, &mark);
    if (status != 0)
        return status;
    if (mark != NULL && (event->flags & UHAL_HSA_EVENT_DISABLE_TIMING) == 0)
        uhal_hsa_stream_advance(stream, mark->upto);
    leave(event, mark, NULL);
    return 0;
}

uhalHsaResult uhalHsaEventQuery(void *handle) {
    uhal_hsa_event *event = handle;
    int status = uhal_hsa_check(event->device);
    if (status != 0)
        return status;
    if (uhal_hsa_event_captured(event))
        return uhal_hsa_capture_no_time();
    uhal_hsa_mark *mark = uhal_hsa_event_mark(event);
    if (mark == NULL)
        return 0;
    if (!uhal_hsa_signal_done(mark->signal)) {
        status = uhal_hsa_check_now_and_then(mark->queue->device);
        if (status == 0)
            status = UHAL_HSA_NOT_READY;
    }
    uhal_hsa_mark_drop(mark);
    return status;
}

uhalHsaResult uhalHsaEventSynchronize(void *handle) {
    return uhalHsaEventSynchronizeWhile(handle, NULL, NULL);
}

uhalHsaResult uhalHsaEventSynchronizeWhile(void *handle, uhal_go_on go_on, void *user_data) {
    uhal_hsa_event *event = handle;
    const uhal_hsa_patience patience = {go_on, user_data};
    int status = uhal_hsa_check(event->device);
    if (status != 0)
        return status;
    if (uhal_hsa_event_captured(event))
        return uhal_hsa_capture_no_time();
    uhal_hsa_mark *mark = uhal_hsa_event_mark(event);
    if (mark == NULL)
        return 0;
    status = uhal_hsa_wait_while(mark->queue->device, mark->signal, patience);
    uhal_hsa_mark_drop(mark);
    return status;
}

/* When the packet ended, in ticks of the system. */
static hsa_status_t end_of(const uhal_hsa_mark *mark, uint64_t *ticks) {
    hsa_amd_profiling_dispatch_time_t time;
    const hsa_status_t status = uhal_hsa.hsa.hsa_amd_profiling_get_dispatch_time(
        mark->queue->device->agent, mark->signal, &time);
    *ticks = time.end;
    return status;
}

static int elapsed(float *milliseconds, const uhal_hsa_mark *from, const uhal_hsa_mark *to) {
    uint64_t began;
    uint64_t ended;
    if (from == NULL || to == NULL)
        return HSA_STATUS_ERROR_INVALID_ARGUMENT;
    if (!uhal_hsa_signal_done(from->signal) || !uhal_hsa_signal_done(to->signal))
        return UHAL_HSA_NOT_READY;
    hsa_status_t status = end_of(from, &began);
    if (status == HSA_STATUS_SUCCESS)
        status = end_of(to, &ended);
    if (status != HSA_STATUS_SUCCESS)
        return (int)status;
    const double ticks = (double)(int64_t)(ended - began);
    *milliseconds = (float)(1000.0 * ticks / (double)uhal_hsa.settings.timestamp_frequency);
    return 0;
}

uhalHsaResult uhalHsaEventElapsedTime(float *milliseconds, void *start, void *end) {
    if (uhal_hsa_event_captured(start) || uhal_hsa_event_captured(end))
        return uhal_hsa_capture_no_time();
    uhal_hsa_mark *from = uhal_hsa_event_mark(start);
    uhal_hsa_mark *to = uhal_hsa_event_mark(end);
    const int status = elapsed(milliseconds, from, to);
    uhal_hsa_mark_drop(from);
    uhal_hsa_mark_drop(to);
    return status;
}
