#include "queue.h"

#include <stdlib.h>
#include <string.h>

#include "device.h"
#include "fault.h"

enum {
    KERNARG_BYTES = 2 << 20, /* for as many launches of small kernels as the queue has packets */
    UNKNOWN_SEGMENT = -1     /* hsa_queue_create: the size is not known beforehand */
};

/* The signal counts down from here and never reaches 0. */
static const hsa_signal_value_t PROGRESS_START = INT64_MAX / 2;

/* -- marks ------------------------------------------------------------------------------------- */

void uhal_hsa_mark_keep(uhal_hsa_mark *mark) { atomic_fetch_add(&mark->holders, 1); }

void uhal_hsa_mark_drop(void *object) {
    uhal_hsa_mark *mark = object;
    if (mark == NULL || atomic_fetch_sub(&mark->holders, 1) != 1)
        return;
    uhal_hsa_signal_give(mark->signal);
    free(mark);
}

/* Makes a mark behind everything submitted. The caller holds `books`. */
static int add_mark(uhal_hsa_queue *queue, const hsa_signal_t *dependencies, uint32_t count,
                    uhal_hsa_mark **made) {
    uhal_hsa_mark *mark = malloc(sizeof *mark);
    if (mark == NULL)
        return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
    int status = uhal_hsa_signal_take(&mark->signal);
    if (status != 0) {
        free(mark);
        return status;
    }
    uhal_aql_position position;
    status = uhal_aql_barrier(&queue->writer, dependencies, count, mark->signal, &position);
    if (status != 0) {
        uhal_hsa_signal_give(mark->signal);
        free(mark);
        return status;
    }
    mark->queue = queue;
    mark->upto = position.index + 1;
    mark->next = NULL;
    atomic_init(&mark->holders, 2);
    if (queue->first == NULL)
        queue->first = mark;
    else
        queue->last->next = mark;
    queue->last = mark;
    *made = mark;
    return 0;
}

int uhal_hsa_queue_mark(uhal_hsa_queue *queue, const hsa_signal_t *dependencies, uint32_t count,
                        uhal_hsa_mark **mark) {
    uhal_hsa_queue_reap(queue);
    pthread_mutex_lock(&queue->books);
    const int status = add_mark(queue, dependencies, count, mark);
    pthread_mutex_unlock(&queue->books);
    return uhal_hsa_told(queue->device, status);
}

int uhal_hsa_queue_cover(uhal_hsa_queue *queue, uint64_t upto, uhal_hsa_mark **mark) {
    int status = 0;
    *mark = NULL;
    if (uhal_hsa_queue_completed(queue) >= upto)
        return 0;
    uhal_hsa_queue_reap(queue);
    pthread_mutex_lock(&queue->books);
    if (uhal_hsa_queue_completed(queue) < upto) {
        uhal_hsa_mark *found = queue->first;
        while (found != NULL && found->upto < upto)
            found = found->next;
        if (found != NULL) {
            uhal_hsa_mark_keep(found);
            *mark = found;
        } else {
            status = add_mark(queue, NULL, 0, mark);
        }
    }
    pthread_mutex_unlock(&queue->books);
    return uhal_hsa_told(queue->device, status);
}

/* -- completed packets ------------------------------------------------------------------------- */

/* Removes the oldest object whose packets are completed. The caller holds `books`. */
static int take_released(uhal_hsa_queue *queue, uhal_hsa_held *released) {
    if (queue->held_count == 0 ||
        queue->held[queue->held_first].upto > uhal_hsa_queue_completed(queue))
        return 0;
    *released = queue->held[queue->held_first];
    queue->held_first = (queue->held_first + 1) % queue->held_room;
    queue->held_count -= 1;
    return 1;
}

void uhal_hsa_queue_reap(uhal_hsa_queue *queue) {
    uhal_hsa_mark *passed = NULL;
    uhal_hsa_held released;
    pthread_mutex_lock(&queue->books);
    while (queue->first != NULL && uhal_hsa_signal_done(queue->first->signal)) {
        uhal_hsa_mark *mark = queue->first;
        atomic_store_explicit(&queue->completed, mark->upto, memory_order_release);
        queue->first = mark->next;
        mark->next = passed;
        passed = mark;
    }
    if (passed != NULL)
        uhal_aql_completed(&queue->writer, passed->upto);
    /* Unlock first, because a release function may take other locks. */
    while (take_released(queue, &released)) {
        pthread_mutex_unlock(&queue->books);
        released.release(released.object);
        pthread_mutex_lock(&queue->books);
    }
    pthread_mutex_unlock(&queue->books);
    while (passed != NULL) {
        uhal_hsa_mark *next = passed->next;
        uhal_hsa_mark_drop(passed);
        passed = next;
    }
}

static int grow_held(uhal_hsa_queue *queue) {
    const size_t room = queue->held_room == 0 ? 64 : 2 * queue->held_room;
    uhal_hsa_held *grown = malloc(room * sizeof *grown);
    if (grown == NULL)
        return 0;
    for (size_t i = 0; i < queue->held_count; ++i)
        grown[i] = queue->held[(queue->held_first + i) % queue->held_room];
    free(queue->held);
    queue->held = grown;
    queue->held_first = 0;
    queue->held_room = room;
    return 1;
}

void uhal_hsa_queue_hold(uhal_hsa_queue *queue, uint64_t upto, void (*release)(void *object),
                         void *object) {
    pthread_mutex_lock(&queue->books);
    /* If there is no memory for this entry, the object leaks, because the device may still use
     * it. */
    if (queue->held_count < queue->held_room || grow_held(queue)) {
        const uhal_hsa_held held = {upto, release, object};
        queue->held[(queue->held_first + queue->held_count) % queue->held_room] = held;
        queue->held_count += 1;
    }
    pthread_mutex_unlock(&queue->books);
}

int uhal_hsa_queue_is_forsaken(uhal_hsa_queue *queue) {
    int forsaken = 0;
    pthread_mutex_lock(&queue->books);
    for (size_t i = 0; i < queue->held_count && !forsaken; ++i) {
        const uhal_hsa_held *held = &queue->held[(queue->held_first + i) % queue->held_room];
        if (held->release != uhal_hsa_mark_drop)
            continue;
        const uhal_hsa_mark *awaited = held->object;
        forsaken = atomic_load(&awaited->queue->device->lost) != 0 &&
                   !uhal_hsa_signal_done(awaited->signal);
    }
    pthread_mutex_unlock(&queue->books);
    return forsaken;
}

uint64_t uhal_hsa_queue_launches_done(uhal_hsa_queue *queue) {
    return (uint64_t)(PROGRESS_START - uhal_hsa.hsa.hsa_signal_load_scacquire(queue->progress));
}

/* -- life -------------------------------------------------------------------------------------- */

static void destroy_signals(const hsa_signal_t *signals, int count) {
    for (int i = 0; i < count; ++i)
        uhal_hsa.hsa.hsa_signal_destroy(signals[i]);
}

/* The signals that close pieces of argument memory. */
static hsa_status_t make_signals(hsa_signal_t *signals) {
    for (int i = 0; i < UHAL_AQL_PIECES; ++i) {
        const hsa_status_t status = uhal_hsa.hsa.hsa_signal_create(1, 0, NULL, &signals[i]);
        if (status != HSA_STATUS_SUCCESS) {
            destroy_signals(signals, i);
            return status;
        }
    }
    return HSA_STATUS_SUCCESS;
}

hsa_status_t uhal_hsa_kernarg_allocate(const uhal_hsa_device *device, size_t bytes, void **memory) {
    const hsa_amd_memory_pool_t pool = {device->info.kernarg_pool};
    hsa_status_t status = uhal_hsa.hsa.hsa_amd_memory_pool_allocate(pool, bytes, 0, memory);
    if (status != HSA_STATUS_SUCCESS)
        return status;
    status = uhal_hsa.hsa.hsa_amd_agents_allow_access(1, &device->agent, NULL, *memory);
    if (status != HSA_STATUS_SUCCESS) {
        uhal_hsa.hsa.hsa_amd_memory_pool_free(*memory);
        *memory = NULL;
    }
    return status;
}

static hsa_status_t make_native(uhal_hsa_queue *queue) {
    uhal_hsa_device *device = queue->device;
    hsa_status_t status = uhal_hsa.hsa.hsa_queue_create(
        device->agent, device->info.queue_packets, HSA_QUEUE_TYPE_MULTI, uhal_hsa_queue_failed,
        queue, (uint32_t)UNKNOWN_SEGMENT, (uint32_t)UNKNOWN_SEGMENT, &queue->native);
    if (status != HSA_STATUS_SUCCESS || !atomic_load(&device->timed))
        return status;
    status = uhal_hsa.hsa.hsa_amd_profiling_set_profiler_enabled(queue->native, 1);
    if (status != HSA_STATUS_SUCCESS)
        uhal_hsa.hsa.hsa_queue_destroy(queue->native);
    return status;
}

static hsa_status_t make_parts(uhal_hsa_queue *queue) {
    hsa_signal_t closed[UHAL_AQL_PIECES];
    hsa_status_t status = make_signals(closed);
    if (status != HSA_STATUS_SUCCESS)
        return status;
    /* No thread sleeps on this signal, so a launch needs no interrupt. */
    status = uhal_hsa.hsa.hsa_amd_signal_create(PROGRESS_START, 0, NULL,
                                                HSA_AMD_SIGNAL_AMD_GPU_ONLY, &queue->progress);
    if (status != HSA_STATUS_SUCCESS)
        goto no_progress;
    status = uhal_hsa_kernarg_allocate(queue->device, KERNARG_BYTES, &queue->kernarg);
    if (status != HSA_STATUS_SUCCESS)
        goto no_kernarg;
    status = make_native(queue);
    if (status != HSA_STATUS_SUCCESS)
        goto no_native;
    status = (hsa_status_t)uhal_aql_open(&queue->writer, &uhal_hsa.hsa, queue->native,
                                         queue->kernarg, KERNARG_BYTES, closed,
                                         uhal_hsa.settings.deadline_ns, uhal_hsa.slice_ticks);
    if (status == HSA_STATUS_SUCCESS)
        return status;
    uhal_hsa.hsa.hsa_queue_destroy(queue->native);
no_native:
    uhal_hsa.hsa.hsa_amd_memory_pool_free(queue->kernarg);
no_kernarg:
    uhal_hsa.hsa.hsa_signal_destroy(queue->progress);
no_progress:
    destroy_signals(closed, UHAL_AQL_PIECES);
    return status;
}

hsa_status_t uhal_hsa_queue_open(uhal_hsa_device *device, uhal_hsa_queue **opened) {
    uhal_hsa_queue *queue = calloc(1, sizeof *queue);
    if (queue == NULL)
        return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
    queue->device = device;
    pthread_mutex_init(&queue->books, NULL);
    pthread_mutex_init(&queue->callback_lock, NULL);
    const hsa_status_t status = make_parts(queue);
    if (status == HSA_STATUS_SUCCESS)
        *opened = queue;
    else
        free(queue);
    return status;
}

void uhal_hsa_queue_close(uhal_hsa_queue *queue) {
    uhal_hsa.hsa.hsa_queue_destroy(queue->native);
    destroy_signals(queue->writer.closed, UHAL_AQL_PIECES);
    uhal_aql_close(&queue->writer);
    uhal_hsa.hsa.hsa_amd_memory_pool_free(queue->kernarg);
    uhal_hsa.hsa.hsa_signal_destroy(queue->progress);
    pthread_mutex_destroy(&queue->books);
    pthread_mutex_destroy(&queue->callback_lock);
    free(queue->held);
    free(queue);
}
