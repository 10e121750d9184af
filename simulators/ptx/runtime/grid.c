/* A grid: its blocks over the processors' threads. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "count.h"

enum {
    SMALL_GRID = 1 << 14,             /* threads; more processors do not pay for smaller grids */
    ARENA_BYTES_PER_THREAD = 1 << 20, /* reserved, not used, for a waiting thread's stack */
};

struct grid {
    const struct uptx_kernel *kernel;
    struct uptx_launch *launch;
    uint64_t blocks;
    atomic_uint_fast64_t next;
    atomic_int failed;
    pthread_mutex_t mutex;
    int outcome;
    uint64_t id;
    uint64_t workspace[UPTX_WORKSPACE / 8]; /* of a cooperative grid */
    struct uptx_worker *together;           /* workers, one for each block of the grid */
    struct uptx_counts *counts;
};

static atomic_uint_fast64_t launches;

static void *allocate(struct uptx_block *block, uint64_t bytes) {
    struct uptx_worker *worker = (struct uptx_worker *)block;
    bytes = (bytes + 63) & ~(uint64_t)63;
    if (bytes > worker->arena_bytes - worker->arena_used) {
        uptx_fail(worker, UPTX_NO_MEMORY, "its threads keep too much while they wait");
    }
    char *memory = worker->arena + worker->arena_used;
    worker->arena_used += bytes;
    return memory;
}

static void note_thread(struct uptx_block *block, uint32_t x, uint32_t y, uint32_t z,
                        uint32_t line) {
    ((struct uptx_worker *)block)->fault = (struct uptx_fault){
        .line = line,
        .has_thread = 1,
        .block = {block->block[0], block->block[1], block->block[2]},
        .thread = {x, y, z},
    };
}

static void trap(struct uptx_block *block, uint32_t x, uint32_t y, uint32_t z, uint32_t line) {
    note_thread(block, x, y, z, line);
    uptx_fail((struct uptx_worker *)block, UPTX_TRAP, "thread (%u, %u, %u) trapped in line %u", x,
              y, z, line);
}

static void no_function(struct uptx_block *block, uint32_t x, uint32_t y, uint32_t z, uint32_t line,
                        uint64_t address) {
    note_thread(block, x, y, z, line);
    uptx_fail(
        (struct uptx_worker *)block, UPTX_NO_FUNCTION,
        "thread (%u, %u, %u), line %u: a call of address %#llx, at which there is no function "
        "of the prototype it names",
        x, y, z, line, (unsigned long long)address);
}

static void assert_failed(struct uptx_block *block, uint32_t x, uint32_t y, uint32_t z,
                          uint32_t line, uint64_t message, uint64_t file, uint32_t number,
                          uint64_t function) {
    note_thread(block, x, y, z, line);
    uptx_fail((struct uptx_worker *)block, UPTX_ASSERTION,
              "thread (%u, %u, %u): %s:%u: %s: assertion `%s` failed", x, y, z,
              uptx_reach(block, file), number, uptx_reach(block, function),
              uptx_reach(block, message));
}

static void trace(struct uptx_block *block, uint32_t x, uint32_t y, uint32_t z, uint32_t line,
                  const char *name, const char *type, uint64_t bits) {
    const struct uptx_launch *launch = ((struct uptx_worker *)block)->launch;
    const uint32_t thread[3] = {x, y, z};
    if (launch->trace != NULL &&
        memcmp(block->block, launch->trace_block, sizeof block->block) == 0 &&
        memcmp(thread, launch->trace_thread, sizeof thread) == 0) {
        launch->trace(launch, line, name, type, bits);
    }
}

static void run_block(struct uptx_worker *worker) {
    if (worker->kernel->run_block != NULL) {
        worker->kernel->run_block(&worker->block);
    } else {
        uptx_run_waiting(worker);
    }
}

static int open_worker(struct uptx_worker *worker, struct grid *grid) {
    struct uptx_launch *launch = grid->launch;
    memset(worker, 0, sizeof *worker);
    worker->kernel = grid->kernel;
    worker->launch = launch;
    worker->grid = grid;
    worker->thread_count = launch->threads[0] * launch->threads[1] * launch->threads[2];
    struct uptx_block *block = &worker->block;
    block->parameters = launch->parameters;
    block->window_base = launch->window_base;
    block->window_span = launch->window_span;
    block->window_delta = launch->window_delta;
    block->variables = launch->variables;
    memcpy(block->grid, launch->grid, sizeof block->grid);
    memcpy(block->threads, launch->threads, sizeof block->threads);
    block->dynamic_shared_bytes = launch->dynamic_shared_bytes;
    block->total_shared_bytes = grid->kernel->static_shared_bytes + launch->dynamic_shared_bytes;
    block->grid_id = grid->id;
    block->allocate = allocate;
    block->trap = trap;
    block->print = uptx_print;
    block->check = uptx_check;
    block->watch = uptx_watch_access;
    block->heap_allocate = uptx_heap_allocate;
    block->heap_free = uptx_heap_free;
    block->assert_failed = assert_failed;
    block->trace = trace;
    block->no_function = no_function;
    block->is_local = uptx_is_local;
    block->workspace = launch->cooperative ? (uint64_t)grid->workspace : 0;
    /* Never at address 0, so that a generic pointer to shared memory is not null. */
    const uint64_t shared = ((uint64_t)block->total_shared_bytes + 255) / 256 * 256;
    block->shared = aligned_alloc(256, shared + 256);
    block->intervals = calloc(grid->kernel->site_count + 1, sizeof *block->intervals);
    if (block->shared == NULL || block->intervals == NULL) {
        return 0;
    }
    if (grid->kernel->check == UPTX_CHECK_STRICT) {
        worker->watch = uptx_watch_open(block->total_shared_bytes);
        if (worker->watch == NULL) {
            return 0;
        }
    }
    if (grid->counts != NULL && !uptx_counter_open(worker, grid->counts)) {
        return 0;
    }
    if (grid->kernel->run_block != NULL) {
        return 1;
    }
    worker->threads = calloc(worker->thread_count, sizeof *worker->threads);
    worker->order = calloc(worker->thread_count, sizeof *worker->order);
    worker->arena_bytes = (uint64_t)worker->thread_count * ARENA_BYTES_PER_THREAD;
    worker->arena = mmap(NULL, worker->arena_bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return worker->threads != NULL && worker->order != NULL && worker->arena != MAP_FAILED;
}

static void close_worker(struct uptx_worker *worker) {
    uptx_counter_close(worker);
    free(worker->block.shared);
    free(worker->block.intervals);
    uptx_watch_close(worker->watch);
    free(worker->threads);
    free(worker->order);
    if (worker->arena != NULL && worker->arena != MAP_FAILED) {
        munmap(worker->arena, worker->arena_bytes);
    }
}

static void report(struct grid *grid, const struct uptx_worker *worker) {
    pthread_mutex_lock(&grid->mutex);
    if (grid->outcome == UPTX_OK) {
        grid->outcome = worker->outcome;
        grid->launch->fault = worker->fault;
        memcpy(grid->launch->message, worker->message, sizeof worker->message);
    }
    pthread_mutex_unlock(&grid->mutex);
    atomic_store(&grid->failed, 1);
}

static void begin_block(struct uptx_worker *worker, uint64_t index) {
    const struct uptx_launch *launch = worker->launch;
    const uint32_t *extent = launch->grid;
    if (worker->counter != NULL) {
        uptx_counter_block(worker, index);
    }
    worker->block.block[0] = index % extent[0];
    worker->block.block[1] = index / extent[0] % extent[1];
    worker->block.block[2] = index / extent[0] / extent[1];
    worker->random = launch->seed * 0x9E3779B97F4A7C15u + index * 0xD1B54A32D192ED03u + 1;
    worker->arena_used = 0;
    /* Contents from an earlier launch could hide a missing barrier. */
    memset(worker->block.shared, 0xFF, worker->block.total_shared_bytes);
    if (worker->watch != NULL) {
        uptx_watch_block(worker->watch);
    }
}

static void run_blocks(struct uptx_worker *worker) {
    struct grid *grid = worker->grid;
    while (!atomic_load_explicit(&grid->failed, memory_order_relaxed)) {
        const uint64_t index = atomic_fetch_add(&grid->next, 1);
        if (index >= grid->blocks) {
            return;
        }
        begin_block(worker, index);
        run_block(worker);
    }
}

/* -- blocks that wait for each other ------------------------------------------------------------ */

/* Gives one turn to each unfinished block, from a random block on; returns how many remain. */
static uint64_t give_turns(struct grid *grid, uint64_t random) {
    uint64_t left = 0;
    for (uint64_t index = 0; index < grid->blocks; ++index) {
        struct uptx_worker *worker = &grid->together[(random + index) % grid->blocks];
        if (!worker->ended) {
            uptx_guard_other(worker);
            worker->ended = !uptx_go_on(worker);
            left += !worker->ended;
        }
    }
    return left;
}

static void run_in_turns(struct uptx_worker *first) {
    struct grid *grid = first->grid;
    for (uint64_t index = 0; index < grid->blocks; ++index) {
        struct uptx_worker *worker = &grid->together[index];
        uptx_guard_other(worker);
        begin_block(worker, index);
        uptx_begin_waiting(worker);
    }
    uint64_t random = grid->launch->seed;
    while (give_turns(grid, random >> 33) != 0) {
        random = random * 0x5851F42D4C957F2Du + 0x14057B7EF767814Fu;
    }
}

static void *work(void *argument) {
    struct grid *grid = argument;
    struct uptx_worker *worker = malloc(sizeof *worker);
    if (worker != NULL && open_worker(worker, grid)) {
        uptx_guarded(worker, run_blocks);
        if (worker->outcome != UPTX_OK) {
            report(grid, worker);
        }
    } else if (worker != NULL) {
        worker->outcome = UPTX_NO_MEMORY;
        snprintf(worker->message, sizeof worker->message, "there is no memory to run a block");
        report(grid, worker);
    } else {
        atomic_store(&grid->failed, 1);
    }
    if (worker != NULL) {
        close_worker(worker);
    }
    free(worker);
    return NULL;
}

/* All blocks begin before any block ends, and run in turns on this thread. */
static void work_together(struct grid *grid) {
    uint64_t opened = 0;
    grid->together = calloc(grid->blocks, sizeof *grid->together);
    while (grid->together != NULL && opened < grid->blocks &&
           open_worker(&grid->together[opened], grid)) {
        ++opened;
    }
    if (opened == grid->blocks) {
        uptx_guarded(&grid->together[0], run_in_turns);
        for (uint64_t index = 0; index < opened; ++index) {
            if (grid->together[index].outcome != UPTX_OK) {
                report(grid, &grid->together[index]);
            }
        }
    } else {
        grid->outcome = UPTX_NO_MEMORY;
        snprintf(grid->launch->message, sizeof grid->launch->message,
                 "there is no memory to run %llu blocks at once", (unsigned long long)grid->blocks);
    }
    for (uint64_t index = 0; grid->together != NULL && index < grid->blocks; ++index) {
        close_worker(&grid->together[index]);
    }
    free(grid->together);
}

static uint32_t worker_count(const struct grid *grid) {
    const uint32_t *threads = grid->launch->threads;
    const uint64_t all = grid->blocks * threads[0] * threads[1] * threads[2];
    uint64_t count = grid->launch->workers;
    if (count == 0) {
        count = all < SMALL_GRID ? 1 : (uint64_t)sysconf(_SC_NPROCESSORS_ONLN);
    }
    count = count > grid->blocks ? grid->blocks : count;
    return count > 64 ? 64 : (uint32_t)count;
}

static void work_apart(struct grid *grid) {
    pthread_t helpers[64];
    uint32_t started = 0;
    for (uint32_t count = worker_count(grid); started + 1 < count; ++started) {
        if (pthread_create(&helpers[started], NULL, work, grid) != 0) {
            break;
        }
    }
    work(grid);
    for (uint32_t index = 0; index < started; ++index) {
        pthread_join(helpers[index], NULL);
    }
}

int uptx_run(const struct uptx_kernel *kernel, struct uptx_launch *launch) {
    struct grid grid = {.kernel = kernel, .launch = launch};
    grid.blocks = (uint64_t)launch->grid[0] * launch->grid[1] * launch->grid[2];
    grid.id = atomic_fetch_add(&launches, 1);
    launch->message[0] = 0;
    launch->fault = (struct uptx_fault){0};
    if (launch->counting != NULL) {
        grid.counts = uptx_counts_open(launch, grid.blocks);
        if (grid.counts == NULL) {
            snprintf(launch->message, sizeof launch->message, "there is no memory to count");
            return UPTX_NO_MEMORY;
        }
    }
    pthread_mutex_init(&grid.mutex, NULL);
    if (launch->cooperative && kernel->start != NULL) {
        work_together(&grid);
    } else {
        work_apart(&grid);
    }
    pthread_mutex_destroy(&grid.mutex);
    uptx_counts_close(grid.counts, grid.outcome == UPTX_OK);
    return grid.outcome;
}
