/* Device memory: buffers by their numbers, and buffers that the host reads. */
#include "memory.h"
#include "group.h"

#include <stdlib.h>
#include <string.h>

/* -- numbers ----------------------------------------------------------------------------------- */

static pthread_mutex_t numbers_lock = PTHREAD_MUTEX_INITIALIZER;
_Atomic(uhal_wg_buffer *) uhal_wg_chunks[UHAL_WG_MOST_CHUNKS];
static uint32_t numbers_used = 1; /* 0 stands for null */
static uint32_t first_free;

static uhal_wg_buffer *buffer_of(uint32_t number) {
    uhal_wg_buffer *chunk = atomic_load(&uhal_wg_chunks[number / UHAL_WG_CHUNK]);
    return chunk == NULL ? NULL : &chunk[number % UHAL_WG_CHUNK];
}

static uhal_wg_buffer *take_number(void) {
    uhal_wg_buffer *taken = NULL;
    pthread_mutex_lock(&numbers_lock);
    if (first_free != 0) {
        taken = buffer_of(first_free);
        first_free = taken->next_free;
    } else if (numbers_used < (uint32_t)UHAL_WG_CHUNK * UHAL_WG_MOST_CHUNKS) {
        const uint32_t number = numbers_used;
        if (buffer_of(number) == NULL)
            atomic_store(&uhal_wg_chunks[number / UHAL_WG_CHUNK],
                         calloc(UHAL_WG_CHUNK, sizeof *taken));
        taken = buffer_of(number);
        if (taken != NULL) {
            taken->number = number;
            numbers_used += 1;
        }
    }
    pthread_mutex_unlock(&numbers_lock);
    return taken;
}

static void give_number(uhal_wg_buffer *one) {
    pthread_mutex_lock(&numbers_lock);
    one->device = NULL;
    one->next_free = first_free;
    first_free = one->number;
    pthread_mutex_unlock(&numbers_lock);
}

/* -- device memory ----------------------------------------------------------------------------- */

WGPUBuffer uhal_wg_new_buffer(uhal_wg_device *device, uint64_t bytes, uint64_t usage) {
    uhal_wg_clear_error();
    if (bytes > device->info.max_buffer_bytes) {
        uhal_wg_error(UHAL_WG_OUT_OF_MEMORY, "a buffer has at most %llu bytes here",
                      (unsigned long long)device->info.max_buffer_bytes);
        return NULL;
    }
    const WGPUBufferDescriptor descriptor = {.usage = usage, .size = (bytes + 3) & ~(uint64_t)3};
    const WGPUBuffer made = uhal_wg.wgpu.wgpuDeviceCreateBuffer(device->device, &descriptor);
    if (uhal_wg_noted_error() == 0)
        return made;
    if (made != NULL)
        uhal_wg.wgpu.wgpuBufferRelease(made);
    return NULL;
}

int uhal_wg_allocate(uhal_wg_device *device, size_t bytes, uint64_t *address) {
    const int status = uhal_wg_check_lost(device);
    if (status != 0)
        return status;
    uhal_wg_buffer *made = take_number();
    if (made == NULL)
        return uhal_wg_error(UHAL_WG_OUT_OF_MEMORY, "there are no more buffers");
    made->buffer = uhal_wg_new_buffer(
        device, bytes, WGPUBufferUsage_Storage | WGPUBufferUsage_CopySrc | WGPUBufferUsage_CopyDst);
    if (made->buffer == NULL) {
        give_number(made);
        return uhal_wg_noted_error();
    }
    made->bytes = (bytes + 3) & ~(uint64_t)3;
    made->mirror = NULL;
    atomic_store(&made->is_grouped, false);
    made->device = device;
    atomic_fetch_add(&device->allocated, bytes);
    *address = (uint64_t)made->number << UHAL_WG_OFFSET_BITS;
    return 0;
}

void uhal_wg_release(uhal_wg_buffer *one) {
    uhal_wg_device *device = one->device;
    if (atomic_load(&one->is_grouped)) {
        pthread_mutex_lock(&device->lock);
        uhal_wg_forget_groups(device, one);
        pthread_mutex_unlock(&device->lock);
    }
    atomic_fetch_sub(&device->allocated, one->bytes);
    /* Pending commands hold the buffer. */
    uhal_wg.wgpu.wgpuBufferRelease(one->buffer);
    give_number(one);
}

uhalWgResult uhalWgMemAlloc(uint64_t *address, size_t bytes) {
    uhal_wg_device *device = uhal_wg_current();
    if (device == NULL)
        return UHAL_WG_INVALID_VALUE;
    const int status = uhal_wg_allocate(device, bytes, address);
    if (status == 0)
        atomic_fetch_add(&uhal_wg.live[UHAL_WG_KIND_ALLOCATION], 1);
    return status;
}

uhalWgResult uhalWgMemFree(uint64_t address) {
    uhal_wg_buffer *freed = uhal_wg_buffer_at(address);
    if (freed == NULL)
        return UHAL_WG_INVALID_VALUE;
    atomic_fetch_sub(&uhal_wg.live[UHAL_WG_KIND_ALLOCATION], 1);
    uhal_wg_release(freed);
    return 0;
}

int uhal_wg_make_nothing(uhal_wg_device *device) {
    enum { BYTES = 256 };
    device->nothing = calloc(1, sizeof *device->nothing);
    if (device->nothing == NULL)
        return uhal_wg_error(UHAL_WG_OUT_OF_MEMORY, "the host has no memory");
    device->nothing->device = device;
    device->nothing->bytes = BYTES;
    device->nothing->buffer = uhal_wg_new_buffer(device, BYTES, WGPUBufferUsage_Storage);
    return device->nothing->buffer != NULL ? 0 : uhal_wg_noted_error();
}

void uhal_wg_release_nothing(uhal_wg_device *device) {
    uhal_wg.wgpu.wgpuBufferRelease(device->nothing->buffer);
    free(device->nothing);
}

/* -- buffers that the host reads --------------------------------------------------------------- */

uhal_wg_staging *uhal_wg_take_staging(uhal_wg_device *device, uint64_t bytes) {
    uhal_wg_staging **best = NULL;
    for (uhal_wg_staging **one = &device->staging; *one != NULL; one = &(*one)->next)
        if ((*one)->bytes >= bytes && (best == NULL || (*one)->bytes < (*best)->bytes))
            best = one;
    if (best != NULL) {
        uhal_wg_staging *taken = *best;
        *best = taken->next;
        return taken;
    }
    uint64_t room = 65536;
    while (room < bytes)
        room *= 2;
    uhal_wg_staging *made = calloc(1, sizeof *made);
    if (made == NULL)
        return NULL;
    made->bytes = room;
    made->buffer =
        uhal_wg_new_buffer(device, room, WGPUBufferUsage_MapRead | WGPUBufferUsage_CopyDst);
    if (made->buffer == NULL) {
        free(made);
        return NULL;
    }
    return made;
}

void uhal_wg_give_staging(uhal_wg_device *device, uhal_wg_staging *one) {
    one->next = device->staging;
    device->staging = one;
}

void uhal_wg_release_staging(uhal_wg_device *device) {
    while (device->staging != NULL) {
        uhal_wg_staging *one = device->staging;
        device->staging = one->next;
        uhal_wg.wgpu.wgpuBufferRelease(one->buffer);
        free(one);
    }
}

static void on_mapped(uint32_t status, WGPUStringView message, void *flag, void *userdata2) {
    (void)message;
    (void)userdata2;
    atomic_store((atomic_int *)flag, (int)status);
}

int uhal_wg_read_staging(uhal_wg_device *device, const uhal_wg_staging *one, uint64_t offset,
                         void *destination, size_t bytes) {
    atomic_int mapped = 0;
    const size_t end = (size_t)((offset + bytes + 7) & ~(uint64_t)7);
    uhal_wg_clear_error();
    uhal_wg.wgpu.wgpuBufferMapAsync(
        one->buffer, WGPUMapMode_Read, 0, end,
        (WGPUBufferMapCallbackInfo){.mode = WGPUCallbackMode_AllowSpontaneous,
                                    .callback = on_mapped,
                                    .userdata1 = &mapped});
    const int status = uhal_wg_wait_flag(device, &mapped);
    if (status != 0)
        return status;
    if (atomic_load(&mapped) != WGPUMapAsyncStatus_Success)
        return uhal_wg_noted_error() != 0
                   ? uhal_wg_noted_error()
                   : uhal_wg_error(UHAL_WG_INTERNAL, "a buffer could not be mapped");
    const unsigned char *data = uhal_wg.wgpu.wgpuBufferGetConstMappedRange(one->buffer, 0, end);
    memcpy(destination, data + offset, bytes);
    uhal_wg.wgpu.wgpuBufferUnmap(one->buffer);
    return 0;
}
