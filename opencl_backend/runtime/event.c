#include "event.h"
#include "memory.h"

#include <stdlib.h>

typedef struct uhal_cl_event {
    pthread_mutex_t lock;
    cl_event mark;          /* null: never recorded */
    uhal_cl_stream *stream; /* where, held */
    uint64_t ticket;
    bool timed;
} uhal_cl_event;

uhalClResult uhalClEventCreate(void **handle, unsigned int flags) {
    uhal_cl_event *event = calloc(1, sizeof *event);
    if (event == NULL)
        return CL_OUT_OF_HOST_MEMORY;
    pthread_mutex_init(&event->lock, NULL);
    event->timed = (flags & UHAL_CL_EVENT_DISABLE_TIMING) == 0;
    atomic_fetch_add(&uhal_cl.live[UHAL_CL_KIND_EVENT], 1);
    *handle = event;
    return 0;
}

static void let_go(cl_event mark, uhal_cl_stream *stream) {
    if (mark == NULL)
        return;
    uhal_cl.cl.clReleaseEvent(mark);
    uhal_cl_stream_drop(stream);
}

uhalClResult uhalClEventDestroy(void *handle) {
    uhal_cl_event *event = handle;
    let_go(event->mark, event->stream);
    pthread_mutex_destroy(&event->lock);
    free(event);
    atomic_fetch_sub(&uhal_cl.live[UHAL_CL_KIND_EVENT], 1);
    return 0;
}

uhalClResult uhalClEventRecord(void *handle, void *stream_handle) {
    uhal_cl_event *event = handle;
    uhal_cl_stream *stream = stream_handle;
    cl_event mark;
    uint64_t ticket;
    const int status = event->timed ? uhal_cl_stream_tick(stream, &mark, &ticket)
                                    : uhal_cl_stream_mark(stream, &mark, &ticket);
    if (status != 0)
        return status;
    uhal_cl_stream_hold(stream);
    pthread_mutex_lock(&event->lock);
    const cl_event old_mark = event->mark;
    uhal_cl_stream *const old_stream = event->stream;
    event->mark = mark;
    event->stream = stream;
    event->ticket = ticket;
    pthread_mutex_unlock(&event->lock);
    let_go(old_mark, old_stream);
    return 0;
}

/* Returns the marker and its stream, both held for the caller; false if the event was never
 * recorded. */
static bool take(void *handle, cl_event *mark, uhal_cl_stream **stream) {
    uhal_cl_event *event = handle;
    pthread_mutex_lock(&event->lock);
    *mark = event->mark;
    *stream = event->stream;
    if (event->mark != NULL) {
        uhal_cl.cl.clRetainEvent(event->mark);
        uhal_cl_stream_hold(event->stream);
    }
    pthread_mutex_unlock(&event->lock);
    return *mark != NULL;
}

uhalClResult uhalClStreamWaitEvent(void *handle, void *event, unsigned int flags) {
    (void)flags;
    uhal_cl_stream *stream = handle;
    uhal_cl_stream *recorded;
    cl_event mark;
    if (!take(event, &mark, &recorded))
        return 0;
    int status;
    /* A queue cannot wait for an event of another context, so the host waits. */
    if (recorded->device != stream->device)
        status = uhal_cl.cl.clWaitForEvents(1, &mark);
    else
        status = uhal_cl.cl.clEnqueueBarrierWithWaitList(stream->queue, 1, &mark, NULL);
    atomic_fetch_add(&stream->submitted, 1);
    uhal_cl_stream_drop(recorded);
    uhal_cl.cl.clReleaseEvent(mark);
    return status;
}

uhalClResult uhalClEventSynchronize(void *handle) {
    cl_event mark;
    uhal_cl_stream *stream;
    if (!take(handle, &mark, &stream))
        return 0;
    const int status = uhal_cl.cl.clWaitForEvents(1, &mark);
    let_go(mark, stream);
    return status;
}

uhalClResult uhalClEventQuery(void *handle) {
    cl_event mark;
    uhal_cl_stream *stream;
    if (!take(handle, &mark, &stream))
        return 0;
    const int status = uhal_cl_event_status(mark);
    let_go(mark, stream);
    return status;
}

static int time_of(cl_event mark, uint64_t *nanoseconds) {
    return uhal_cl.cl.clGetEventProfilingInfo(mark, CL_PROFILING_COMMAND_END, sizeof *nanoseconds,
                                              nanoseconds, NULL);
}

/* The time at which its marker was done, in nanoseconds of the device. */
static int end_of(void *handle, uint64_t *nanoseconds) {
    cl_event mark;
    uhal_cl_stream *stream;
    if (!((uhal_cl_event *)handle)->timed || !take(handle, &mark, &stream))
        return CL_PROFILING_INFO_NOT_AVAILABLE;
    int status = uhal_cl_event_status(mark);
    if (status == 0)
        status = time_of(mark, nanoseconds);
    let_go(mark, stream);
    return status == 0 && *nanoseconds == 0 ? CL_PROFILING_INFO_NOT_AVAILABLE : status;
}

uhalClResult uhalClEventElapsedTime(float *milliseconds, void *start, void *end) {
    uint64_t began = 0;
    uint64_t ended = 0;
    int status = end_of(start, &began);
    if (status == 0)
        status = end_of(end, &ended);
    if (status == 0)
        *milliseconds = (float)((double)(int64_t)(ended - began) * 1e-6);
    return status;
}

/* Intel's runtime of 2022 reports 0 as every marker's time. If no queue can be made, the first
 * stream reports the failure. */
static bool markers_tell_times(const uhal_cl_device *device) {
    const cl_properties properties[] = {CL_QUEUE_PROPERTIES, CL_QUEUE_PROFILING_ENABLE, 0};
    cl_int failed = 0;
    uint64_t end = 1;
    cl_event mark;
    const cl_command_queue queue = uhal_cl.cl.clCreateCommandQueueWithProperties(
        device->context, device->device, properties, &failed);
    if (failed != 0)
        return true;
    if (uhal_cl.cl.clEnqueueMarkerWithWaitList(queue, 0, NULL, &mark) == 0) {
        if (uhal_cl.cl.clFinish(queue) != 0 || time_of(mark, &end) != 0)
            end = 1;
        uhal_cl.cl.clReleaseEvent(mark);
    }
    uhal_cl.cl.clReleaseCommandQueue(queue);
    return end != 0;
}

void uhal_cl_events_open(uhal_cl_device *device) {
    uhal_cl_memory made = {.place = {0, sizeof(uint64_t)}, .device = device, .native = true};
    /* Drivers with buffer addresses are newer than drivers whose markers have no timestamps. */
    if (device->info.memory != UHAL_CL_MEMORY_BUFFER && !markers_tell_times(device) &&
        uhal_cl_native_allocate(device, made.place.bytes, &made) == 0)
        device->ticked = made;
}

int uhal_cl_events_close(uhal_cl_device *device) {
    const uhal_cl_memory made = device->ticked;
    device->ticked = (uhal_cl_memory){0};
    return made.place.bytes == 0 ? 0 : uhal_cl_native_free(&made);
}
