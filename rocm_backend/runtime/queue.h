/* A queue of a device, and how many of its packets are known to be done. Packets of a queue run
 * strictly in order. So one mark, a barrier with its own signal, shows that all earlier packets are
 * done and that the host sees their writes. Positions are counts: the packet at index i is done
 * when `completed` > i.
 *
 * Any thread may call every function, but only the device opens and closes queues.
 */
#ifndef UHAL_HSA_QUEUE_H
#define UHAL_HSA_QUEUE_H

#include "aql.h"
#include "process.h"

struct uhal_hsa_device;
struct uhal_hsa_callback;

/* A barrier whose signal tells when it is passed. A mark is held by the queue until the barrier is
 * passed, by events, and by packets of other queues that wait for the mark. */
typedef struct uhal_hsa_mark {
    struct uhal_hsa_queue *queue;
    hsa_signal_t signal;
    uint64_t upto; /* packets of the queue up to and including this one */
    atomic_uint holders;
    struct uhal_hsa_mark *next;
} uhal_hsa_mark;

/* An object that packets up to `upto` use. */
typedef struct uhal_hsa_held {
    uint64_t upto;
    void (*release)(void *object);
    void *object;
} uhal_hsa_held;

typedef struct uhal_hsa_queue {
    uhal_aql_writer writer;
    struct uhal_hsa_device *device;
    hsa_queue_t *native;
    void *kernarg;
    hsa_signal_t progress; /* counted down by each launch, from UHAL_HSA_PROGRESS_START */
    uint32_t streams;      /* streams of the queue; under the device's lock */

    pthread_mutex_t books; /* over the fields below */
    uhal_hsa_mark *first;  /* marks not known to be passed, in order */
    uhal_hsa_mark *last;
    uhal_hsa_held *held; /* a ring, in order */
    size_t held_first;
    size_t held_count;
    size_t held_room;
    _Atomic uint64_t completed;

    pthread_mutex_t callback_lock;
    struct uhal_hsa_callback *first_callback; /* callbacks that are not called yet, in order */
    struct uhal_hsa_callback *last_callback;
} uhal_hsa_queue;

/* Allocates memory the device reads arguments from; hsa_amd_memory_pool_free frees it. */
hsa_status_t uhal_hsa_kernarg_allocate(const struct uhal_hsa_device *device, size_t bytes,
                                       void **memory);

/* Makes a queue of the device. Returns a hsa_status_t. */
hsa_status_t uhal_hsa_queue_open(struct uhal_hsa_device *device, uhal_hsa_queue **queue);

/* Destroys a queue with nothing pending. */
void uhal_hsa_queue_close(uhal_hsa_queue *queue);

/* Puts a mark behind everything submitted, and holds it for the caller. The mark also waits for the
 * signals in `dependencies`. Waits while the queue is full. */
int uhal_hsa_queue_mark(uhal_hsa_queue *queue, const hsa_signal_t *dependencies, uint32_t count,
                        uhal_hsa_mark **mark);

/* Finds or makes a mark behind the first `upto` packets, held for the caller; NULL when they are
 * known to be done. */
int uhal_hsa_queue_cover(uhal_hsa_queue *queue, uint64_t upto, uhal_hsa_mark **mark);

/* Updates `completed`, and releases objects held for completed packets. */
void uhal_hsa_queue_reap(uhal_hsa_queue *queue);

/* Calls `release(object)` once the first `upto` packets are known to be done. */
void uhal_hsa_queue_hold(uhal_hsa_queue *queue, uint64_t upto, void (*release)(void *object),
                         void *object);

static inline uint64_t uhal_hsa_queue_completed(uhal_hsa_queue *queue) {
    return atomic_load_explicit(&queue->completed, memory_order_acquire);
}

/* Returns whether packets of the queue wait for a mark of another device that is lost. */
int uhal_hsa_queue_is_forsaken(uhal_hsa_queue *queue);

/* Launches of the queue that have run to their end. */
uint64_t uhal_hsa_queue_launches_done(uhal_hsa_queue *queue);

void uhal_hsa_mark_keep(uhal_hsa_mark *mark);
void uhal_hsa_mark_drop(void *mark);

#endif
