#define _POSIX_C_SOURCE 200809L

#include "aql.h"

#include <string.h>
#include <time.h>

enum {
    PACKET_BYTES = 64,
    SIGNAL_OFFSET = 56, /* of the completion signal in a packet */
    DEPENDENCIES = 5,
    AHEAD = 16,       /* packets whose cache lines are prefetched before the write */
    BRIEF_WAITS = 200 /* checks of a full queue before the thread sleeps between checks */
};

/* The first four bytes of a packet; writing them hands the packet to the device. */
#define IN_ORDER (1U << HSA_PACKET_HEADER_BARRIER)
#define ACQUIRE_SYSTEM (HSA_FENCE_SCOPE_SYSTEM << HSA_PACKET_HEADER_SCACQUIRE_FENCE_SCOPE)
#define ACQUIRE_AGENT (HSA_FENCE_SCOPE_AGENT << HSA_PACKET_HEADER_SCACQUIRE_FENCE_SCOPE)
#define RELEASE_AGENT (HSA_FENCE_SCOPE_AGENT << HSA_PACKET_HEADER_SCRELEASE_FENCE_SCOPE)
#define RELEASE_SYSTEM (HSA_FENCE_SCOPE_SYSTEM << HSA_PACKET_HEADER_SCRELEASE_FENCE_SCOPE)
#define KERNEL_START                                                                               \
    (HSA_PACKET_TYPE_KERNEL_DISPATCH | IN_ORDER | RELEASE_AGENT |                                  \
     (uint32_t)UHAL_AQL_DIMENSIONS << (16 + HSA_KERNEL_DISPATCH_PACKET_SETUP_DIMENSIONS))
#define LAUNCH_START (KERNEL_START | ACQUIRE_SYSTEM)
#define FOLLOWING_START (KERNEL_START | ACQUIRE_AGENT)
#define BARRIER_START (HSA_PACKET_TYPE_BARRIER_AND | IN_ORDER | ACQUIRE_SYSTEM | RELEASE_SYSTEM)

_Static_assert(sizeof(hsa_kernel_dispatch_packet_t) == PACKET_BYTES, "a packet");
_Static_assert(sizeof(hsa_barrier_and_packet_t) == PACKET_BYTES, "a packet");
_Static_assert(offsetof(hsa_kernel_dispatch_packet_t, completion_signal) == SIGNAL_OFFSET,
               "its end");

static const hsa_signal_t NO_SIGNAL = {0};

/* -- waiting ----------------------------------------------------------------------------------- */

typedef struct patience {
    uint32_t looks;
    uint64_t since_ns;
} patience;

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

static int failure_of(uhal_aql_writer *writer) {
    return atomic_load_explicit(&writer->failure, memory_order_acquire);
}

/* Returns a code other than 0 when further waiting is useless: a failure, or the deadline has
 * passed. */
static int give_up(uhal_aql_writer *writer, patience *spent) {
    const int failure = failure_of(writer);
    if (failure != 0)
        return failure;
    const uint64_t now = now_ns();
    if (spent->since_ns == 0)
        spent->since_ns = now;
    else if (writer->deadline_ns != 0 && now - spent->since_ns > writer->deadline_ns)
        return UHAL_AQL_TIMEOUT;
    return 0;
}

/* Lets a little time pass, unless it is time to give up. */
static int wait_a_little(uhal_aql_writer *writer, patience *spent) {
    if (++spent->looks < BRIEF_WAITS)
        return failure_of(writer);
    const int status = give_up(writer, spent);
    if (status != 0)
        return status;
    const struct timespec pause = {0, 20000};
    nanosleep(&pause, NULL);
    return 0;
}

/* -- packets; the lock is held ----------------------------------------------------------------- */

/* Rings the doorbell for all written packets. */
static void ring(uhal_aql_writer *writer) {
    if (writer->rung == writer->next)
        return;
    writer->rung = writer->next;
    /* The doorbell takes the index of the last packet, not the number of packets. */
    writer->functions->hsa_signal_store_screlease(writer->queue->doorbell_signal,
                                                  (hsa_signal_value_t)(writer->next - 1));
}

static unsigned char *slot_at(const uhal_aql_writer *writer, uint64_t index) {
    const hsa_queue_t *queue = writer->queue;
    return (unsigned char *)queue->base_address + (index & (queue->size - 1)) * PACKET_BYTES;
}

/* Waits until a slot is free, and sets the number of free slots. The writer owns the slots until it
 * publishes them. */
static int wait_for_room(uhal_aql_writer *writer, uint32_t *room) {
    const uhal_hsa_functions *functions = writer->functions;
    hsa_queue_t *queue = writer->queue;
    const uint64_t index = writer->next;
    patience spent = {0, 0};
    uint64_t taken = functions->hsa_queue_load_read_index_scacquire(queue);
    while (index - taken >= queue->size) {
        /* The device cannot see a batch's packets before the doorbell is rung. */
        ring(writer);
        const int status = wait_a_little(writer, &spent);
        if (status != 0)
            return status;
        const uint64_t now_taken = functions->hsa_queue_load_read_index_scacquire(queue);
        if (now_taken != taken)
            spent.since_ns = 0;
        taken = now_taken;
    }
    *room = queue->size - (uint32_t)(index - taken);
    return failure_of(writer);
}

/* Waits for a free slot and returns it. */
static int reserve(uhal_aql_writer *writer, unsigned char **slot) {
    uint32_t room;
    *slot = slot_at(writer, writer->next);
    return wait_for_room(writer, &room);
}

/* Publishes a slot to the device. One store, because the device polls these bytes at any time to
 * take the packet. */
static void start_packet(unsigned char *slot, uint32_t start) {
    atomic_store_explicit((_Atomic uint32_t *)(void *)slot, start, memory_order_release);
}

/* Publishes a packet whose first four bytes are not written yet. */
static void publish(uhal_aql_writer *writer, unsigned char *slot, uint32_t start) {
    writer->functions->hsa_queue_add_write_index_screlease(writer->queue, 1);
    start_packet(slot, start);
    writer->next += 1;
    if (writer->batches == 0)
        ring(writer);
}

static int write_barrier(uhal_aql_writer *writer, const hsa_signal_t *dependencies, uint32_t count,
                         hsa_signal_t completion) {
    unsigned char *slot;
    const int status = reserve(writer, &slot);
    if (status != 0)
        return status;
    hsa_barrier_and_packet_t packet = {.completion_signal = completion};
    for (uint32_t i = 0; i < count; ++i)
        packet.dep_signal[i] = dependencies[i];
    memcpy(slot + 4, (const unsigned char *)&packet + 4, PACKET_BYTES - 4);
    publish(writer, slot, BARRIER_START);
    return 0;
}

/* -- argument memory; the lock is held --------------------------------------------------------- */

/* Waits until the barrier that closed a piece has completed. */
static int wait_for_piece(uhal_aql_writer *writer, uint32_t piece) {
    if (!writer->pending[piece])
        return 0;
    ring(writer);
    patience spent = {0, 0};
    while (writer->functions->hsa_signal_wait_scacquire(
               writer->closed[piece], HSA_SIGNAL_CONDITION_LT, 1, writer->slice_ticks,
               HSA_WAIT_STATE_BLOCKED) >= 1) {
        const int status = give_up(writer, &spent);
        if (status != 0)
            return status;
    }
    writer->pending[piece] = 0;
    return 0;
}

/* Finds room for the arguments of a launch. */
static int take_kernarg(uhal_aql_writer *writer, uint32_t bytes, unsigned char **memory) {
    const uint32_t rounded =
        (bytes + UHAL_AQL_KERNARG_ALIGNMENT - 1) & ~(uint32_t)(UHAL_AQL_KERNARG_ALIGNMENT - 1);
    if (rounded > writer->piece_bytes - writer->piece_used) {
        const uint32_t following = (writer->piece + 1) % UHAL_AQL_PIECES;
        int status = wait_for_piece(writer, following);
        if (status != 0)
            return status;
        /* All launches with arguments in this piece precede the barrier. */
        const hsa_signal_t closed = writer->closed[writer->piece];
        writer->functions->hsa_signal_store_relaxed(closed, 1);
        status = write_barrier(writer, NULL, 0, closed);
        if (status != 0)
            return status;
        writer->pending[writer->piece] = 1;
        writer->piece = following;
        writer->piece_used = 0;
    }
    *memory = writer->kernarg + (size_t)writer->piece * writer->piece_bytes + writer->piece_used;
    writer->piece_used += rounded;
    return 0;
}

/* -- launches ---------------------------------------------------------------------------------- */

static int launch_locked(uhal_aql_writer *writer, const uhal_aql_kernel *kernel,
                         const uhal_aql_geometry *geometry, void *const *parameters,
                         hsa_signal_t completion, uhal_aql_position *position) {
    unsigned char *memory;
    int status = take_kernarg(writer, kernel->kernarg_bytes, &memory);
    if (status != 0)
        return status;
    hsa_kernel_dispatch_packet_t packet;
    status = uhal_aql_write(kernel, geometry, parameters, writer->queue, memory, &packet);
    if (status != 0)
        return status;
    packet.completion_signal = completion;
    unsigned char *slot;
    status = reserve(writer, &slot);
    if (status != 0)
        return status;
    memcpy(slot + 4, (const unsigned char *)&packet + 4, PACKET_BYTES - 4);
    position->index = writer->next;
    position->launch = writer->launches;
    publish(writer, slot, LAUNCH_START);
    writer->launches += 1;
    return 0;
}

int uhal_aql_launch(uhal_aql_writer *writer, const uhal_aql_kernel *kernel,
                    const uhal_aql_geometry *geometry, void *const *parameters,
                    hsa_signal_t completion, uhal_aql_position *position) {
    if (kernel->kernarg_bytes > writer->piece_bytes)
        return HSA_STATUS_ERROR_INVALID_ARGUMENT;
    pthread_mutex_lock(&writer->lock);
    const int status = launch_locked(writer, kernel, geometry, parameters, completion, position);
    pthread_mutex_unlock(&writer->lock);
    return status;
}

/* Writes the packets that the queue has room for. The first packet acquires for all packets; the
 * last packet counts `completion` down. Each cache line of the queue is written once, and a running
 * device takes the first packets while later ones are written. */
static void replay_some(uhal_aql_writer *writer, const hsa_kernel_dispatch_packet_t *packets,
                        uint32_t count, hsa_signal_t completion) {
    const uint64_t next = writer->next;
    uint32_t start = LAUNCH_START;
    writer->functions->hsa_queue_add_write_index_screlease(writer->queue, count);
    for (uint32_t i = 0; i < count; ++i) {
        unsigned char *slot = slot_at(writer, next + i);
        const unsigned char *packet = (const unsigned char *)&packets[i];
        __builtin_prefetch(slot_at(writer, next + i + AHEAD), 1);
        memcpy(slot + 4, packet + 4, 4);
        memcpy(slot + 8, packet + 8, PACKET_BYTES - 8);
        if (i == count - 1)
            memcpy(slot + SIGNAL_OFFSET, &completion, sizeof completion);
        start_packet(slot, start);
        start = FOLLOWING_START;
    }
    writer->next += count;
}

int uhal_aql_replay(uhal_aql_writer *writer, const hsa_kernel_dispatch_packet_t *packets,
                    uint32_t count, hsa_signal_t completion, uhal_aql_position *position) {
    int status = 0;
    pthread_mutex_lock(&writer->lock);
    position->launch = writer->launches;
    for (uint32_t done = 0; done < count && status == 0;) {
        uint32_t room;
        status = wait_for_room(writer, &room);
        if (status == 0) {
            const uint32_t some = room < count - done ? room : count - done;
            replay_some(writer, packets + done, some,
                        some == count - done ? completion : NO_SIGNAL);
            done += some;
        }
    }
    position->index = writer->next - 1;
    if (status == 0) {
        writer->launches += 1;
        if (writer->batches == 0)
            ring(writer);
    }
    pthread_mutex_unlock(&writer->lock);
    return status;
}

int uhal_aql_barrier(uhal_aql_writer *writer, const hsa_signal_t *dependencies, uint32_t count,
                     hsa_signal_t completion, uhal_aql_position *position) {
    int status = 0;
    pthread_mutex_lock(&writer->lock);
    /* One packet waits for at most five signals. The packets before the last packet only wait. */
    while (status == 0 && count > DEPENDENCIES) {
        status = write_barrier(writer, dependencies, DEPENDENCIES, NO_SIGNAL);
        dependencies += DEPENDENCIES;
        count -= DEPENDENCIES;
    }
    if (status == 0)
        status = write_barrier(writer, dependencies, count, completion);
    position->index = writer->next - 1;
    position->launch = writer->launches;
    pthread_mutex_unlock(&writer->lock);
    return status;
}

void uhal_aql_begin_batch(uhal_aql_writer *writer) {
    pthread_mutex_lock(&writer->lock);
    writer->batches += 1;
    pthread_mutex_unlock(&writer->lock);
}

void uhal_aql_end_batch(uhal_aql_writer *writer) {
    pthread_mutex_lock(&writer->lock);
    writer->batches -= 1;
    if (writer->batches == 0)
        ring(writer);
    pthread_mutex_unlock(&writer->lock);
}

void uhal_aql_completed(uhal_aql_writer *writer, uint64_t upto) {
    /* Another thread may hold the lock while it waits for a full queue; then some packets are not
     * done. */
    if (pthread_mutex_trylock(&writer->lock) != 0)
        return;
    if (writer->next == upto)
        writer->piece_used = 0;
    pthread_mutex_unlock(&writer->lock);
}

uint64_t uhal_aql_launches(uhal_aql_writer *writer) {
    pthread_mutex_lock(&writer->lock);
    const uint64_t launches = writer->launches;
    pthread_mutex_unlock(&writer->lock);
    return launches;
}

uint64_t uhal_aql_submitted(uhal_aql_writer *writer) {
    pthread_mutex_lock(&writer->lock);
    const uint64_t submitted = writer->next;
    pthread_mutex_unlock(&writer->lock);
    return submitted;
}

uint64_t uhal_aql_waiting(uhal_aql_writer *writer) {
    pthread_mutex_lock(&writer->lock);
    const uint64_t taken = writer->functions->hsa_queue_load_read_index_scacquire(writer->queue);
    const uint64_t waiting = writer->next - taken;
    pthread_mutex_unlock(&writer->lock);
    return waiting;
}

/* -- life -------------------------------------------------------------------------------------- */

int uhal_aql_open(uhal_aql_writer *writer, const uhal_hsa_functions *functions, hsa_queue_t *queue,
                  void *kernarg, uint32_t kernarg_bytes, const hsa_signal_t *closed,
                  uint64_t deadline_ns, uint64_t slice_ticks) {
    const uint32_t piece = kernarg_bytes / UHAL_AQL_PIECES;
    memset(writer, 0, sizeof *writer);
    writer->functions = functions;
    writer->queue = queue;
    writer->deadline_ns = deadline_ns;
    writer->slice_ticks = slice_ticks;
    writer->kernarg = kernarg;
    writer->piece_bytes = piece & ~(uint32_t)(UHAL_AQL_KERNARG_ALIGNMENT - 1);
    memcpy(writer->closed, closed, sizeof writer->closed);
    atomic_init(&writer->failure, 0);
    if (writer->piece_bytes == 0 || (uintptr_t)kernarg % UHAL_AQL_KERNARG_ALIGNMENT != 0)
        return HSA_STATUS_ERROR_INVALID_ARGUMENT;
    return pthread_mutex_init(&writer->lock, NULL) == 0 ? 0 : HSA_STATUS_ERROR_OUT_OF_RESOURCES;
}

void uhal_aql_close(uhal_aql_writer *writer) { pthread_mutex_destroy(&writer->lock); }

void uhal_aql_fail(uhal_aql_writer *writer, int failure) {
    int none = 0;
    atomic_compare_exchange_strong(&writer->failure, &none, failure);
}

uint32_t uhal_aql_largest_kernarg(const uhal_aql_writer *writer) { return writer->piece_bytes; }
