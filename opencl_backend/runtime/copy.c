/* Copies and fills, each one command of the stream's queue. */
#include "memory.h"
#include "stream.h"

#include <stdlib.h>
#include <string.h>

typedef struct uhal_cl_copy {
    uint64_t destination;
    uint64_t source;
    size_t bytes;
    bool to_host;
    bool from_host;
} uhal_cl_copy;

/* -- commands ---------------------------------------------------------------------------------- */

static void *memory(uint64_t address) { return (void *)(uintptr_t)address; }

/* Buffers have handles instead of addresses, and each direction has its own command. */
static int copy_buffers(uhal_cl_stream *stream, const uhal_cl_copy *one, cl_bool blocking,
                        cl_event *event) {
    size_t to;
    size_t from;
    const cl_mem destination =
        one->to_host ? NULL : uhal_cl_buffer_at(stream->device, one->destination, &to);
    const cl_mem source =
        one->from_host ? NULL : uhal_cl_buffer_at(stream->device, one->source, &from);
    if ((destination == NULL && !one->to_host) || (source == NULL && !one->from_host))
        return CL_INVALID_MEM_OBJECT;
    if (one->to_host)
        return uhal_cl.cl.clEnqueueReadBuffer(stream->queue, source, blocking, from, one->bytes,
                                              memory(one->destination), 0, NULL, event);
    if (one->from_host)
        return uhal_cl.cl.clEnqueueWriteBuffer(stream->queue, destination, blocking, to, one->bytes,
                                               memory(one->source), 0, NULL, event);
    return uhal_cl.cl.clEnqueueCopyBuffer(stream->queue, source, destination, from, to, one->bytes,
                                          0, NULL, event);
}

static int enqueue(uhal_cl_stream *stream, const uhal_cl_copy *one, cl_bool blocking,
                   cl_event *event) {
    if (stream->device->info.memory == UHAL_CL_MEMORY_BUFFER)
        return copy_buffers(stream, one, blocking, event);
    return stream->device->copy(stream->queue, blocking, memory(one->destination),
                                memory(one->source), one->bytes, 0, NULL, event);
}

/* `waits`: the host memory was not allocated by OpenCL, so the copy is complete on return. */
static int copy(uhal_cl_stream *stream, const uhal_cl_copy *one, bool waits) {
    const uint64_t before = atomic_load(&stream->submitted);
    const int status = enqueue(stream, one, waits ? CL_TRUE : CL_FALSE, NULL);
    if (status != 0)
        return status;
    /* If nothing else was enqueued meanwhile, all work of the stream is done. */
    if (atomic_fetch_add(&stream->submitted, 1) == before && waits)
        uhal_cl_stream_done(stream, before + 1);
    return waits ? 0 : uhal_cl.cl.clFlush(stream->queue);
}

static void release(cl_event event, cl_int status, void *buffer) {
    (void)event;
    (void)status;
    free(buffer);
}

/* Reads the source at once; the copy runs behind pending work. */
static int staged_copy(uhal_cl_stream *stream, const uhal_cl_copy *one) {
    void *buffer = malloc(one->bytes);
    if (buffer == NULL)
        return copy(stream, one, true);
    memcpy(buffer, memory(one->source), one->bytes);
    uhal_cl_copy aside = *one;
    aside.source = (uint64_t)(uintptr_t)buffer;
    cl_event event;
    int status = enqueue(stream, &aside, CL_FALSE, &event);
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

/* -- the slots --------------------------------------------------------------------------------- */

uhalClResult uhalClMemcpyHtoDAsync(uint64_t destination, const void *source, size_t bytes,
                                   void *handle) {
    uhal_cl_stream *stream = handle;
    const uhal_cl_copy one = {
        .destination = destination,
        .source = (uint64_t)(uintptr_t)source,
        .bytes = bytes,
        .from_host = true,
    };
    const bool pinned = uhal_cl_is_pinned(source, bytes);
    if (!pinned && !uhal_cl_stream_is_idle(stream) && bytes <= UHAL_CL_STAGED_BYTES)
        return staged_copy(stream, &one);
    return copy(stream, &one, !pinned);
}

uhalClResult uhalClMemcpyDtoHAsync(void *destination, uint64_t source, size_t bytes, void *stream) {
    const uhal_cl_copy one = {
        .destination = (uint64_t)(uintptr_t)destination,
        .source = source,
        .bytes = bytes,
        .to_host = true,
    };
    return copy(stream, &one, !uhal_cl_is_pinned(destination, bytes));
}

uhalClResult uhalClMemcpyDtoDAsync(uint64_t destination, uint64_t source, size_t bytes,
                                   void *stream) {
    const uhal_cl_copy one = {.destination = destination, .source = source, .bytes = bytes};
    return copy(stream, &one, false);
}

static int fill(uhal_cl_stream *stream, uint64_t destination, const void *pattern, size_t size,
                size_t count) {
    int status;
    if (stream->device->info.memory == UHAL_CL_MEMORY_BUFFER) {
        size_t offset;
        const cl_mem buffer = uhal_cl_buffer_at(stream->device, destination, &offset);
        status = buffer == NULL
                     ? CL_INVALID_MEM_OBJECT
                     : uhal_cl.cl.clEnqueueFillBuffer(stream->queue, buffer, pattern, size, offset,
                                                      size * count, 0, NULL, NULL);
    } else {
        status = stream->device->fill(stream->queue, memory(destination), pattern, size,
                                      size * count, 0, NULL, NULL);
    }
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
