#include "copy_list.h"

#include <stdio.h>
#include <stdlib.h>

void uhal_hsa_copy_list(uhal_hsa_copy *copy) {
    uhal_hsa_device *device = copy->device;
    pthread_mutex_lock(&device->lock);
    copy->previous = NULL;
    copy->next = device->copies;
    if (copy->next != NULL)
        copy->next->previous = copy;
    device->copies = copy;
    pthread_mutex_unlock(&device->lock);
}

static void unlist(uhal_hsa_copy *copy) {
    uhal_hsa_device *device = copy->device;
    pthread_mutex_lock(&device->lock);
    if (copy->previous != NULL)
        copy->previous->next = copy->next;
    else
        device->copies = copy->next;
    if (copy->next != NULL)
        copy->next->previous = copy->previous;
    pthread_mutex_unlock(&device->lock);
}

int uhal_hsa_copies_failed(uhal_hsa_device *device, char *words, size_t bytes) {
    int code = 0;
    pthread_mutex_lock(&device->lock);
    for (const uhal_hsa_copy *copy = device->copies; copy != NULL && code == 0; copy = copy->next) {
        for (uint32_t i = 0; i < copy->count; ++i)
            if (uhal_hsa.hsa.hsa_signal_load_scacquire(copy->signals[i]) < 0)
                code = UHAL_HSA_LOST_COPY;
        if (code == 0 && copy->peer != NULL && atomic_load(&copy->peer->lost) != 0)
            code = UHAL_HSA_LOST_PEER;
        if (code != 0)
            snprintf(words, bytes, "it was copying %zu bytes", copy->bytes);
    }
    pthread_mutex_unlock(&device->lock);
    return code;
}

void uhal_hsa_copy_free(uhal_hsa_copy *copy) {
    unlist(copy);
    for (uint32_t i = 0; i < copy->count; ++i)
        uhal_hsa_signal_give(copy->signals[i]);
    if (copy->piece != NULL)
        uhal_hsa_piece_give(copy->device, copy->piece);
    if (copy->pinned != NULL)
        uhal_hsa.hsa.hsa_amd_memory_pool_free(copy->pinned);
    uhal_hsa_mark_drop(copy->before);
    free(copy);
}

void uhal_hsa_copy_drop(void *object) {
    uhal_hsa_copy *copy = object;
    if (atomic_fetch_sub(&copy->holders, 1) == 1)
        uhal_hsa_copy_free(copy);
}
