/* Page-locked memory and the devices' copies of it. Before a launch, the host's writes go to the
 * copies of its arguments. When the host waits for kernels, their writes are copied back.
 */
#define _POSIX_C_SOURCE 200809L

#include "mirror.h"

#include "address_ranges.h"

#include <stdlib.h>
#include <string.h>

typedef struct pinned {
    uhal_range place;
} pinned;

static uhal_ranges page_locked = UHAL_RANGES_OF(pinned);

/* The device's copy of page-locked memory. `known` has the bytes that host and device last had in
 * common; both may have written since. */
typedef struct uhal_wg_mirror {
    struct uhal_wg_mirror *next;
    unsigned char *host;
    unsigned char *known;
    size_t bytes;
    uhal_wg_buffer *buffer;
    uhal_wg_staging *staging;
    uint64_t used; /* the last batch whose kernels use the mirror */
    uint64_t read; /* the last batch whose writes the host has */
} uhal_wg_mirror;

uhalWgResult uhalWgMemHostAlloc(void **pointer, size_t bytes, unsigned int flags) {
    enum { ALIGNMENT = 4096 };
    (void)flags;
    pinned made = {.place = {0, bytes}};
    if (posix_memalign(pointer, ALIGNMENT, bytes) != 0)
        return uhal_wg_error(UHAL_WG_OUT_OF_MEMORY, "the host has no memory");
    made.place.start = (uint64_t)(uintptr_t)*pointer;
    if (!uhal_ranges_add(&page_locked, &made)) {
        free(*pointer);
        return uhal_wg_error(UHAL_WG_OUT_OF_MEMORY, "the host has no memory");
    }
    atomic_fetch_add(&uhal_wg.live[UHAL_WG_KIND_PINNED], 1);
    return 0;
}

uhalWgResult uhalWgMemFreeHost(void *pointer) {
    uhal_wg_device *device = uhal_wg_current();
    pinned freed;
    if (!uhal_ranges_remove(&page_locked, (uint64_t)(uintptr_t)pointer, &freed))
        return UHAL_WG_INVALID_VALUE;
    if (device != NULL) {
        pthread_mutex_lock(&device->lock);
        uhal_wg_mirror **place = &device->mirrors;
        while (*place != NULL && (*place)->host != pointer)
            place = &(*place)->next;
        uhal_wg_mirror *mirror = *place;
        if (mirror != NULL)
            *place = mirror->next;
        pthread_mutex_unlock(&device->lock);
        if (mirror != NULL) {
            uhal_wg_release(mirror->buffer);
            uhal_wg.wgpu.wgpuBufferRelease(mirror->staging->buffer);
            free(mirror->staging);
            free(mirror->known);
            free(mirror);
        }
    }
    free(pointer);
    atomic_fetch_sub(&uhal_wg.live[UHAL_WG_KIND_PINNED], 1);
    return 0;
}

/* With the lock: copies the writes of submitted batches' kernels to the host. The host's own writes
 * to other bytes stay. */
static int read_mirror(uhal_wg_device *device, uhal_wg_mirror *mirror) {
    const uint64_t batch = mirror->used;
    if (mirror->read >= batch || batch >= device->batch)
        return 0;
    unsigned char *seen = malloc(mirror->bytes);
    if (seen == NULL)
        return uhal_wg_error(UHAL_WG_OUT_OF_MEMORY, "the host has no memory");
    mirror->read = batch;
    const int status = uhal_wg_read_staging(device, mirror->staging, 0, seen, mirror->bytes);
    for (size_t at = 0; status == 0 && at < mirror->bytes; ++at)
        if (seen[at] != mirror->known[at])
            mirror->host[at] = mirror->known[at] = seen[at];
    free(seen);
    return status;
}

/* With the lock, before a batch is submitted. */
static void encode_mirrors(uhal_wg_device *device) {
    for (uhal_wg_mirror *one = device->mirrors; one != NULL; one = one->next) {
        if (one->used != device->batch)
            continue;
        const WGPUCommandEncoder encoder = uhal_wg_encoder(device);
        if (encoder != NULL)
            uhal_wg.wgpu.wgpuCommandEncoderCopyBufferToBuffer(
                encoder, one->buffer->buffer, 0, one->staging->buffer, 0, one->buffer->bytes);
    }
}

/* Without the lock, after a batch is done. */
static int read_mirrors(uhal_wg_device *device) {
    int status = 0;
    if (device->mirrors == NULL)
        return 0;
    pthread_mutex_lock(&device->lock);
    for (uhal_wg_mirror *one = device->mirrors; one != NULL && status == 0; one = one->next)
        if (one->used <= atomic_load(&device->completed))
            status = read_mirror(device, one);
    pthread_mutex_unlock(&device->lock);
    return status;
}

static int make_mirror(uhal_wg_device *device, const pinned *of, uhal_wg_mirror **made) {
    uhal_wg_mirror *mirror = calloc(1, sizeof *mirror);
    uint64_t address;
    int status = UHAL_WG_OUT_OF_MEMORY;
    if (mirror == NULL)
        return status;
    mirror->host = (unsigned char *)(uintptr_t)of->place.start;
    mirror->bytes = of->place.bytes;
    mirror->known = calloc(1, (mirror->bytes + 3) & ~(size_t)3); /* as a buffer begins */
    if (mirror->known != NULL)
        status = uhal_wg_allocate(device, mirror->bytes, &address);
    if (status == 0) {
        mirror->buffer = uhal_wg_buffer_at(address);
        mirror->staging = uhal_wg_take_staging(device, mirror->bytes + 8);
        if (mirror->staging == NULL) {
            uhal_wg_release(mirror->buffer);
            status = uhal_wg_noted_error();
        }
    }
    if (status != 0) {
        free(mirror->known);
        free(mirror);
        return status;
    }
    mirror->buffer->mirror = mirror;
    mirror->next = device->mirrors;
    device->mirrors = mirror;
    device->encode_mirrors = encode_mirrors;
    device->read_mirrors = read_mirrors;
    *made = mirror;
    return 0;
}

uhalWgResult uhalWgMemHostGetDevicePointer(uint64_t *address, void *pointer) {
    uhal_wg_device *device = uhal_wg_current();
    pinned found;
    if (device == NULL || !uhal_ranges_find(&page_locked, (uint64_t)(uintptr_t)pointer, &found))
        return UHAL_WG_NO_MAPPED_MEMORY;
    int status = 0;
    pthread_mutex_lock(&device->lock);
    uhal_wg_mirror *mirror = device->mirrors;
    while (mirror != NULL && (uint64_t)(uintptr_t)mirror->host != found.place.start)
        mirror = mirror->next;
    if (mirror == NULL)
        status = make_mirror(device, &found, &mirror);
    if (status == 0)
        *address = ((uint64_t)mirror->buffer->number << UHAL_WG_OFFSET_BITS) +
                   ((uint64_t)(uintptr_t)pointer - found.place.start);
    pthread_mutex_unlock(&device->lock);
    return status;
}

int uhal_wg_renew_mirror(uhal_wg_mirror *mirror) {
    uhal_wg_device *device = mirror->buffer->device;
    if (memcmp(mirror->host, mirror->known, mirror->bytes) != 0) {
        /* Kernels may have written since: copy their writes first. */
        int status = mirror->used == device->batch ? uhal_wg_submit(device) : 0;
        if (status == 0)
            status = read_mirror(device, mirror);
        if (status != 0)
            return status;
        memcpy(mirror->known, mirror->host, mirror->bytes);
        uhal_wg.wgpu.wgpuQueueWriteBuffer(device->queue, mirror->buffer->buffer, 0, mirror->known,
                                          (mirror->bytes + 3) & ~(size_t)3);
    }
    return 0;
}

void uhal_wg_use_mirror(uhal_wg_buffer *buffer) {
    if (buffer->mirror != NULL)
        buffer->mirror->used = buffer->device->batch;
}
