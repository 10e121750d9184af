/* Buffers by their numbers. */
#ifndef UHAL_WG_MEMORY_H
#define UHAL_WG_MEMORY_H

#include "device.h"

/* One allocation. Its address is stable while its number is in use. */
typedef struct uhal_wg_buffer {
    uhal_wg_device *device; /* null: the number is free */
    WGPUBuffer buffer;
    uint64_t bytes;
    uint32_t number;
    uint32_t next_free;
    atomic_bool is_grouped;        /* true: a kept bind group has the buffer */
    struct uhal_wg_mirror *mirror; /* of page-locked memory */
} uhal_wg_buffer;

/* An idle buffer that the host reads. */
typedef struct uhal_wg_staging {
    struct uhal_wg_staging *next;
    WGPUBuffer buffer;
    uint64_t bytes;
} uhal_wg_staging;

enum { UHAL_WG_CHUNK = 1024, UHAL_WG_MOST_CHUNKS = 1 << 14 };
/* All buffers by their numbers; memory of a chunk is never freed. */
extern _Atomic(uhal_wg_buffer *) uhal_wg_chunks[UHAL_WG_MOST_CHUNKS];

/* The buffer that holds an address, null for none. Inline, because launches call it. */
static inline uhal_wg_buffer *uhal_wg_buffer_at(uint64_t address) {
    const uint64_t number = address >> UHAL_WG_OFFSET_BITS;
    if (number == 0 || number >= (uint64_t)UHAL_WG_CHUNK * UHAL_WG_MOST_CHUNKS)
        return NULL;
    uhal_wg_buffer *chunk = atomic_load(&uhal_wg_chunks[number / UHAL_WG_CHUNK]);
    if (chunk == NULL)
        return NULL;
    uhal_wg_buffer *found = &chunk[number % UHAL_WG_CHUNK];
    return found->device == NULL ? NULL : found;
}

/* Allocate a buffer with a number, and get its address; release a buffer. */
int uhal_wg_allocate(uhal_wg_device *device, size_t bytes, uint64_t *address);
void uhal_wg_release(uhal_wg_buffer *one);

/* Makes a buffer without a number; returns null after an error, which is noted. */
WGPUBuffer uhal_wg_new_buffer(uhal_wg_device *device, uint64_t bytes, uint64_t usage);

/* The buffer that a null pointer is bound to. */
int uhal_wg_make_nothing(uhal_wg_device *device);
void uhal_wg_release_nothing(uhal_wg_device *device);

/* With the device's lock: takes an idle buffer of at least `bytes` bytes; returns it. */
uhal_wg_staging *uhal_wg_take_staging(uhal_wg_device *device, uint64_t bytes);
void uhal_wg_give_staging(uhal_wg_device *device, uhal_wg_staging *one);
void uhal_wg_release_staging(uhal_wg_device *device);

/* Waits until a staging buffer that a submitted batch writes can be read; copies from it. */
int uhal_wg_read_staging(uhal_wg_device *device, const uhal_wg_staging *one, uint64_t offset,
                         void *destination, size_t bytes);

#endif
