/* Copies and fills, each one command of the stream's queue. */
#include "ranges.h"
#include "stream.h"

#include <stdlib.h>
#include <string.h>

/* `waits`: the host's memory is not OpenCL's, so it is done with when this returns. */
static int copy(uhal_cl_stream *stream, void *destination, const void *source, size_t bytes,
                bool waits) {
    const uint64_t before = atomic_load(&stream->submitted);
    const int status = stream->device->copy(stream->queue, waits ? CL_TRUE : CL_FALSE, destination,
                                            source, bytes, 0, NULL, NULL);
    if (status != 0)
        return status;
    /* Nothing else was given to the stream meanwhile: then all of it is done. */
    if (atomic_fetch_add(&stream->submitted, 1) == before && waits)
        uhal_cl_stream_done(stream, before + 1);
    return waits ? 0 : uhal_cl.cl.clFlush(stream->queue);
}

static void release(cl_event event, cl_int status, void *buffer) {
    (void)event;
    (void)status;
    free(buffer);
}

/* Reads the source at once, behind work that may be pending for long. */
static int staged_copy(uhal_cl_stream *stream, void *destination, const void *source,
                       size_t bytes) {
    void *buffer = malloc(bytes);
    if (buffer == NULL)
        return copy(stream, destination, source, bytes, true);
    memcpy(buffer, source, bytes);
    cl_event event;
    int status =
        stream->device->copy(stream->queue, CL_FALSE, destination, buffer, bytes, 0, NULL, &event);
    if (status != 0) {
        free(buffer);
        return status;
    }
    atomic_fetch_add(&stream->submitted, 1);
    if (uhal_cl.cl.clSetEventCallback(event, CL_COMPLETE, release, buffer) != 0) {
        status = uhal_cl.cl.clWaitForEvents(1, &event);
        free(buffer);
    }
    uhal_cl.cl.clReleaseEvent(event);
    return status != 0 ? status : uhal_cl.cl.clFlush(stream->queue);
}

static void *memory(uint64_t address) { return (void *)(uintptr_t)address; }

uhalClResult uhalClMemcpyHtoDAsync(uint64_t destination, const void *source, size_t bytes,
                                   void *handle) {
    uhal_cl_stream *stream = handle;
    const bool pinned = uhal_cl_ranges_pinned(source, bytes);
    const bool idle = atomic_load(&stream->completed) >= atomic_load(&stream->submitted);
    if (!pinned && !idle && bytes <= UHAL_CL_STAGED_BYTES)
        return staged_copy(stream, memory(destination), source, bytes);
    return copy(stream, memory(destination), source, bytes, !pinned);
}

uhalClResult uhalClMemcpyDtoHAsync(void *destination, uint64_t source, size_t bytes, void *stream) {
    return copy(stream, destination, memory(source), bytes,
                !uhal_cl_ranges_pinned(destination, bytes));
}

uhalClResult uhalClMemcpyDtoDAsync(uint64_t destination, uint64_t source, size_t bytes,
                                   void *stream) {
    return copy(stream, memory(destination), memory(source), bytes, false);
}

static int fill(uhal_cl_stream *stream, uint64_t destination, const void *pattern, size_t size,
                size_t count) {
    const int status = stream->device->fill(stream->queue, memory(destination), pattern, size,
                                            size * count, 0, NULL, NULL);
    if (status != 0)
        return status;
    atomic_fetch_add(&stream->submitted, 1);
    return uhal_cl.cl.clFlush(stream->queue);
}

uhalClResult uhalClMemsetD8Async(uint64_t destination, unsigned char value, size_t count,
                                 void *stream) {
    return fill(stream, destination, &value, sizeof value, count);
}

uhalClResult uhalClMemsetD16Async(uint64_t destination, unsigned short value, size_t count,
                                  void *stream) {
    return fill(stream, destination, &value, sizeof value, count);
}

uhalClResult uhalClMemsetD32Async(uint64_t destination, unsigned int value, size_t count,
                                  void *stream) {
    return fill(stream, destination, &value, sizeof value, count);
}
