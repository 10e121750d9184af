#include "stream.h"

#include <stdlib.h>

#include "capture.h"
#include "event.h"
#include "fault.h"
#include "wait.h"

uhalHsaResult uhalHsaStreamCreate(void **handle, unsigned int flags, int priority) {
    (void)flags;
    (void)priority;
    uhal_hsa_device *device = uhal_hsa_current();
    if (device == NULL)
        return HSA_STATUS_ERROR_INVALID_AGENT;
    int status = uhal_hsa_check(device);
    if (status != 0)
        return status;
    uhal_hsa_stream *stream = calloc(1, sizeof *stream);
    if (stream == NULL)
        return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
    status = (int)uhal_hsa_device_join_queue(device, &stream->queue);
    if (status != 0) {
        free(stream);
        return status;
    }
    atomic_fetch_add(&uhal_hsa.live[UHAL_HSA_KIND_STREAM], 1);
    *handle = stream;
    return 0;
}

/* The stream's pending work still runs, because this work has no pointer to the stream. */
uhalHsaResult uhalHsaStreamDestroy(void *handle) {
    uhal_hsa_stream *stream = handle;
    if (uhal_hsa_capturing(stream))
        uhal_hsa_capture_leave(stream);
    uhal_hsa_device_leave_queue(stream->queue);
    free(stream);
    atomic_fetch_sub(&uhal_hsa.live[UHAL_HSA_KIND_STREAM], 1);
    return 0;
}

void uhal_hsa_stream_count(uhal_hsa_stream *stream, uint64_t begin, uint64_t end) {
    const uint64_t number = atomic_fetch_add(&stream->launches, 1);
    const uint64_t slot = number % UHAL_HSA_REMEMBERED_LAUNCHES;
    atomic_store_explicit(&stream->begins[slot], begin, memory_order_relaxed);
    atomic_store_explicit(&stream->ends[slot], end, memory_order_relaxed);
}

uhalHsaResult uhalHsaLaunchKernel(void *function, unsigned int grid_x, unsigned int grid_y,
                                  unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                  unsigned int block_z, unsigned int shared_bytes, void *handle,
                                  void **parameters, void **extra) {
    (void)extra;
    const uhal_hsa_kernel *kernel = function;
    uhal_hsa_stream *stream = handle;
    uhal_hsa_queue *queue = stream->queue;
    const uhal_aql_geometry geometry = {
        {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes};
    uhal_aql_position position;
    if (uhal_hsa_capturing(stream))
        return uhal_hsa_capture_launch(stream, &kernel->aql, &geometry, parameters);
    const int status = uhal_aql_launch(&queue->writer, &kernel->aql, &geometry, parameters,
                                       queue->progress, &position);
    if (status != 0)
        return uhal_hsa_told(queue->device, status);
    uhal_hsa_stream_count(stream, position.launch, position.launch + 1);
    uhal_hsa_stream_advance(stream, position.index + 1);
    return 0;
}

uhalHsaResult uhalHsaStreamQuery(void *handle) {
    uhal_hsa_stream *stream = handle;
    uhal_hsa_queue *queue = stream->queue;
    const uint64_t upto = atomic_load(&stream->upto);
    uhal_hsa_mark *mark;
    int status = uhal_hsa_check(queue->device);
    if (status != 0)
        return status;
    if (uhal_hsa_capturing(stream))
        return uhal_hsa_capture_refuse(stream, "asking whether work is done");
    status = uhal_hsa_queue_cover(queue, upto, &mark);
    if (status != 0 || mark == NULL)
        return status;
    const int done = uhal_hsa_signal_done(mark->signal);
    uhal_hsa_mark_drop(mark);
    if (!done) {
        status = uhal_hsa_check_now_and_then(queue->device);
        return status != 0 ? status : UHAL_HSA_NOT_READY;
    }
    uhal_hsa_queue_reap(queue);
    return 0;
}

uhalHsaResult uhalHsaStreamSynchronize(void *handle) {
    return uhalHsaStreamSynchronizeWhile(handle, NULL, NULL);
}

uhalHsaResult uhalHsaStreamSynchronizeWhile(void *handle, uhal_go_on go_on, void *user_data) {
    uhal_hsa_stream *stream = handle;
    const uhal_hsa_patience patience = {go_on, user_data};
    const int status = uhal_hsa_check(stream->queue->device);
    if (status != 0)
        return status;
    if (uhal_hsa_capturing(stream))
        return uhal_hsa_capture_refuse(stream, "waiting for the host");
    return uhal_hsa_wait_queue_while(stream->queue, atomic_load(&stream->upto), patience);
}

int uhal_hsa_stream_await(uhal_hsa_stream *stream, uhal_hsa_mark *awaited) {
    uhal_hsa_queue *queue = stream->queue;
    if (awaited == NULL || uhal_hsa_signal_done(awaited->signal)) {
        uhal_hsa_mark_drop(awaited);
        return 0;
    }
    if (awaited->queue == queue) {
        /* Packets of one queue run in order anyway; copies must wait for `upto`. */
        uhal_hsa_stream_advance(stream, awaited->upto);
        uhal_hsa_mark_drop(awaited);
        return 0;
    }
    const hsa_signal_t none = {0};
    uhal_aql_position position;
    const int status = uhal_aql_barrier(&queue->writer, &awaited->signal, 1, none, &position);
    if (status != 0) {
        uhal_hsa_mark_drop(awaited);
        return uhal_hsa_told(queue->device, status);
    }
    uhal_hsa_queue_hold(queue, position.index + 1, uhal_hsa_mark_drop, awaited);
    uhal_hsa_stream_advance(stream, position.index + 1);
    return 0;
}

uhalHsaResult uhalHsaStreamWaitEvent(void *handle, void *event, unsigned int flags) {
    (void)flags;
    uhal_hsa_stream *stream = handle;
    const int status = uhal_hsa_check(stream->queue->device);
    if (status != 0)
        return status;
    if (uhal_hsa_capturing(stream) || uhal_hsa_event_captured(event))
        return uhal_hsa_event_join(event, stream);
    return uhal_hsa_stream_await(stream, uhal_hsa_event_mark(event));
}

uhalHsaResult uhalHsaStreamProgress(void *handle, uint64_t *completed, uint64_t *begun,
                                    uint64_t *index) {
    uhal_hsa_stream *stream = handle;
    uhal_hsa_queue *queue = stream->queue;
    const uhal_hsa_queue *failed = atomic_load(&queue->device->failed_queue);
    const uint64_t launches = atomic_load(&stream->launches);
    const uint64_t done = uhal_hsa_queue_launches_done(queue);
    const uint64_t oldest =
        launches > UHAL_HSA_REMEMBERED_LAUNCHES ? launches - UHAL_HSA_REMEMBERED_LAUNCHES : 0;
    uint64_t next = launches;
    while (next > oldest &&
           atomic_load(&stream->ends[(next - 1) % UHAL_HSA_REMEMBERED_LAUNCHES]) > done)
        next -= 1;
    *completed = next;
    *begun = next;
    *index = UINT64_MAX; /* only the last packet of a graph has a signal */
    /* A queue runs one launch at a time. */
    if ((failed == NULL || failed == queue) && next < launches &&
        atomic_load(&stream->begins[next % UHAL_HSA_REMEMBERED_LAUNCHES]) <= done)
        *begun = next + 1;
    return 0;
}
