/* A queue in memory with a thread that takes packets like a device, and reports faults that would
 * break a device. The test reads the first report. */
#define _POSIX_C_SOURCE 200809L

#include "aql.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { THREADS = 64, INVALID_HEADER = HSA_PACKET_TYPE_INVALID };

typedef struct device {
    hsa_queue_t queue;
    uhal_aql_writer writer;
    uhal_hsa_functions functions;
    _Atomic uint64_t write_index;
    _Atomic uint64_t read_index;
    _Atomic int64_t doorbell;
    _Atomic int64_t closed[UHAL_AQL_PIECES];
    unsigned char *kernarg;
    uint32_t kernarg_bytes;
    pthread_t thread;
    atomic_int running;
    atomic_int stopping;
    _Atomic uint32_t doorbells;
    _Atomic uint32_t launches;
    _Atomic uint32_t barriers;
    uint64_t next_of[THREADS]; /* expected number of the next launch of each submitting thread */
    char complaint[200];
} device;

static device *here;

static void complain(const char *words, uint64_t index) {
    if (here->complaint[0] == '\0')
        snprintf(here->complaint, sizeof here->complaint, "packet %llu: %s",
                 (unsigned long long)index, words);
}

static hsa_signal_t signal_of(_Atomic int64_t *value) {
    const hsa_signal_t signal = {(uint64_t)(uintptr_t)value};
    return signal;
}

static _Atomic int64_t *value_of(hsa_signal_t signal) {
    return (_Atomic int64_t *)(uintptr_t)signal.handle;
}

/* -- the runtime's functions ------------------------------------------------------------------- */

static uint64_t add_write_index(const hsa_queue_t *queue, uint64_t value) {
    (void)queue;
    return atomic_fetch_add_explicit(&here->write_index, value, memory_order_release);
}

static uint64_t load_read_index(const hsa_queue_t *queue) {
    (void)queue;
    return atomic_load_explicit(&here->read_index, memory_order_acquire);
}

static hsa_signal_value_t load_signal(hsa_signal_t signal) {
    return atomic_load_explicit(value_of(signal), memory_order_acquire);
}

/* The writer only waits for a value less than 1. */
static hsa_signal_value_t wait_signal(hsa_signal_t signal, hsa_signal_condition_t condition,
                                      hsa_signal_value_t compared, uint64_t timeout,
                                      hsa_wait_state_t state) {
    if (condition != HSA_SIGNAL_CONDITION_LT || compared != 1 || state != HSA_WAIT_STATE_BLOCKED)
        complain("a wait for something else than the end", 0);
    for (uint64_t slept = 0; load_signal(signal) >= 1 && slept < timeout; slept += 1000) {
        const struct timespec pause = {0, 1000};
        nanosleep(&pause, NULL);
    }
    return load_signal(signal);
}

static void store_relaxed(hsa_signal_t signal, hsa_signal_value_t value) {
    atomic_store_explicit(value_of(signal), value, memory_order_relaxed);
}

static void store_release(hsa_signal_t signal, hsa_signal_value_t value) {
    if (value_of(signal) == &here->doorbell) {
        if (value <= atomic_load(&here->doorbell))
            complain("the doorbell did not rise", (uint64_t)value);
        if ((uint64_t)value >= atomic_load(&here->write_index))
            complain("the doorbell is ahead of the write index", (uint64_t)value);
        here->doorbells += 1;
    }
    atomic_store_explicit(value_of(signal), value, memory_order_release);
}

/* -- the device -------------------------------------------------------------------------------- */

static void finish(hsa_signal_t signal) {
    if (signal.handle != 0)
        atomic_fetch_sub_explicit(value_of(signal), 1, memory_order_release);
}

/* Arguments of object 1: the submitting thread and the thread's launch count, as two u64. */
static void run_launch(const hsa_kernel_dispatch_packet_t *packet, uint64_t index) {
    uint64_t said[2];
    here->launches += 1;
    if (packet->kernel_object != 1)
        return;
    memcpy(said, packet->kernarg_address, sizeof said);
    if (index % 7 == 0) {
        const struct timespec pause = {0, 1000};
        nanosleep(&pause, NULL);
    }
    if (memcmp(said, packet->kernarg_address, sizeof said) != 0)
        complain("its arguments changed while it ran", index);
    if (said[0] >= THREADS || here->next_of[said[0]]++ != said[1])
        complain("it is out of order or its arguments are another's", index);
    memset(packet->kernarg_address, 0xDD, sizeof said);
}

static void run_barrier(const hsa_barrier_and_packet_t *packet) {
    here->barriers += 1;
    for (int i = 0; i < 5; ++i)
        while (packet->dep_signal[i].handle != 0 && load_signal(packet->dep_signal[i]) != 0 &&
               !atomic_load(&here->stopping))
            sched_yield();
}

static void take(uint64_t index) {
    unsigned char *slot = (unsigned char *)here->queue.base_address +
                          index % here->queue.size * sizeof(hsa_kernel_dispatch_packet_t);
    union {
        uint32_t start;
        hsa_kernel_dispatch_packet_t launch;
        hsa_barrier_and_packet_t barrier;
    } packet;
    const uint32_t start =
        atomic_load_explicit((_Atomic uint32_t *)(void *)slot, memory_order_acquire);
    memcpy(&packet, slot, sizeof packet);
    packet.start = start;
    if ((start & 0xFFU) == INVALID_HEADER)
        complain("the doorbell was rung for an unfinished packet", index);
    if ((start >> HSA_PACKET_HEADER_BARRIER & 1U) == 0)
        complain("it may run before those in front of it", index);
    if ((start & 0xFFU) == HSA_PACKET_TYPE_KERNEL_DISPATCH) {
        run_launch(&packet.launch, index);
        finish(packet.launch.completion_signal);
    } else if ((start & 0xFFU) == HSA_PACKET_TYPE_BARRIER_AND) {
        run_barrier(&packet.barrier);
        finish(packet.barrier.completion_signal);
    } else
        complain("it is of a type nobody writes", index);
    memset(slot + 4, 0xAA, sizeof packet - 4);
    atomic_store_explicit((_Atomic uint32_t *)(void *)slot, INVALID_HEADER, memory_order_release);
    atomic_store_explicit(&here->read_index, index + 1, memory_order_release);
}

static void *serve(void *unused) {
    (void)unused;
    while (!atomic_load(&here->stopping)) {
        const uint64_t index = atomic_load(&here->read_index);
        if ((int64_t)index <= atomic_load_explicit(&here->doorbell, memory_order_acquire))
            take(index);
        else
            sched_yield();
    }
    return NULL;
}

/* -- for the tests ----------------------------------------------------------------------------- */

uhal_aql_writer *device_open(uint32_t packets, uint32_t kernarg_bytes, uint64_t deadline_ns) {
    hsa_signal_t closed[UHAL_AQL_PIECES];
    here = calloc(1, sizeof *here);
    here->functions = (uhal_hsa_functions){
        .hsa_queue_add_write_index_screlease = add_write_index,
        .hsa_queue_load_read_index_scacquire = load_read_index,
        .hsa_signal_store_relaxed = store_relaxed,
        .hsa_signal_store_screlease = store_release,
        .hsa_signal_wait_scacquire = wait_signal,
    };
    here->queue.size = packets;
    here->queue.base_address = aligned_alloc(64, 64 * (size_t)packets);
    for (uint32_t i = 0; i < packets; ++i)
        memcpy((unsigned char *)here->queue.base_address + 64 * (size_t)i,
               &(uint32_t){INVALID_HEADER}, 4);
    here->queue.doorbell_signal = signal_of(&here->doorbell);
    atomic_init(&here->doorbell, -1);
    here->kernarg = aligned_alloc(64, kernarg_bytes);
    here->kernarg_bytes = kernarg_bytes;
    memset(here->kernarg, 0xEE, kernarg_bytes);
    for (int i = 0; i < UHAL_AQL_PIECES; ++i)
        closed[i] = signal_of(&here->closed[i]);
    if (uhal_aql_open(&here->writer, &here->functions, &here->queue, here->kernarg, kernarg_bytes,
                      closed, deadline_ns, 1000000) != 0)
        return NULL;
    return &here->writer;
}

void device_start(void) {
    atomic_store(&here->running, 1);
    pthread_create(&here->thread, NULL, serve, NULL);
}

/* Stops after all packets that its doorbell announced. */
void device_close(void) {
    if (atomic_load(&here->running)) {
        while ((int64_t)atomic_load(&here->read_index) <= atomic_load(&here->doorbell))
            sched_yield();
        atomic_store(&here->stopping, 1);
        pthread_join(here->thread, NULL);
    }
    uhal_aql_close(&here->writer);
    free(here->queue.base_address);
    free(here->kernarg);
    free(here);
}

const char *device_complaint(void) { return here->complaint; }
const void *device_packets(void) { return here->queue.base_address; }
const hsa_queue_t *device_queue(void) { return &here->queue; }
int64_t device_doorbell(void) { return atomic_load(&here->doorbell); }
uint32_t device_doorbells(void) { return here->doorbells; }
uint32_t device_launches(void) { return here->launches; }
uint32_t device_barriers(void) { return here->barriers; }

typedef struct submitter {
    uint64_t number;
    uint64_t launches;
    int status;
} submitter;

static void *submit(void *argument) {
    static const struct uhal_parameter parameters[] = {{0, 8, 0}, {8, 8, 0}};
    static const uhal_aql_geometry one = {{1, 1, 1}, {64, 1, 1}, 0};
    submitter *self = argument;
    unsigned int random = (unsigned int)self->number * 7919U + 1U;
    for (uint64_t i = 0; i < self->launches && self->status == 0; ++i) {
        random = random * 1103515245U + 12345U;
        /* Argument sizes that do not divide a piece leave a gap at the end of the piece. */
        const uhal_aql_kernel kernel = {.object = 1,
                                        .kernarg_bytes = 16 + random % 500,
                                        .parameter_count = 2,
                                        .parameters = parameters};
        uint64_t number = self->number;
        void *values[] = {&number, &i};
        const hsa_signal_t none = {0};
        uhal_aql_position position;
        const unsigned int choice = random >> 16 & 15U;
        if (choice == 0)
            uhal_aql_begin_batch(&here->writer);
        self->status = uhal_aql_launch(&here->writer, &kernel, &one, values, none, &position);
        if (choice == 1 && self->status == 0)
            self->status = uhal_aql_barrier(&here->writer, NULL, 0, none, &position);
        if (choice == 0)
            uhal_aql_end_batch(&here->writer);
    }
    return NULL;
}

/* Submits from several threads at once; returns the first status that is not 0. */
int device_storm(uint32_t threads, uint64_t launches) {
    pthread_t handles[THREADS];
    submitter each[THREADS];
    int status = 0;
    for (uint32_t i = 0; i < threads; ++i) {
        each[i] = (submitter){i, launches, 0};
        pthread_create(&handles[i], NULL, submit, &each[i]);
    }
    for (uint32_t i = 0; i < threads; ++i) {
        pthread_join(handles[i], NULL);
        if (status == 0)
            status = each[i].status;
    }
    return status;
}
