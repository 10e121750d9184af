/* Device memory and pinned host memory, and the devices that may use them besides their owner. */
#include "fault.h"
#include "peers.h"
#include "ranges.h"
#include "staging.h"

static uint64_t bit_of(const uhal_hsa_device *device) {
    return (uint64_t)1 << device->info.ordinal;
}

static hsa_status_t free_native(void *pointer) {
    return uhal_hsa.hsa.hsa_amd_memory_pool_free(pointer);
}

/* -- access ------------------------------------------------------------------------------------ */

hsa_status_t uhal_hsa_let_all_in(const void *start, uint64_t peers) {
    hsa_agent_t agents[UHAL_HSA_MAX_DEVICES];
    uint32_t count = 0;
    for (uint32_t ordinal = 0; ordinal < UHAL_HSA_MAX_DEVICES; ++ordinal) {
        const uhal_hsa_device *device = uhal_hsa_device_numbered(ordinal);
        if (device != NULL && (peers & bit_of(device)) != 0)
            agents[count++] = device->agent;
    }
    /* The list replaces the previous list. */
    return count == 0 ? HSA_STATUS_SUCCESS
                      : uhal_hsa.hsa.hsa_amd_agents_allow_access(count, agents, NULL, start);
}

hsa_status_t uhal_hsa_let_in(uhal_hsa_device *device, uint64_t address) {
    uhal_hsa_range range;
    if (!uhal_hsa_ranges_find(address, &range) || range.pinned || range.device == device ||
        (range.peers & bit_of(device)) != 0)
        return HSA_STATUS_SUCCESS;
    const hsa_status_t status = uhal_hsa_let_all_in((const void *)(uintptr_t)range.place.start,
                                                    range.peers | bit_of(device));
    if (status == HSA_STATUS_SUCCESS)
        uhal_hsa_ranges_let_in(range.place.start, bit_of(device));
    return status;
}

uhalHsaResult uhalHsaMemAllowAccess(void *context, void *peer) {
    uhal_hsa_device *device = context;
    uhal_hsa_device *owner = peer;
    uhal_hsa_range range;
    uint64_t next = 0;
    /* Later allocations grant access to all peers. */
    atomic_fetch_or(&owner->peers, bit_of(device));
    while (uhal_hsa_ranges_next(owner, &next, &range)) {
        const int status = (int)uhal_hsa_let_in(device, range.place.start);
        if (status != 0)
            return status;
    }
    return 0;
}

uhalHsaResult uhalHsaMemGetDevice(uint64_t *agent, uint64_t address) {
    uhal_hsa_range range;
    hsa_amd_pointer_info_t info = {.size = sizeof info};
    *agent = 0;
    if (uhal_hsa_ranges_find(address, &range)) {
        *agent = range.owner.handle;
        return 0;
    }
    const int status = (int)uhal_hsa.hsa.hsa_amd_pointer_info((const void *)(uintptr_t)address,
                                                              &info, NULL, NULL, NULL);
    if (status == 0 && info.type != HSA_EXT_POINTER_TYPE_UNKNOWN)
        *agent = info.agentOwner.handle;
    return status;
}

/* -- device memory ----------------------------------------------------------------------------- */

/* Gives all devices that use this device's memory access, and notes the allocation. After a
 * failure, the caller frees the memory. */
static hsa_status_t settle(uhal_hsa_device *device, void *pointer, size_t bytes) {
    const uint64_t peers = atomic_load(&device->peers);
    const uhal_hsa_range range = {
        .place = {(uint64_t)(uintptr_t)pointer, bytes},
        .owner = device->info.device_pool_is_host ? device->host : device->agent,
        .device = device,
        .peers = peers,
    };
    const uint64_t let_in = device->info.device_pool_is_host ? peers | bit_of(device) : peers;
    const hsa_status_t status = uhal_hsa_let_all_in(pointer, let_in);
    return status == HSA_STATUS_SUCCESS ? uhal_hsa_ranges_add(&range) : status;
}

uhalHsaResult uhalHsaMemAlloc(uint64_t *address, size_t bytes) {
    uhal_hsa_device *device = uhal_hsa_current();
    if (device == NULL)
        return HSA_STATUS_ERROR_INVALID_AGENT;
    int status = uhal_hsa_check(device);
    if (status != 0)
        return status;
    const hsa_amd_memory_pool_t pool = {device->info.device_pool};
    void *pointer;
    status = (int)uhal_hsa.hsa.hsa_amd_memory_pool_allocate(pool, bytes, 0, &pointer);
    if (status == HSA_STATUS_ERROR_INVALID_ALLOCATION)
        return HSA_STATUS_ERROR_OUT_OF_RESOURCES; /* larger than the pool's largest allocation */
    if (status != 0)
        return status;
    status = (int)settle(device, pointer, bytes);
    if (status != 0) {
        free_native(pointer);
        return status;
    }
    atomic_fetch_add(&device->allocated, bytes);
    atomic_fetch_add(&uhal_hsa.live[UHAL_HSA_KIND_ALLOCATION], 1);
    *address = (uint64_t)(uintptr_t)pointer;
    return 0;
}

uhalHsaResult uhalHsaMemFree(uint64_t address) {
    uhal_hsa_device *device = uhal_hsa_current();
    uhal_hsa_range range;
    if (!uhal_hsa_ranges_remove(address, &range))
        return HSA_STATUS_ERROR_INVALID_ALLOCATION;
    if (device == range.device)
        atomic_fetch_sub(&device->allocated, range.place.bytes);
    atomic_fetch_sub(&uhal_hsa.live[UHAL_HSA_KIND_ALLOCATION], 1);
    return (int)free_native((void *)(uintptr_t)address);
}

/* -- pinned host memory ------------------------------------------------------------------------ */

uhalHsaResult uhalHsaMemHostAlloc(void **pointer, size_t bytes, unsigned int flags) {
    (void)flags; /* every GPU accesses it directly */
    uhal_hsa_device *device = uhal_hsa_current();
    if (device == NULL)
        return HSA_STATUS_ERROR_INVALID_AGENT;
    int status = uhal_hsa_check(device);
    if (status == 0)
        status = (int)uhal_hsa_pinned_allocate(device, bytes, pointer);
    if (status != 0)
        return status;
    const uhal_hsa_range range = {
        .place = {(uint64_t)(uintptr_t)*pointer, bytes},
        .owner = device->host,
        .device = device,
        .pinned = 1,
    };
    status = (int)uhal_hsa_ranges_add(&range);
    if (status != 0) {
        free_native(*pointer);
        return status;
    }
    atomic_fetch_add(&uhal_hsa.live[UHAL_HSA_KIND_PINNED], 1);
    return 0;
}

uhalHsaResult uhalHsaMemFreeHost(void *pointer) {
    uhal_hsa_range range;
    if (!uhal_hsa_ranges_remove((uint64_t)(uintptr_t)pointer, &range))
        return HSA_STATUS_ERROR_INVALID_ALLOCATION;
    atomic_fetch_sub(&uhal_hsa.live[UHAL_HSA_KIND_PINNED], 1);
    return (int)free_native(pointer);
}
