/* Copies and fills, each one command of the stream's queue. */
#include "ranges.h"
#include "stream.h"

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

static void *memory(uint64_t address) { return (void *)(uintptr_t)address; }

uhalClResult uhalClMemcpyHtoDAsync(uint64_t destination, const void *source, size_t bytes,
                                   void *stream) {
    return copy(stream, memory(destination), source, bytes, !uhal_cl_ranges_pinned(source, bytes));
}

uhalClResult uhalClMemcpyDtoHAsync(void *destination, uint64_t source, size_t bytes,
                                   void *stream) {
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
