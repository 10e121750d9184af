/* Runs the threads of a block that wait for each other.
 *
 * The threads run in a shuffled order, one at a time; each thread runs until it waits. A kernel
 * that lacks a barrier then reads unwritten data. Warp operations are answered as soon as all lanes
 * of the mask have arrived, barriers when no other thread can run.
 */
#include <stdio.h>
#include <string.h>

#include "count.h"

enum { SYNC_BARRIER, ARRIVE, COUNT, ALL, ANY, ALIGNED = 16, FUEL = 1 << 12 };

static uint32_t random_below(struct uptx_worker *worker, uint32_t limit) {
    worker->random ^= worker->random << 13;
    worker->random ^= worker->random >> 7;
    worker->random ^= worker->random << 17;
    return (uint32_t)((worker->random >> 32) * limit >> 32);
}

static void shuffle(struct uptx_worker *worker, uint32_t *order, uint32_t count) {
    for (uint32_t index = 0; index < count; ++index) {
        order[index] = index;
    }
    for (uint32_t index = count; index > 1; --index) {
        const uint32_t other = random_below(worker, index);
        const uint32_t swapped = order[index - 1];
        order[index - 1] = order[other];
        order[other] = swapped;
    }
}

static void start(struct uptx_worker *worker, uint32_t index) {
    const uint32_t *extent = worker->block.threads;
    struct uptx_thread *thread = &worker->threads[index];
    thread->fuel = FUEL;
    thread->linear = index;
    thread->request = UPTX_EXIT;
    thread->handle =
        worker->kernel->start(&worker->block, thread, index % extent[0],
                              index / extent[0] % extent[1], index / extent[0] / extent[1]);
    thread->waits = thread->request > UPTX_PAUSE;
}

/* Runs every thread of a warp that can run; returns whether one did. */
static int run_warp(struct uptx_worker *worker, uint32_t first, uint32_t lanes) {
    struct uptx_thread *warp = worker->threads + first;
    uint32_t order[UPTX_WARP];
    int ran = 0;
    uint32_t freed;
    do {
        shuffle(worker, order, lanes);
        for (uint32_t index = 0; index < lanes; ++index) {
            struct uptx_thread *thread = &warp[order[index]];
            if (thread->waits || thread->request == UPTX_EXIT) {
                continue;
            }
            ran = 1;
            worker->kernel->resume(thread->handle);
            thread->waits = thread->request > UPTX_PAUSE;
        }
        freed = uptx_answer_warp(worker, warp, lanes);
        uint32_t pausing = 0;
        for (uint32_t lane = 0; lane < lanes; ++lane) {
            pausing += warp[lane].request == UPTX_PAUSE;
        }
        if (freed == 0 && pausing == 0) {
            freed = uptx_answer_active_mask(warp, lanes);
        }
    } while (freed != 0);
    return ran;
}

static void note_lines(struct uptx_worker *worker, const struct uptx_thread *one,
                       const struct uptx_thread *other) {
    worker->fault = (struct uptx_fault){
        .line = one->line,
        .other_line = other == NULL ? 0 : other->line,
    };
}

static _Noreturn void report_divergence(struct uptx_worker *worker, const struct uptx_thread *one,
                                        const struct uptx_thread *other) {
    note_lines(worker, one, other);
    uptx_fail(worker, UPTX_DIVERGENT_BARRIER,
              "divergent barrier: thread %u is at the barrier of line %u, thread %u of the same "
              "warp at %s of line %u",
              one->linear, one->line, other->linear, uptx_request_name(other->request),
              other->line);
}

/* At an aligned barrier, all threads of a warp arrive together, or none does. */
static void check_alignment(struct uptx_worker *worker, const struct uptx_thread *one,
                            int barriers_only) {
    if (!(one->operation & ALIGNED)) {
        return;
    }
    const uint32_t first = one->linear / UPTX_WARP * UPTX_WARP;
    for (uint32_t index = first; index < first + UPTX_WARP && index < worker->thread_count;
         ++index) {
        const struct uptx_thread *other = &worker->threads[index];
        const int at_barrier = other->request == UPTX_BARRIER;
        const int elsewhere =
            at_barrier ? other->line != one->line : other->request != UPTX_EXIT && !barriers_only;
        if (elsewhere) {
            report_divergence(worker, one, other);
        }
    }
}

static uint64_t reduced(const struct uptx_worker *worker, uint64_t barrier, uint32_t operation) {
    uint64_t trues = 0;
    uint64_t all = 1;
    for (uint32_t index = 0; index < worker->thread_count; ++index) {
        const struct uptx_thread *thread = &worker->threads[index];
        if (thread->request == UPTX_BARRIER && thread->words[0] == barrier) {
            trues += thread->words[2];
            all &= thread->words[2];
        }
    }
    return operation == COUNT ? trues : operation == ALL ? all : trues != 0;
}

/* Tells the counter which warps have met: none of their threads waits elsewhere. */
static void count_warps_that_met(struct uptx_worker *worker) {
    for (uint32_t first = 0; first < worker->thread_count; first += UPTX_WARP) {
        const uint32_t left = worker->thread_count - first;
        uint32_t elsewhere = 0;
        for (uint32_t lane = 0; lane < UPTX_WARP && lane < left; ++lane) {
            const struct uptx_thread *thread = &worker->threads[first + lane];
            elsewhere += thread->waits;
        }
        if (elsewhere == 0) {
            uptx_counter_meet(worker, first / UPTX_WARP);
        }
    }
}

/* Opens a barrier that enough threads have reached; returns whether it did. */
static int open_barrier(struct uptx_worker *worker, uint64_t barrier, uint32_t *arrived,
                        uint32_t alive) {
    uint32_t present = *arrived;
    const struct uptx_thread *one = NULL;
    for (uint32_t index = 0; index < worker->thread_count; ++index) {
        const struct uptx_thread *thread = &worker->threads[index];
        if (thread->request == UPTX_BARRIER && thread->words[0] == barrier) {
            ++present;
            one = thread;
        }
    }
    if (one == NULL || present < (one->words[1] != 0 ? one->words[1] : alive)) {
        return 0;
    }
    uint64_t answers[ANY + 1];
    for (uint32_t operation = COUNT; operation <= ANY; ++operation) {
        answers[operation] = reduced(worker, barrier, operation);
    }
    for (uint32_t index = 0; index < worker->thread_count; ++index) {
        const struct uptx_thread *thread = &worker->threads[index];
        if (thread->request == UPTX_BARRIER && thread->words[0] == barrier) {
            check_alignment(worker, thread, 0);
        }
    }
    for (uint32_t index = 0; index < worker->thread_count; ++index) {
        struct uptx_thread *thread = &worker->threads[index];
        if (thread->request == UPTX_BARRIER && thread->words[0] == barrier) {
            const uint32_t operation = thread->operation & ~ALIGNED;
            thread->words[0] = operation >= COUNT ? answers[operation] : 0;
            thread->request = UPTX_PAUSE;
            thread->waits = 0;
        }
    }
    *arrived = 0;
    if (worker->watch != NULL) {
        uptx_watch_barrier(worker->watch);
    }
    if (worker->counter != NULL) {
        count_warps_that_met(worker);
    }
    return 1;
}

static int open_barriers(struct uptx_worker *worker, uint32_t *arrived) {
    uint32_t alive = 0;
    int opened = 0;
    for (uint32_t index = 0; index < worker->thread_count; ++index) {
        struct uptx_thread *thread = &worker->threads[index];
        alive += thread->request != UPTX_EXIT;
        if (thread->request != UPTX_BARRIER) {
            continue;
        }
        if (thread->words[0] >= UPTX_BARRIERS) {
            uptx_fail(worker, UPTX_TRAP, "line %u: there is no barrier %llu", thread->line,
                      (unsigned long long)thread->words[0]);
        }
        if ((thread->operation & ~ALIGNED) == ARRIVE) {
            ++arrived[thread->words[0]];
            thread->request = UPTX_PAUSE;
            thread->waits = 0;
            opened = 1;
        }
    }
    for (uint64_t barrier = 0; barrier < UPTX_BARRIERS; ++barrier) {
        opened |= open_barrier(worker, barrier, &arrived[barrier], alive);
    }
    return opened;
}

static _Noreturn void report_deadlock(struct uptx_worker *worker) {
    const struct uptx_thread *one = NULL;
    const struct uptx_thread *other = NULL;
    for (uint32_t index = 0; index < worker->thread_count; ++index) {
        const struct uptx_thread *thread = &worker->threads[index];
        if (thread->request == UPTX_EXIT) {
            continue;
        }
        if (thread->request == UPTX_BARRIER) {
            check_alignment(worker, thread, 1);
        }
        if (one == NULL) {
            one = thread;
        } else if (other == NULL && thread->line != one->line) {
            other = thread;
        }
    }
    note_lines(worker, one, other);
    if (other == NULL) {
        uptx_fail(worker, UPTX_DEADLOCK,
                  "deadlock: thread %u waits in %s of line %u for threads that never come",
                  one->linear, uptx_request_name(one->request), one->line);
    }
    uptx_fail(worker, UPTX_DEADLOCK,
              "deadlock: thread %u waits in %s of line %u, thread %u in %s of line %u", one->linear,
              uptx_request_name(one->request), one->line, other->linear,
              uptx_request_name(other->request), other->line);
}

void uptx_begin_waiting(struct uptx_worker *worker) {
    memset(worker->arrived, 0, sizeof worker->arrived);
    shuffle(worker, worker->order, worker->thread_count);
    for (uint32_t index = 0; index < worker->thread_count; ++index) {
        start(worker, worker->order[index]);
    }
}

int uptx_go_on(struct uptx_worker *worker) {
    const uint32_t count = worker->thread_count;
    const uint32_t warps = (count + UPTX_WARP - 1) / UPTX_WARP;
    uint32_t warp_order[1024 / UPTX_WARP + 1];
    int ran = 0;
    shuffle(worker, warp_order, warps);
    for (uint32_t index = 0; index < warps; ++index) {
        const uint32_t first = warp_order[index] * UPTX_WARP;
        const uint32_t left = count - first;
        ran |= run_warp(worker, first, left < UPTX_WARP ? left : UPTX_WARP);
    }
    if (open_barriers(worker, worker->arrived) || ran) {
        return 1;
    }
    for (uint32_t index = 0; index < count; ++index) {
        if (worker->threads[index].request != UPTX_EXIT) {
            report_deadlock(worker);
        }
    }
    return 0;
}

void uptx_run_waiting(struct uptx_worker *worker) {
    uptx_begin_waiting(worker);
    while (uptx_go_on(worker)) {
    }
}
