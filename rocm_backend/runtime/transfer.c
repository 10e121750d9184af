/* Copies and fills with the hot table's rules.
 *
 * Memory pinned here is copied asynchronously. Pageable memory goes through staging, or is pinned
 * for the time of the copy when it is large; the copy is complete when the call returns. A fill
 * copies a pattern and then doubles the filled part: every size and alignment is exact, and the
 * host waits for nothing.
 */
#include <string.h>

#include "capture.h"
#include "copy.h"
#include "fault.h"
#include "peers.h"
#include "ranges.h"

static const uhal_hsa_freight NOTHING = {NULL, NULL, NULL};

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

static uint64_t address_of(const void *pointer) { return (uint64_t)(uintptr_t)pointer; }

/* The agent that owns an address; `otherwise` if unknown. */
static hsa_agent_t owner_of(uint64_t address, hsa_agent_t otherwise) {
    uhal_hsa_range range;
    if (uhal_hsa_ranges_find(address, &range))
        return range.owner;
    hsa_amd_pointer_info_t info = {.size = sizeof info};
    const hsa_status_t status = uhal_hsa.hsa.hsa_amd_pointer_info((const void *)(uintptr_t)address,
                                                                  &info, NULL, NULL, NULL);
    if (status != HSA_STATUS_SUCCESS || info.type == HSA_EXT_POINTER_TYPE_UNKNOWN)
        return otherwise;
    return info.agentOwner;
}

static int is_pinned(const void *pointer, size_t bytes) {
    uhal_hsa_range range;
    const uint64_t address = address_of(pointer);
    return uhal_hsa_ranges_find(address, &range) && range.pinned &&
           address - range.place.start + bytes <= range.place.bytes;
}

/* Fills in a part whose other end is host memory of the device's CPU. */
static uhal_hsa_part host_part(const uhal_hsa_device *device, int to_device, uint64_t on_device,
                               uint64_t on_host, size_t bytes) {
    const hsa_agent_t owner = owner_of(on_device, device->agent);
    if (to_device)
        return (uhal_hsa_part){on_device, on_host, bytes, owner, device->host};
    return (uhal_hsa_part){on_host, on_device, bytes, device->host, owner};
}

/* -- pageable memory --------------------------------------------------------------------------- */

/* Copies to the device through staging; the source is read before the function returns. */
static int stage_in(uhal_hsa_stream *stream, uint64_t destination, const unsigned char *source,
                    size_t bytes) {
    uhal_hsa_device *device = stream->queue->device;
    while (bytes > 0) {
        const size_t now = least(bytes, UHAL_HSA_LARGE_PIECE);
        uhal_hsa_piece *piece;
        int status = (int)uhal_hsa_piece_take(device, now, &piece);
        if (status != 0)
            return status;
        memcpy(piece->memory, source, now);
        const uhal_hsa_part part =
            host_part(device, 1, destination, address_of(piece->memory), now);
        status =
            uhal_hsa_copy_submit(stream, &part, 1, 0, (uhal_hsa_freight){.piece = piece}, NULL);
        if (status != 0)
            return status;
        destination += now;
        source += now;
        bytes -= now;
    }
    return 0;
}

/* Copies to the host through staging, one piece after another; the destination is written when the
 * function returns. */
static int stage_out(uhal_hsa_stream *stream, unsigned char *destination, uint64_t source,
                     size_t bytes) {
    uhal_hsa_device *device = stream->queue->device;
    while (bytes > 0) {
        const size_t now = least(bytes, UHAL_HSA_LARGE_PIECE);
        uhal_hsa_piece *piece;
        uhal_hsa_copy *copy;
        int status = (int)uhal_hsa_piece_take(device, now, &piece);
        if (status != 0)
            return status;
        const uhal_hsa_part part = host_part(device, 0, source, address_of(piece->memory), now);
        status =
            uhal_hsa_copy_submit(stream, &part, 1, 0, (uhal_hsa_freight){.piece = piece}, &copy);
        if (status != 0)
            return status;
        status = uhal_hsa_copy_wait(copy);
        if (status != 0)
            return status; /* the device is lost: the copy stays */
        memcpy(destination, piece->memory, now);
        uhal_hsa_copy_drop(copy);
        destination += now;
        source += now;
        bytes -= now;
    }
    return 0;
}

/* Copies pinned memory, waits, and unpins the memory. */
static int copy_locked(uhal_hsa_stream *stream, int to_device, uint64_t on_device, void *host,
                       void *locked, size_t bytes) {
    uhal_hsa_copy *copy;
    const uhal_hsa_part part =
        host_part(stream->queue->device, to_device, on_device, address_of(locked), bytes);
    int status = uhal_hsa_copy_submit(stream, &part, 1, 0, NOTHING, &copy);
    if (status == 0) {
        status = uhal_hsa_copy_wait(copy);
        if (status == 0)
            uhal_hsa_copy_drop(copy);
    }
    /* A lost device may still read or write the memory. */
    if (status < UHAL_HSA_LOST) {
        const int unlocked = (int)uhal_hsa.hsa.hsa_amd_memory_unlock(host);
        status = status != 0 ? status : unlocked;
    }
    return status;
}

/* Pins host memory for a copy; 0 if the system refuses, as for memory that another library
 * pinned. */
static int lock_host(uhal_hsa_device *device, void *host, size_t bytes, void **locked) {
    return uhal_hsa.hsa.hsa_amd_memory_lock(host, bytes, &device->agent, 1, locked) ==
           HSA_STATUS_SUCCESS;
}

static int record_copy(uhal_hsa_stream *stream, uhal_hsa_step_kind kind, uint64_t destination,
                       uint64_t source, size_t bytes) {
    const uhal_hsa_step step = {
        .kind = kind, .destination = destination, .source = source, .count = bytes};
    return uhal_hsa_capture_step(stream, &step);
}

/* -- copies ------------------------------------------------------------------------------------ */

uhalHsaResult uhalHsaMemcpyHtoDAsync(uint64_t destination, const void *source, size_t bytes,
                                     void *handle) {
    uhal_hsa_stream *stream = handle;
    uhal_hsa_device *device = stream->queue->device;
    void *locked;
    if (bytes == 0)
        return uhal_hsa_check(device);
    if (uhal_hsa_capturing(stream) && !is_pinned(source, bytes))
        return uhal_hsa_capture_refuse(stream, "a copy from pageable memory");
    if (uhal_hsa_capturing(stream))
        return record_copy(stream, UHAL_HSA_STEP_COPY_IN, destination, address_of(source), bytes);
    if (is_pinned(source, bytes)) {
        const uhal_hsa_part part = host_part(device, 1, destination, address_of(source), bytes);
        return uhal_hsa_copy_submit(stream, &part, 1, 0, NOTHING, NULL);
    }
    if (bytes > UHAL_HSA_STAGED_BYTES && lock_host(device, (void *)source, bytes, &locked))
        return copy_locked(stream, 1, destination, (void *)source, locked, bytes);
    return stage_in(stream, destination, source, bytes);
}

uhalHsaResult uhalHsaMemcpyDtoHAsync(void *destination, uint64_t source, size_t bytes,
                                     void *handle) {
    uhal_hsa_stream *stream = handle;
    uhal_hsa_device *device = stream->queue->device;
    void *locked;
    if (bytes == 0)
        return uhal_hsa_check(device);
    if (uhal_hsa_capturing(stream) && !is_pinned(destination, bytes))
        return uhal_hsa_capture_refuse(stream, "a copy to pageable memory");
    if (uhal_hsa_capturing(stream))
        return record_copy(stream, UHAL_HSA_STEP_COPY_OUT, address_of(destination), source, bytes);
    if (is_pinned(destination, bytes)) {
        const uhal_hsa_part part = host_part(device, 0, source, address_of(destination), bytes);
        return uhal_hsa_copy_submit(stream, &part, 1, 0, NOTHING, NULL);
    }
    if (bytes > UHAL_HSA_STAGED_BYTES && lock_host(device, destination, bytes, &locked))
        return copy_locked(stream, 0, source, destination, locked, bytes);
    return stage_out(stream, destination, source, bytes);
}

uhalHsaResult uhalHsaMemcpyDtoDAsync(uint64_t destination, uint64_t source, size_t bytes,
                                     void *handle) {
    uhal_hsa_stream *stream = handle;
    uhal_hsa_device *device = stream->queue->device;
    if (bytes == 0)
        return uhal_hsa_check(device);
    if (uhal_hsa_capturing(stream))
        return record_copy(stream, UHAL_HSA_STEP_COPY, destination, source, bytes);
    const uhal_hsa_part part = {destination, source, bytes, owner_of(destination, device->agent),
                                owner_of(source, device->agent)};
    return uhal_hsa_copy_submit(stream, &part, 1, 0, NOTHING, NULL);
}

uhalHsaResult uhalHsaMemcpyPeerAsync(uint64_t destination, void *destination_context,
                                     uint64_t source, void *source_context, size_t bytes,
                                     void *handle) {
    uhal_hsa_stream *stream = handle;
    uhal_hsa_device *to = destination_context;
    uhal_hsa_device *from = source_context;
    if (bytes == 0)
        return uhal_hsa_check(to);
    if (uhal_hsa_capturing(stream))
        return uhal_hsa_capture_refuse(stream, "a copy between devices");
    /* Either device may do the copy. */
    if (uhal_hsa_let_in(to, source) == HSA_STATUS_SUCCESS &&
        uhal_hsa_let_in(from, destination) == HSA_STATUS_SUCCESS) {
        const uhal_hsa_part part = {destination, source, bytes, to->agent, from->agent};
        return uhal_hsa_copy_submit(stream, &part, 1, 0, (uhal_hsa_freight){.peer = from}, NULL);
    }
    /* Without a link, copy through host memory that both devices access. */
    void *pinned;
    const int status = (int)uhal_hsa_pinned_allocate(to, bytes, &pinned);
    if (status != 0)
        return status;
    const uhal_hsa_part parts[] = {
        {address_of(pinned), source, bytes, from->host, from->agent},
        {destination, address_of(pinned), bytes, to->agent, to->host},
    };
    return uhal_hsa_copy_submit(stream, parts, 2, 1, (uhal_hsa_freight){NULL, pinned, from}, NULL);
}

/* -- fills ------------------------------------------------------------------------------------- */

static int record_fill(uhal_hsa_stream *stream, uint64_t destination, const void *value,
                       size_t width, size_t count) {
    uhal_hsa_step step = {.kind = UHAL_HSA_STEP_FILL,
                          .destination = destination,
                          .count = count,
                          .width = (uint32_t)width};
    memcpy(&step.value, value, width);
    return uhal_hsa_capture_step(stream, &step);
}

static int fill(uint64_t destination, const void *value, size_t width, size_t count,
                uhal_hsa_stream *stream) {
    uhal_hsa_device *device = stream->queue->device;
    const size_t bytes = width * count;
    const hsa_agent_t owner = owner_of(destination, device->agent);
    uhal_hsa_part parts[UHAL_HSA_MAX_PARTS];
    uhal_hsa_piece *piece;
    if (bytes == 0)
        return uhal_hsa_check(device);
    if (uhal_hsa_capturing(stream))
        return record_fill(stream, destination, value, width, count);
    const int status = (int)uhal_hsa_piece_take(device, least(bytes, UHAL_HSA_LARGE_PIECE), &piece);
    if (status != 0)
        return status;
    size_t filled = least(bytes, piece->bytes);
    for (size_t i = 0; i < filled; i += width)
        memcpy(piece->memory + i, value, width);
    parts[0] = (uhal_hsa_part){destination, address_of(piece->memory), filled, owner, device->host};
    uint32_t used = 1;
    /* 2^48 bytes, more than any device has, take 32 doublings of a large piece. */
    for (; filled < bytes; ++used) {
        const size_t more = least(filled, bytes - filled);
        parts[used] = (uhal_hsa_part){destination + filled, destination, more, owner, owner};
        filled += more;
    }
    return uhal_hsa_copy_submit(stream, parts, used, 1, (uhal_hsa_freight){.piece = piece}, NULL);
}

uhalHsaResult uhalHsaMemsetD8Async(uint64_t destination, unsigned char value, size_t count,
                                   void *stream) {
    return fill(destination, &value, sizeof value, count, stream);
}

uhalHsaResult uhalHsaMemsetD16Async(uint64_t destination, unsigned short value, size_t count,
                                    void *stream) {
    return fill(destination, &value, sizeof value, count, stream);
}

uhalHsaResult uhalHsaMemsetD32Async(uint64_t destination, unsigned int value, size_t count,
                                    void *stream) {
    return fill(destination, &value, sizeof value, count, stream);
}
