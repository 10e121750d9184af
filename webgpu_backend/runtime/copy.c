/* Copies and fills. wgpu copies whole words between different buffers; a kernel does all else. */
#include "kernel.h"

#include <stdlib.h>
#include <string.h>

enum { CHUNK = 64 << 20 }; /* bytes of one command; a multiple of 256 */
enum { BLOCK = 256 };
enum { SMALL = 1 << 20 }; /* bytes that do not end a batch */

static uint64_t offset_of(uint64_t address) {
    return address & (((uint64_t)1 << UHAL_WG_OFFSET_BITS) - 1);
}

/* -- with the lock ----------------------------------------------------------------------------- */

/* A kernel over whole words of the destination. `source` null: fill. */
static int run(uhal_wg_stream *stream, uhal_wg_buffer *source, uint64_t from,
               uhal_wg_buffer *target, uint64_t to, size_t bytes, uint32_t pattern) {
    uhal_wg_device *device = stream->device;
    uhal_wg_launch launch;
    memset(launch.bindings, 0, 2 * sizeof *launch.bindings);
    uhal_wg_binding *next = launch.bindings;
    if (source != NULL)
        *next++ = (uhal_wg_binding){source, uhal_wg_window(device, source, &from)};
    *next = (uhal_wg_binding){target, uhal_wg_window(device, target, &to)};
    const size_t blocks = (bytes / 4 + 2 + BLOCK - 1) / BLOCK;
    launch.grid[0] = blocks < device->info.max_blocks ? (uint32_t)blocks : device->info.max_blocks;
    launch.grid[1] = launch.grid[2] = 1;
    launch.block[0] = BLOCK;
    launch.block[1] = launch.block[2] = 1;
    launch.words[4] = (uint32_t)from;
    launch.words[5] = (uint32_t)to;
    launch.words[6] = (uint32_t)bytes;
    launch.words[7] = pattern;
    return uhal_wg_dispatch(source != NULL ? device->copier : device->filler, stream, &launch);
}

static int copy_words(uhal_wg_stream *stream, WGPUBuffer source, uint64_t from, WGPUBuffer target,
                      uint64_t to, size_t bytes) {
    const WGPUCommandEncoder encoder = uhal_wg_encoder(stream->device);
    if (encoder == NULL)
        return uhal_wg_noted_error();
    uhal_wg.wgpu.wgpuCommandEncoderCopyBufferToBuffer(encoder, source, from, target, to, bytes);
    return uhal_wg_command(stream);
}

/* A buffer for one command, which keeps the buffer alive. */
static int scratch(uhal_wg_device *device, size_t bytes, uhal_wg_buffer *made) {
    memset(made, 0, sizeof *made);
    made->device = device;
    made->bytes = (bytes + 3) & ~(size_t)3;
    made->buffer = uhal_wg_new_buffer(device, made->bytes,
                                      WGPUBufferUsage_Storage | WGPUBufferUsage_CopySrc |
                                          WGPUBufferUsage_CopyDst);
    return made->buffer != NULL ? 0 : uhal_wg_noted_error();
}

static void drop_scratch(uhal_wg_device *device, uhal_wg_buffer *one) {
    if (atomic_load(&one->is_grouped))
        uhal_wg_forget_groups(device, one);
    uhal_wg.wgpu.wgpuBufferRelease(one->buffer);
}

/* Enqueues a write that runs before the next batch; the open batch is submitted first. */
static int write_words(uhal_wg_stream *stream, WGPUBuffer target, uint64_t to, const void *source,
                       size_t bytes) {
    uhal_wg_device *device = stream->device;
    int status = device->encoder != NULL ? uhal_wg_submit(device) : 0;
    if (status != 0)
        return status;
    uhal_wg_clear_error();
    uhal_wg.wgpu.wgpuQueueWriteBuffer(device->queue, target, to, source, bytes);
    status = uhal_wg_noted_error();
    return status != 0 ? status : uhal_wg_command(stream);
}

static int from_host(uhal_wg_stream *stream, uhal_wg_buffer *target, uint64_t to,
                     const unsigned char *source, size_t bytes) {
    uhal_wg_device *device = stream->device;
    const bool is_aligned = ((to | bytes) & 3) == 0;
    if (is_aligned && (device->encoder == NULL || bytes > SMALL))
        return write_words(stream, target->buffer, to, source, bytes);
    /* No command of the batch uses this buffer, so it may be written before the commands run. */
    uhal_wg_buffer aside;
    int status = scratch(device, bytes, &aside);
    if (status != 0)
        return status;
    const size_t whole = bytes & ~(size_t)3;
    unsigned char last[4] = {0};
    memcpy(last, source + whole, bytes - whole);
    uhal_wg_clear_error();
    if (whole > 0)
        uhal_wg.wgpu.wgpuQueueWriteBuffer(device->queue, aside.buffer, 0, source, whole);
    if (bytes > whole)
        uhal_wg.wgpu.wgpuQueueWriteBuffer(device->queue, aside.buffer, whole, last, sizeof last);
    status = uhal_wg_noted_error();
    if (status == 0)
        status = is_aligned ? copy_words(stream, aside.buffer, 0, target->buffer, to, bytes)
                            : run(stream, &aside, 0, target, to, bytes, 0);
    drop_scratch(device, &aside);
    return status;
}

static int within_device(uhal_wg_stream *stream, uhal_wg_buffer *source, uint64_t from,
                         uhal_wg_buffer *target, uint64_t to, size_t bytes) {
    if (source != target && ((from | to | bytes) & 3) == 0)
        return copy_words(stream, source->buffer, from, target->buffer, to, bytes);
    const uint64_t apart = from < to ? to - from : from - to;
    /* Words at the edges also hold bytes outside the range. */
    if (source != target || apart >= bytes + 4)
        return run(stream, source, from, target, to, bytes, 0);
    uhal_wg_buffer aside;
    int status = scratch(stream->device, bytes, &aside);
    if (status != 0)
        return status;
    status = run(stream, source, from, &aside, 0, bytes, 0);
    if (status == 0)
        status = run(stream, &aside, 0, target, to, bytes, 0);
    drop_scratch(stream->device, &aside);
    return status;
}

/* -- the slots --------------------------------------------------------------------------------- */

uhalWgResult uhalWgMemcpyHtoDAsync(uint64_t destination, const void *source, size_t bytes,
                                   void *handle) {
    uhal_wg_stream *stream = handle;
    uhal_wg_buffer *target = uhal_wg_buffer_at(destination);
    if (target == NULL)
        return uhal_wg_error(UHAL_WG_INVALID_VALUE, "no memory of the device has the address");
    int status = uhal_wg_check_lost(stream->device);
    for (size_t done = 0; status == 0 && done < bytes; done += CHUNK) {
        const size_t part = bytes - done < CHUNK ? bytes - done : CHUNK;
        pthread_mutex_lock(&stream->device->lock);
        status = from_host(stream, target, offset_of(destination) + done,
                           (const unsigned char *)source + done, part);
        pthread_mutex_unlock(&stream->device->lock);
    }
    return status;
}

uhalWgResult uhalWgMemcpyDtoHAsync(void *destination, uint64_t source, size_t bytes, void *handle) {
    uhal_wg_stream *stream = handle;
    uhal_wg_device *device = stream->device;
    uhal_wg_buffer *from = uhal_wg_buffer_at(source);
    if (from == NULL)
        return uhal_wg_error(UHAL_WG_INVALID_VALUE, "no memory of the device has the address");
    int status = uhal_wg_check_lost(device);
    for (size_t done = 0; status == 0 && done < bytes; done += CHUNK) {
        const size_t part = bytes - done < CHUNK ? bytes - done : CHUNK;
        const uint64_t start = (offset_of(source) + done) & ~(uint64_t)3;
        const uint64_t skipped = offset_of(source) + done - start;
        const uint64_t whole = (skipped + part + 3) & ~(uint64_t)3;
        pthread_mutex_lock(&device->lock);
        uhal_wg_staging *staging = uhal_wg_take_staging(device, whole + 8);
        status = staging == NULL
                     ? uhal_wg_noted_error()
                     : copy_words(stream, from->buffer, start, staging->buffer, 0, whole);
        if (status == 0)
            status = uhal_wg_submit(device);
        pthread_mutex_unlock(&device->lock);
        if (status == 0)
            status = uhal_wg_read_staging(device, staging, skipped,
                                          (unsigned char *)destination + done, part);
        if (staging != NULL) {
            pthread_mutex_lock(&device->lock);
            uhal_wg_give_staging(device, staging);
            pthread_mutex_unlock(&device->lock);
        }
    }
    return status != 0 ? status : uhal_wg_finish(device);
}

uhalWgResult uhalWgMemcpyDtoDAsync(uint64_t destination, uint64_t source, size_t bytes,
                                   void *handle) {
    uhal_wg_stream *stream = handle;
    uhal_wg_buffer *from = uhal_wg_buffer_at(source);
    uhal_wg_buffer *to = uhal_wg_buffer_at(destination);
    if (from == NULL || to == NULL)
        return uhal_wg_error(UHAL_WG_INVALID_VALUE, "no memory of the device has the address");
    int status = uhal_wg_check_lost(stream->device);
    /* A move towards a buffer's end starts at the end: no part is written before it is read. */
    const bool backwards = from == to && offset_of(destination) > offset_of(source);
    for (size_t done = 0; status == 0 && done < bytes; done += CHUNK) {
        const size_t part = bytes - done < CHUNK ? bytes - done : CHUNK;
        const size_t at = backwards ? bytes - done - part : done;
        pthread_mutex_lock(&stream->device->lock);
        status = within_device(stream, from, offset_of(source) + at, to,
                               offset_of(destination) + at, part);
        pthread_mutex_unlock(&stream->device->lock);
    }
    return status;
}

static int fill(uint64_t destination, uint32_t pattern, size_t bytes, void *handle) {
    uhal_wg_stream *stream = handle;
    uhal_wg_buffer *target = uhal_wg_buffer_at(destination);
    if (target == NULL)
        return uhal_wg_error(UHAL_WG_INVALID_VALUE, "no memory of the device has the address");
    const uint32_t turned = (uint32_t)(destination & 3) * 8;
    if (turned != 0)
        pattern = pattern << turned | pattern >> (32 - turned);
    int status = uhal_wg_check_lost(stream->device);
    for (size_t done = 0; status == 0 && done < bytes; done += CHUNK) {
        const size_t part = bytes - done < CHUNK ? bytes - done : CHUNK;
        pthread_mutex_lock(&stream->device->lock);
        status = run(stream, NULL, 0, target, offset_of(destination) + done, part, pattern);
        pthread_mutex_unlock(&stream->device->lock);
    }
    return status;
}

uhalWgResult uhalWgMemsetD8Async(uint64_t destination, unsigned char value, size_t count,
                                 void *stream) {
    return fill(destination, value * 0x01010101U, count, stream);
}

uhalWgResult uhalWgMemsetD16Async(uint64_t destination, unsigned short value, size_t count,
                                  void *stream) {
    return fill(destination, value * 0x00010001U, 2 * count, stream);
}

uhalWgResult uhalWgMemsetD32Async(uint64_t destination, unsigned int value, size_t count,
                                  void *stream) {
    return fill(destination, value, 4 * count, stream);
}
