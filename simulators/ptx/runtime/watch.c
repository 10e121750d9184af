/* Strict mode: records for every byte of shared memory which threads wrote and read it, and when.
 *
 * Two accesses of different threads to one byte race if one of them writes and no barrier came
 * between them. A barrier is a barrier of the block or, within a warp, bar.warp.sync. Any barrier
 * counts as a barrier of the whole block. So a race past a barrier of only some threads is missed,
 * but no report is false. Atomic, volatile and relaxed accesses do not race with each other, nor do
 * stores of the same value, because compilers let all threads store a common value. Ordering by
 * such accesses instead of barriers is not followed.
 */
#include <stdlib.h>
#include <sys/mman.h>

#include "ptx.h"

enum { READERS = 2, WARPS = 32 };

/* Time and thread of an access; `time` 0: no access. */
struct event {
    uint32_t time; /* the block's barriers so far */
    uint32_t warp_time;
    uint32_t line;
    uint16_t thread;
    uint8_t synchronizes;
};

struct byte {
    struct event written;
    struct event read[READERS]; /* of different threads, if possible of different warps */
    uint32_t written_in;        /* the block that wrote it, counted from 1 */
    uint8_t value;              /* the stored value, when `is_known` */
    uint8_t is_known;
};

struct uptx_watch {
    uint64_t size;
    uint32_t time;
    uint32_t blocks;
    uint32_t warp_times[WARPS];
    struct byte bytes[];
};

struct uptx_watch *uptx_watch_open(uint32_t shared_bytes) {
    const uint64_t size = sizeof(struct uptx_watch) + (uint64_t)shared_bytes * sizeof(struct byte);
    struct uptx_watch *watch = mmap(NULL, size, PROT_READ | PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (watch == MAP_FAILED) {
        return NULL;
    }
    watch->size = size;
    return watch;
}

void uptx_watch_close(struct uptx_watch *watch) {
    if (watch != NULL) {
        munmap(watch, watch->size);
    }
}

void uptx_watch_block(struct uptx_watch *watch) {
    ++watch->blocks;
    ++watch->time;
}

void uptx_watch_barrier(struct uptx_watch *watch) { ++watch->time; }

void uptx_watch_warp(struct uptx_watch *watch, uint32_t warp) { ++watch->warp_times[warp]; }

/* Whether another thread made the earlier access, and no barrier lies between the two accesses. */
static int races(const struct uptx_watch *watch, const struct event *earlier,
                 const struct event *now) {
    if (earlier->time != watch->time || earlier->thread == now->thread ||
        (earlier->synchronizes && now->synchronizes)) {
        return 0;
    }
    const int same_warp = earlier->thread / UPTX_WARP == now->thread / UPTX_WARP;
    return !same_warp || earlier->warp_time == now->warp_time;
}

static void thread_of(const struct uptx_block *block, uint32_t linear, uint32_t *thread) {
    thread[0] = linear % block->threads[0];
    thread[1] = linear / block->threads[0] % block->threads[1];
    thread[2] = linear / block->threads[0] / block->threads[1];
}

static _Noreturn void report_race(struct uptx_worker *worker, const struct event *earlier,
                                  const char *did) {
    struct uptx_fault *fault = &worker->fault;
    fault->kind = UPTX_RACE;
    fault->other_line = earlier->line;
    thread_of(&worker->block, earlier->thread, fault->other_thread);
    const uint32_t *one = fault->thread;
    const uint32_t *other = fault->other_thread;
    uptx_fail(worker, UPTX_SHARED_RACE,
              "thread (%u, %u, %u), line %u: %s of %u bytes of shared memory at offset %llu races: "
              "thread (%u, %u, %u) %s it in line %u and no barrier came between",
              one[0], one[1], one[2], fault->line, uptx_access_name(fault->access), fault->bytes,
              (unsigned long long)fault->address, other[0], other[1], other[2], did, earlier->line);
}

static _Noreturn void report_uninitialized(struct uptx_worker *worker) {
    struct uptx_fault *fault = &worker->fault;
    fault->kind = UPTX_UNINITIALIZED;
    const uint32_t *one = fault->thread;
    uptx_fail(worker, UPTX_UNINITIALIZED_READ,
              "thread (%u, %u, %u), line %u: %s of %u bytes of shared memory at offset %llu, which "
              "no thread of the block has written",
              one[0], one[1], one[2], fault->line, uptx_access_name(fault->access), fault->bytes,
              (unsigned long long)fault->address);
}

static int is_same_warp(const struct event *one, const struct event *other) {
    return one->thread / UPTX_WARP == other->thread / UPTX_WARP;
}

/* A later read of its warp replaces a read, if the later read is unordered with more writes. Two
 * reads are enough: one of them is by another thread than the writer, and after a barrier of the
 * writer's warp, one of them is by another warp. */
static void note_read(const struct uptx_watch *watch, struct byte *byte, const struct event *now) {
    struct event *first = &byte->read[0];
    struct event *second = &byte->read[1];
    for (struct event *kept = first; kept <= second; ++kept) {
        const int is_past = is_same_warp(kept, now) && kept->warp_time != now->warp_time;
        if (kept->time != watch->time || kept->thread == now->thread || is_past) {
            *kept = *now;
            return;
        }
    }
    if (is_same_warp(first, second) && !is_same_warp(first, now)) {
        *second = *now;
    }
}

void uptx_watch_access(struct uptx_block *block, uint32_t number, uint64_t offset, uint32_t x,
                       uint32_t y, uint32_t z) {
    struct uptx_worker *worker = (struct uptx_worker *)block;
    struct uptx_watch *watch = worker->watch;
    const struct uptx_site *site = &worker->kernel->sites[number];
    const uint32_t thread[3] = {x, y, z};
    const uint32_t linear = (z * block->threads[1] + y) * block->threads[0] + x;
    const struct event now = {watch->time, watch->warp_times[linear / UPTX_WARP], site->line,
                              (uint16_t)linear, site->synchronizes};
    for (uint64_t index = offset; index < offset + site->bytes; ++index) {
        struct byte *byte = &watch->bytes[index];
        uptx_note(worker, UPTX_NO_FAULT, site, offset, thread);
        worker->fault.space = UPTX_SHARED;
        const uint8_t value = (uint8_t)block->shared[index];
        const int is_same = site->watched_after && byte->is_known && byte->value == value;
        if (!is_same && races(watch, &byte->written, &now)) {
            report_race(worker, &byte->written, "wrote");
        }
        if (site->access != UPTX_STORE && byte->written_in != watch->blocks) {
            report_uninitialized(worker);
        }
        if (site->access == UPTX_LOAD) {
            note_read(watch, byte, &now);
            continue;
        }
        for (uint32_t reader = 0; reader < READERS; ++reader) {
            if (races(watch, &byte->read[reader], &now)) {
                report_race(worker, &byte->read[reader], "read");
            }
        }
        byte->written = now;
        byte->written_in = watch->blocks;
        byte->value = value;
        byte->is_known = site->watched_after;
    }
    worker->fault = (struct uptx_fault){0};
}
