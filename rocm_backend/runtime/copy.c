#include "copy.h"

#include <stdlib.h>

#include "fault.h"
#include "wait.h"

int uhal_hsa_copy_wait(uhal_hsa_copy *copy) {
    int status = 0;
    for (uint32_t i = 0; i < copy->count && status == 0; ++i)
        status = uhal_hsa_wait(copy->device, copy->signals[i]);
    return status;
}

/* Starts a part, whose signal becomes the copy's newest signal. */
static hsa_status_t start(uhal_hsa_copy *copy, const uhal_hsa_part *part, int chained) {
    hsa_signal_t signal;
    hsa_signal_t awaited;
    uint32_t awaited_count = 0;
    if (chained && copy->count > 0) {
        awaited = copy->signals[copy->count - 1];
        awaited_count = 1;
    } else if (copy->before != NULL) {
        awaited = copy->before->signal;
        awaited_count = 1;
    }
    hsa_status_t status = uhal_hsa_signal_take(&signal);
    if (status != HSA_STATUS_SUCCESS)
        return status;
    status = uhal_hsa.hsa.hsa_amd_memory_async_copy(
        (void *)(uintptr_t)part->destination, part->destination_agent,
        (const void *)(uintptr_t)part->source, part->source_agent, part->bytes, awaited_count,
        awaited_count != 0 ? &awaited : NULL, signal);
    if (status != HSA_STATUS_SUCCESS) {
        uhal_hsa_signal_give(signal);
        return status;
    }
    copy->bytes += part->bytes;
    copy->signals[copy->count++] = signal;
    return status;
}

static int submit(uhal_hsa_stream *stream, uhal_hsa_copy *copy, const uhal_hsa_part *parts,
                  uint32_t count, int chained) {
    uhal_hsa_queue *queue = stream->queue;
    uhal_hsa_mark *after = NULL;
    int status = uhal_hsa_queue_cover(queue, atomic_load(&stream->upto), &copy->before);
    for (uint32_t i = 0; i < count && status == 0; ++i)
        status = (int)start(copy, &parts[i], chained);
    if (status == 0) {
        /* A chain is done when its last part is done. */
        const uint32_t first = chained ? copy->count - 1 : 0;
        status = uhal_hsa_queue_mark(queue, copy->signals + first, copy->count - first, &after);
    }
    if (status != 0) {
        /* Started copies must finish first: a caller may free their memory. */
        const int waited = uhal_hsa_copy_wait(copy);
        return waited != 0 ? waited : status;
    }
    uhal_hsa_stream_advance(stream, after->upto);
    uhal_hsa_queue_hold(queue, after->upto, uhal_hsa_copy_drop, copy);
    uhal_hsa_mark_drop(after);
    return 0;
}

int uhal_hsa_copy_submit(uhal_hsa_stream *stream, const uhal_hsa_part *parts, uint32_t count,
                         int chained, uhal_hsa_freight freight, uhal_hsa_copy **kept) {
    uhal_hsa_device *device = stream->queue->device;
    uhal_hsa_copy *copy = calloc(1, sizeof *copy);
    if (copy == NULL) {
        if (freight.piece != NULL)
            uhal_hsa_piece_give(device, freight.piece);
        if (freight.pinned != NULL)
            uhal_hsa.hsa.hsa_amd_memory_pool_free(freight.pinned);
        return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
    }
    copy->device = device;
    copy->piece = freight.piece;
    copy->pinned = freight.pinned;
    copy->peer = freight.peer;
    atomic_init(&copy->holders, kept != NULL ? 2 : 1);
    uhal_hsa_copy_list(copy);
    int status = uhal_hsa_check(device);
    if (status == 0)
        status = submit(stream, copy, parts, count, chained);
    if (status == 0) {
        if (kept != NULL)
            *kept = copy;
        return 0;
    }
    /* Memory that a lost device may still use is not freed. */
    if (status < UHAL_HSA_LOST)
        uhal_hsa_copy_free(copy);
    return status;
}
