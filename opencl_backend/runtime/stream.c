#define _POSIX_C_SOURCE 200809L

#include "stream.h"

#include <stdlib.h>
#include <time.h>

enum { PROBE_NANOSECONDS = 50000 };

/* A stream over a queue; the stream releases the queue. */
static int over(uhal_cl_device *device, cl_command_queue queue, bool is_shared, void **handle) {
    uhal_cl_stream *stream = calloc(1, sizeof *stream);
    if (stream == NULL) {
        uhal_cl.cl.clReleaseCommandQueue(queue);
        return CL_OUT_OF_HOST_MEMORY;
    }
    stream->device = device;
    stream->queue = queue;
    atomic_init(&stream->is_shared, is_shared);
    atomic_init(&stream->holders, 1);
    pthread_mutex_init(&stream->lock, NULL);
    pthread_mutex_lock(&device->lock);
    stream->next = device->streams;
    device->streams = stream;
    pthread_mutex_unlock(&device->lock);
    atomic_fetch_add(&uhal_cl.live[UHAL_CL_KIND_STREAM], 1);
    *handle = stream;
    return 0;
}

uhalClResult uhalClStreamCreate(void **handle, unsigned int flags, int priority) {
    (void)flags;
    (void)priority;
    uhal_cl_device *device = uhal_cl_current();
    if (device == NULL)
        return CL_INVALID_CONTEXT;
    const cl_properties properties[] = {CL_QUEUE_PROPERTIES, CL_QUEUE_PROFILING_ENABLE, 0};
    cl_int status = 0;
    const cl_command_queue queue = uhal_cl.cl.clCreateCommandQueueWithProperties(
        device->context, device->device, properties, &status);
    return status != 0 ? status : over(device, queue, false, handle);
}

uhalClResult uhalClStreamWrapQueue(void **handle, void *context, void *queue) {
    const int status = uhal_cl.cl.clRetainCommandQueue(queue);
    return status != 0 ? status : over(context, queue, true, handle);
}

uhalClResult uhalClStreamShareQueue(void **queue, void *handle) {
    uhal_cl_stream *stream = handle;
    atomic_store(&stream->is_shared, true);
    *queue = stream->queue;
    return 0;
}

void uhal_cl_stream_hold(uhal_cl_stream *stream) { atomic_fetch_add(&stream->holders, 1); }

void uhal_cl_stream_drop(uhal_cl_stream *stream) {
    if (atomic_fetch_sub(&stream->holders, 1) != 1)
        return;
    if (stream->probe != NULL)
        uhal_cl.cl.clReleaseEvent(stream->probe);
    uhal_cl.cl.clReleaseCommandQueue(stream->queue);
    pthread_mutex_destroy(&stream->lock);
    free(stream);
}

uhalClResult uhalClStreamDestroy(void *handle) {
    uhal_cl_stream *stream = handle;
    const int status = uhal_cl.cl.clFlush(stream->queue);
    pthread_mutex_lock(&stream->device->lock);
    uhal_cl_stream **place = &stream->device->streams;
    while (*place != stream)
        place = &(*place)->next;
    *place = stream->next;
    pthread_mutex_unlock(&stream->device->lock);
    atomic_fetch_sub(&uhal_cl.live[UHAL_CL_KIND_STREAM], 1);
    uhal_cl_stream_drop(stream);
    return status;
}

int uhal_cl_streams_finish(uhal_cl_device *device) {
    /* Waits without the lock, because a driver's callback may need the lock. */
    pthread_mutex_lock(&device->lock);
    size_t count = 0;
    for (uhal_cl_stream *one = device->streams; one != NULL; one = one->next)
        count += 1;
    uhal_cl_stream **open = malloc((count + 1) * sizeof *open);
    if (open != NULL) {
        count = 0;
        for (uhal_cl_stream *one = device->streams; one != NULL; one = one->next) {
            uhal_cl_stream_hold(one);
            open[count++] = one;
        }
    }
    pthread_mutex_unlock(&device->lock);
    if (open == NULL)
        return CL_OUT_OF_HOST_MEMORY;
    int status = 0;
    for (size_t i = 0; i < count; ++i) {
        const int failed = uhal_cl.cl.clFinish(open[i]->queue);
        status = status != 0 ? status : failed;
        uhal_cl_stream_drop(open[i]);
    }
    free(open);
    return status;
}

bool uhal_cl_streams_pending(uhal_cl_device *device) {
    if (pthread_mutex_trylock(&device->lock) != 0)
        return true;
    bool pending = false;
    for (uhal_cl_stream *one = device->streams; one != NULL && !pending; one = one->next)
        pending = uhalClStreamQuery(one) == UHAL_CL_NOT_READY;
    pthread_mutex_unlock(&device->lock);
    return pending;
}

bool uhal_cl_stream_is_idle(uhal_cl_stream *stream) {
    return !atomic_load(&stream->is_shared) &&
           atomic_load(&stream->completed) >= atomic_load(&stream->submitted);
}

void uhal_cl_stream_done(uhal_cl_stream *stream, uint64_t ticket) {
    uint_fast64_t known = atomic_load(&stream->completed);
    while (known < ticket && !atomic_compare_exchange_weak(&stream->completed, &known, ticket))
        continue;
}

int uhal_cl_stream_mark(uhal_cl_stream *stream, cl_event *event, uint64_t *ticket) {
    /* The count is read first, so all counted work was enqueued before the marker. */
    *ticket = atomic_load(&stream->submitted);
    const int status = uhal_cl.cl.clEnqueueMarkerWithWaitList(stream->queue, 0, NULL, event);
    return status != 0 ? status : uhal_cl.cl.clFlush(stream->queue);
}

int uhal_cl_stream_tick(uhal_cl_stream *stream, cl_event *event, uint64_t *ticket) {
    const uhal_cl_device *device = stream->device;
    const uint32_t nothing = 0;
    if (device->ticked.place.bytes == 0)
        return uhal_cl_stream_mark(stream, event, ticket);
    *ticket = atomic_load(&stream->submitted);
    const int status = device->fill(stream->queue, (void *)(uintptr_t)device->ticked.place.start,
                                    &nothing, sizeof nothing, sizeof nothing, 0, NULL, event);
    return status != 0 ? status : uhal_cl.cl.clFlush(stream->queue);
}

int uhal_cl_event_status(cl_event event) {
    cl_int state = 0;
    const int status = uhal_cl.cl.clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS,
                                                 sizeof state, &state, NULL);
    if (status != 0)
        return status;
    return state > CL_COMPLETE ? UHAL_CL_NOT_READY : state;
}

uhalClResult uhalClStreamSynchronize(void *handle) {
    uhal_cl_stream *stream = handle;
    const uint64_t ticket = atomic_load(&stream->submitted);
    const int status = uhal_cl.cl.clFinish(stream->queue);
    if (status == 0)
        uhal_cl_stream_done(stream, ticket);
    return status;
}

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000U + (uint64_t)time.tv_nsec;
}

/* Queries the marker, and drops it once it is done. The lock is held. */
static int look(uhal_cl_stream *stream) {
    const int status = uhal_cl_event_status(stream->probe);
    if (status == UHAL_CL_NOT_READY)
        return status;
    uhal_cl.cl.clReleaseEvent(stream->probe);
    stream->probe = NULL;
    if (status == 0)
        uhal_cl_stream_done(stream, stream->probe_ticket);
    return status;
}

/* OpenCL cannot query whether a queue is empty, but it can query a marker at its end. */
uhalClResult uhalClStreamQuery(void *handle) {
    uhal_cl_stream *stream = handle;
    if (uhal_cl_stream_is_idle(stream))
        return 0;
    int status = 0;
    pthread_mutex_lock(&stream->lock);
    if (stream->probe != NULL)
        status = look(stream);
    if (status == 0 && !uhal_cl_stream_is_idle(stream)) {
        status = uhal_cl_stream_mark(stream, &stream->probe, &stream->probe_ticket);
        if (status == 0) {
            /* An idle queue takes a moment to reach the marker. */
            const uint64_t end = now() + PROBE_NANOSECONDS;
            do
                status = look(stream);
            while (status == UHAL_CL_NOT_READY && now() < end);
        }
    }
    pthread_mutex_unlock(&stream->lock);
    return status;
}
