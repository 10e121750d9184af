/* Decides whether an access outside its site's interval is correct, from the allocations.
 *
 * A range that is found becomes the site's interval, so this runs once per site, worker and
 * allocation, not once per access (checks.py).
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "ptx.h"

const char *uptx_access_name(uint32_t access) {
    static const char *const names[] = {"load", "store", "atomic operation"};
    return names[access];
}

struct uptx_fault *uptx_note(struct uptx_worker *worker, uint32_t kind,
                             const struct uptx_site *site, uint64_t address,
                             const uint32_t *thread) {
    const uint32_t *block = worker->block.block;
    worker->fault = (struct uptx_fault){
        .kind = kind,
        .access = site->access,
        .space = site->space,
        .bytes = site->bytes,
        .address = address,
        .line = site->line,
        .has_thread = 1,
        .block = {block[0], block[1], block[2]},
        .thread = {thread[0], thread[1], thread[2]},
    };
    return &worker->fault;
}

/* -- the device's heap: malloc and free in a kernel --------------------------------------------- */

struct heap_block {
    struct heap_block *next;
    uint64_t bytes;
    uint64_t unused[2]; /* keeps `memory` aligned to 16 */
    char memory[];
};

static pthread_mutex_t heap_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct heap_block *heap;

void *uptx_heap_allocate(struct uptx_block *block, uint64_t bytes) {
    (void)block;
    struct heap_block *made = malloc(sizeof *made + bytes);
    if (made == NULL) {
        return NULL;
    }
    made->bytes = bytes;
    pthread_mutex_lock(&heap_mutex);
    made->next = heap;
    heap = made;
    pthread_mutex_unlock(&heap_mutex);
    return made->memory;
}

void uptx_heap_free(struct uptx_block *block, void *memory) {
    if (memory == NULL) {
        return;
    }
    pthread_mutex_lock(&heap_mutex);
    struct heap_block **at = &heap;
    while (*at != NULL && (*at)->memory != (char *)memory) {
        at = &(*at)->next;
    }
    struct heap_block *found = *at;
    if (found != NULL) {
        *at = found->next;
    }
    pthread_mutex_unlock(&heap_mutex);
    if (found == NULL) {
        uptx_fail((struct uptx_worker *)block, UPTX_TRAP,
                  "free of %p, which is not the start of memory from malloc", memory);
    }
    free(found);
}

/* The heap block that holds an access; its bytes, or 0 if there is none. */
static uint64_t heap_block_of(uint64_t address, uint64_t bytes, uint64_t *start) {
    uint64_t found = 0;
    pthread_mutex_lock(&heap_mutex);
    for (const struct heap_block *one = heap; one != NULL && found == 0; one = one->next) {
        const uint64_t distance = address - (uint64_t)one->memory;
        if (distance < one->bytes && bytes <= one->bytes - distance) {
            *start = (uint64_t)one->memory;
            found = one->bytes;
        }
    }
    pthread_mutex_unlock(&heap_mutex);
    return found;
}

/* -- looking up --------------------------------------------------------------------------------- */

static int holds(uint64_t start, uint64_t length, uint64_t address, uint64_t bytes) {
    const uint64_t distance = address - start;
    return distance < length && bytes <= length - distance;
}

/* The last range that begins at or before an address; NULL when none does. */
static const struct uptx_range *range_before(const struct uptx_launch *launch, uint64_t address) {
    uint64_t low = 0;
    uint64_t high = launch->range_count;
    while (low < high) {
        const uint64_t middle = low + (high - low) / 2;
        if (launch->ranges[middle].address <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low == 0 ? NULL : &launch->ranges[low - 1];
}

static uint64_t distance_to(const struct uptx_range *range, uint64_t address) {
    if (address < range->address) {
        return range->address - address;
    }
    const uint64_t inside = address - range->address;
    return inside < range->bytes ? 0 : inside - range->bytes;
}

/* The range that contains an address or is next to it. */
static const struct uptx_range *nearest(const struct uptx_launch *launch, uint64_t address) {
    const struct uptx_range *before = range_before(launch, address);
    const struct uptx_range *after = before == NULL ? launch->ranges : before + 1;
    if (after == launch->ranges + launch->range_count) {
        return before;
    }
    if (before == NULL || distance_to(after, address) < distance_to(before, address)) {
        return after;
    }
    return before;
}

/* Whether an access is to the block counters of a cooperative grid. */
static int in_workspace(const struct uptx_block *block, uint64_t address, uint64_t bytes) {
    return block->workspace != 0 && holds(block->workspace, UPTX_WORKSPACE, address, bytes);
}

/* The stack of this worker: its length, or 0 if the system does not report the stack. */
static uint64_t own_stack(uint64_t *start) {
    static _Thread_local void *stack;
    static _Thread_local size_t length;
    pthread_attr_t attributes;
    if (length == 0 && pthread_getattr_np(pthread_self(), &attributes) == 0) {
        pthread_attr_getstack(&attributes, &stack, &length);
        pthread_attr_destroy(&attributes);
    }
    *start = (uint64_t)stack;
    return length;
}

/* Local memory is on the stack, or in the arena of waiting threads. */
uint32_t uptx_is_local(struct uptx_block *block, uint64_t address) {
    const struct uptx_worker *worker = (const struct uptx_worker *)block;
    uint64_t start;
    const uint64_t length = own_stack(&start);
    return holds((uint64_t)worker->arena, worker->arena_used, address, 1) ||
           holds(start, length, address, 1);
}

/* The part of this worker's own memory that contains an access: the part's length, 0 for none.
 *
 * Only accesses that name local memory are known to use a certain variable; translated code checks
 * these accesses itself.
 */
static uint64_t own_memory(struct uptx_worker *worker, uint64_t address, uint64_t bytes,
                           uint64_t *start, uint32_t access) {
    const struct uptx_block *block = &worker->block;
    *start = (uint64_t)block->shared;
    if (holds(*start, block->total_shared_bytes, address, bytes)) {
        return block->total_shared_bytes;
    }
    *start = (uint64_t)block->parameters;
    if (access == UPTX_LOAD && holds(*start, worker->kernel->parameter_bytes, address, bytes)) {
        return worker->kernel->parameter_bytes;
    }
    *start = (uint64_t)worker->arena;
    if (holds(*start, worker->arena_used, address, bytes)) {
        return worker->arena_used;
    }
    const uint64_t in_heap = heap_block_of(address, bytes, start);
    if (in_heap != 0) {
        return in_heap;
    }
    const uint64_t length = own_stack(start);
    return holds(*start, length, address, bytes) ? length : 0;
}

/* -- the answer --------------------------------------------------------------------------------- */

static _Noreturn void refuse(struct uptx_worker *worker, int outcome, const char *reason) {
    const struct uptx_fault *fault = &worker->fault;
    const uint32_t *thread = fault->thread;
    char where[64];
    snprintf(where, sizeof where,
             fault->space == UPTX_SHARED ? "offset %llu of shared memory" : "%#llx",
             (unsigned long long)fault->address);
    uptx_fail(worker, outcome, "thread (%u, %u, %u), line %u: %s of %u byte%s, %s: %s", thread[0],
              thread[1], thread[2], fault->line, uptx_access_name(fault->access), fault->bytes,
              fault->bytes == 1 ? "" : "s", where, reason);
}

static _Noreturn void refuse_misaligned(struct uptx_worker *worker) {
    char reason[80];
    worker->fault.kind = UPTX_MISALIGNED;
    snprintf(reason, sizeof reason, "misaligned, it must be a multiple of %u", worker->fault.bytes);
    refuse(worker, UPTX_MISALIGNED_ADDRESS, reason);
}

static _Noreturn void refuse_shared(struct uptx_worker *worker) {
    const struct uptx_fault *fault = &worker->fault;
    const uint32_t total = worker->block.total_shared_bytes;
    char reason[80];
    if (holds(0, total, fault->address, fault->bytes)) {
        refuse_misaligned(worker);
    }
    snprintf(reason, sizeof reason, "out of bounds, the block has %u bytes", total);
    refuse(worker, UPTX_ILLEGAL_ADDRESS, reason);
}

/* Describes a fault in words: its kind and its distance from the nearest range. */
static void describe(char *reason, size_t room, const struct uptx_fault *fault) {
    const struct uptx_range *range = &fault->range;
    const unsigned long long start = range->address;
    const unsigned long long bytes = range->bytes;
    const char *state = range->state == UPTX_FREED ? "freed allocation" : "allocation";
    if (fault->kind == UPTX_USE_AFTER_FREE) {
        snprintf(reason, room,
                 "use after free, %lld bytes into the %llu bytes at %#llx that were "
                 "freed",
                 (long long)fault->distance, bytes, start);
    } else if (fault->kind == UPTX_WRITE_TO_READ_ONLY) {
        snprintf(reason, room, "a write to read-only memory, the %llu bytes at %#llx", bytes,
                 start);
    } else if (fault->distance < 0) {
        snprintf(reason, room, "out of bounds, %lld bytes before the %s of %llu bytes at %#llx",
                 -(long long)fault->distance, state, bytes, start);
    } else {
        const unsigned long long past = fault->address + fault->bytes - (start + bytes);
        snprintf(reason, room,
                 "out of bounds, it ends %llu byte%s past the %s of %llu bytes at "
                 "%#llx",
                 past, past == 1 ? "" : "s", state, bytes, start);
    }
}

static _Noreturn void refuse_global(struct uptx_worker *worker, uint64_t address) {
    struct uptx_fault *fault = &worker->fault;
    const struct uptx_range *range = nearest(worker->launch, address);
    if (range == NULL) {
        refuse(worker, UPTX_ILLEGAL_ADDRESS, "out of bounds, nothing is allocated");
    }
    char reason[160];
    fault->has_range = 1;
    fault->range = *range;
    fault->distance = (int64_t)(address - range->address);
    if (range->state == UPTX_FREED && distance_to(range, address) == 0 &&
        address >= range->address && address < range->address + range->bytes) {
        fault->kind = UPTX_USE_AFTER_FREE;
    } else if (range->state == UPTX_READ_ONLY &&
               holds(range->address, range->bytes, address, fault->bytes)) {
        fault->kind = UPTX_WRITE_TO_READ_ONLY;
    }
    describe(reason, sizeof reason, fault);
    refuse(worker, UPTX_ILLEGAL_ADDRESS, reason);
}

static void remember(struct uptx_interval *interval, uint64_t address, uint32_t bytes,
                     uint64_t start, uint64_t length, uint64_t delta) {
    /* From an unaligned start no multiple is aligned, so the interval holds only this access. */
    const int even = start % bytes == 0;
    interval->start = even ? start : address;
    interval->count = even ? length / bytes : 1;
    interval->delta = delta;
}

void uptx_check(struct uptx_block *block, uint32_t number, uint64_t address, uint32_t x, uint32_t y,
                uint32_t z) {
    struct uptx_worker *worker = (struct uptx_worker *)block;
    const struct uptx_launch *launch = worker->launch;
    const struct uptx_site *site = &worker->kernel->sites[number];
    const uint32_t thread[3] = {x, y, z};
    uptx_note(worker, UPTX_OUT_OF_BOUNDS, site, address, thread);
    if (site->space == UPTX_SHARED) {
        refuse_shared(worker);
    }
    const struct uptx_range *range = range_before(launch, address);
    uint64_t start = 0;
    uint64_t length = 0;
    uint64_t delta = 0;
    if (range != NULL && holds(range->address, range->bytes, address, site->bytes) &&
        (range->state == UPTX_LIVE ||
         (range->state == UPTX_READ_ONLY && site->access == UPTX_LOAD))) {
        start = range->address;
        length = range->bytes;
        delta = address - launch->window_base < launch->window_span ? launch->window_delta : 0;
    } else if (in_workspace(block, address, site->bytes)) {
        start = block->workspace;
        length = UPTX_WORKSPACE;
    } else if (site->space != UPTX_GLOBAL && site->space != UPTX_CONST) {
        length = own_memory(worker, address, site->bytes, &start, site->access);
    } else {
        length = heap_block_of(address, site->bytes, &start);
    }
    if (length == 0) {
        refuse_global(worker, address);
    }
    if (address % site->bytes != 0) {
        refuse_misaligned(worker);
    }
    remember(&block->intervals[number], address, site->bytes, start, length, delta);
}
