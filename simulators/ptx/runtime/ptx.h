/* What translated kernels and the run time share. layout.py repeats the offsets; a test compares. */
#pragma once

#include <setjmp.h>
#include <stdint.h>

enum { UPTX_ABI = 1, UPTX_WORDS = 16, UPTX_WARP = 32, UPTX_BARRIERS = 16 };

enum uptx_request {
    UPTX_EXIT,
    UPTX_PAUSE,
    UPTX_BARRIER,
    UPTX_WARP_BARRIER,
    UPTX_SHUFFLE,
    UPTX_VOTE,
    UPTX_MATCH,
    UPTX_REDUCE,
    UPTX_ACTIVE_MASK,
    UPTX_ELECT,
    UPTX_MATRIX_LOAD,
    UPTX_MATRIX_MULTIPLY,
};

/* What a kernel knows of the block it runs in; constant while the block runs. */
struct uptx_block {
    const char *parameters;
    char *shared;
    uint64_t window_base; /* device addresses: window_base … + window_span - 1, */
    uint64_t window_span;
    uint64_t window_delta; /* reached by adding this; 0, 0, 0 when they are host addresses */
    uint64_t variables;    /* address of the module's global and constant variables */
    uint32_t block[3];
    uint32_t grid[3];
    uint32_t threads[3];
    uint32_t dynamic_shared_bytes;
    uint32_t total_shared_bytes;
    uint64_t grid_id;
    void *(*allocate)(struct uptx_block *, uint64_t bytes);
    void (*trap)(struct uptx_block *, uint32_t x, uint32_t y, uint32_t z, uint32_t line);
    int (*print)(struct uptx_block *, uint64_t format, uint64_t arguments);
};

/* A thread of a kernel whose threads wait for each other. */
struct uptx_thread {
    uint32_t request; /* why it came back */
    uint32_t line;    /* of the PTX text */
    uint32_t operation;
    uint32_t fuel;
    uint32_t linear;
    uint32_t waits;
    void *handle;
    uint64_t words[UPTX_WORDS]; /* the request's operands, then the answer */
};

struct uptx_kernel {
    uint32_t abi;
    uint32_t parameter_bytes;
    uint32_t static_shared_bytes;
    uint32_t unused;
    /* Either both: run a thread to where it waits first, and from there on … */
    void *(*start)(struct uptx_block *, struct uptx_thread *, uint32_t x, uint32_t y, uint32_t z);
    void (*resume)(void *handle);
    /* … or this: run all threads of a block. */
    void (*run_block)(struct uptx_block *);
};

enum uptx_outcome {
    UPTX_OK,
    UPTX_ILLEGAL_ADDRESS,
    UPTX_TRAP,
    UPTX_DEADLOCK,
    UPTX_DIVERGENT_BARRIER,
    UPTX_BAD_MASK,
    UPTX_TIMEOUT,
    UPTX_NO_MEMORY,
};

struct uptx_launch {
    uint32_t grid[3];
    uint32_t threads[3];
    uint32_t dynamic_shared_bytes;
    uint32_t workers; /* 0: as many as there are processors */
    uint64_t seed;    /* of the order in which threads run */
    uint64_t milliseconds; /* after which the run is stopped; 0: never */
    const void *parameters;
    uint64_t window_base;
    uint64_t window_span;
    uint64_t window_delta;
    uint64_t variables;
    char message[512]; /* out: what went wrong, empty when nothing did */
    uint64_t address;  /* out: of the faulting access */
};

/* Runs a grid and returns its outcome. May be called by several threads at once. */
__attribute__((visibility("default"))) int uptx_run(const struct uptx_kernel *kernel,
                                                    struct uptx_launch *launch);

/* -- within the run time ------------------------------------------------------------------------ */

/* One worker: the block it runs and where to leave it when something goes wrong. */
struct uptx_worker {
    struct uptx_block block; /* first: a kernel's pointer to its block is one to its worker */
    const struct uptx_kernel *kernel;
    struct uptx_launch *launch;
    struct grid *grid;
    struct uptx_thread *threads;
    uint32_t thread_count;
    uint32_t *order;
    uint64_t random;
    char *arena;
    uint64_t arena_bytes;
    uint64_t arena_used;
    sigjmp_buf escape;
    int outcome;
    uint64_t address;
    char message[512];
};

/* Ends the run with an outcome other than UPTX_OK. */
_Noreturn void uptx_fail(struct uptx_worker *worker, int outcome, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Runs the threads of a block that wait for each other. */
void uptx_run_waiting(struct uptx_worker *worker);

/* Answers what the waiting threads of a warp asked; returns how many may go on. */
uint32_t uptx_answer_warp(struct uptx_worker *worker, struct uptx_thread *warp, uint32_t lanes);
uint32_t uptx_answer_active_mask(struct uptx_thread *warp, uint32_t lanes);
void uptx_multiply(struct uptx_thread *warp, uint32_t operation);

int uptx_print(struct uptx_block *block, uint64_t format, uint64_t arguments);

/* Runs `body` so that a fault or the deadline ends in the worker's outcome. */
void uptx_guarded(struct uptx_worker *worker, void (*body)(struct uptx_worker *));
const char *uptx_request_name(uint32_t request);
