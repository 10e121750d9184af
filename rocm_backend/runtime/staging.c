#include "staging.h"

#include <stdlib.h>

hsa_status_t uhal_hsa_pinned_allocate(const uhal_hsa_device *device, size_t bytes, void **memory) {
    const hsa_amd_memory_pool_t pool = {device->info.pinned_pool};
    hsa_agent_t agents[UHAL_HSA_MAX_DEVICES];
    const uint32_t count = uhal_hsa.settings.agent_count;
    hsa_status_t status = uhal_hsa.hsa.hsa_amd_memory_pool_allocate(pool, bytes, 0, memory);
    if (status == HSA_STATUS_ERROR_INVALID_ALLOCATION)
        return HSA_STATUS_ERROR_OUT_OF_RESOURCES; /* larger than the pool's largest allocation */
    if (status != HSA_STATUS_SUCCESS)
        return status;
    for (uint32_t i = 0; i < count; ++i)
        agents[i].handle = uhal_hsa.settings.agents[i];
    status = uhal_hsa.hsa.hsa_amd_agents_allow_access(count, agents, NULL, *memory);
    if (status != HSA_STATUS_SUCCESS)
        uhal_hsa.hsa.hsa_amd_memory_pool_free(*memory);
    return status;
}

static int size_of(size_t bytes) { return bytes > UHAL_HSA_SMALL_PIECE; }

hsa_status_t uhal_hsa_piece_take(uhal_hsa_device *device, size_t bytes, uhal_hsa_piece **piece) {
    static const size_t SIZES[] = {UHAL_HSA_SMALL_PIECE, UHAL_HSA_LARGE_PIECE};
    const int size = size_of(bytes);
    pthread_mutex_lock(&device->lock);
    uhal_hsa_piece *found = device->pieces[size];
    if (found != NULL)
        device->pieces[size] = found->next;
    pthread_mutex_unlock(&device->lock);
    if (found == NULL) {
        void *memory;
        found = malloc(sizeof *found);
        if (found == NULL)
            return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
        const hsa_status_t status = uhal_hsa_pinned_allocate(device, SIZES[size], &memory);
        if (status != HSA_STATUS_SUCCESS) {
            free(found);
            return status;
        }
        found->memory = memory;
        found->bytes = SIZES[size];
    }
    *piece = found;
    return HSA_STATUS_SUCCESS;
}

void uhal_hsa_piece_give(uhal_hsa_device *device, uhal_hsa_piece *piece) {
    const int size = size_of(piece->bytes);
    pthread_mutex_lock(&device->lock);
    piece->next = device->pieces[size];
    device->pieces[size] = piece;
    pthread_mutex_unlock(&device->lock);
}

void uhal_hsa_staging_drop(uhal_hsa_device *device) {
    for (int size = 0; size < 2; ++size)
        while (device->pieces[size] != NULL) {
            uhal_hsa_piece *piece = device->pieces[size];
            device->pieces[size] = piece->next;
            uhal_hsa.hsa.hsa_amd_memory_pool_free(piece->memory);
            free(piece);
        }
}
