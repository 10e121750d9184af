/* Declarations for kernels and the run time. layout.py repeats the offsets; a test compares. */
#pragma once

#include <setjmp.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { UPTX_ABI = 5, UPTX_WORDS = 16, UPTX_WARP = 32, UPTX_BARRIERS = 16, UPTX_WORKSPACE = 256 };

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
    UPTX_MATRIX_STORE,
    UPTX_MATRIX_MOVE,
    UPTX_FRAGMENT,
    UPTX_WMMA,
};

/* Facts about its block for a kernel; constant while the block runs. */
struct uptx_block {
    const char *parameters;
    char *shared;
    uint64_t window_base; /* device addresses: window_base … + window_span - 1, */
    uint64_t window_span;
    uint64_t window_delta; /* device to host address; all 0 for host addresses */
    uint64_t variables;    /* address of the module's global and constant variables */
    uint32_t block[3];
    uint32_t grid[3];
    uint32_t threads[3];
    uint32_t dynamic_shared_bytes;
    uint32_t total_shared_bytes;
    uint64_t grid_id;
    struct uptx_interval *intervals; /* one for every site of the kernel */
    void *(*allocate)(struct uptx_block *, uint64_t bytes);
    void (*trap)(struct uptx_block *, uint32_t x, uint32_t y, uint32_t z, uint32_t line);
    int (*print)(struct uptx_block *, uint64_t format, uint64_t arguments);
    /* Called for an access outside its site's interval: sets the interval, or ends the run. */
    void (*check)(struct uptx_block *, uint32_t site, uint64_t address, uint32_t x, uint32_t y,
                  uint32_t z);
    /* Called in strict mode for every access to shared memory, with the offset in shared memory. */
    void (*watch)(struct uptx_block *, uint32_t site, uint64_t offset, uint32_t x, uint32_t y,
                  uint32_t z);
    void *(*heap_allocate)(struct uptx_block *, uint64_t bytes);
    void (*heap_free)(struct uptx_block *, void *memory);
    /* Ends the run. The words of an assertion: message, file, line, function. All but the line are
     * addresses of texts. */
    void (*assert_failed)(struct uptx_block *, uint32_t x, uint32_t y, uint32_t z, uint32_t line,
                          uint64_t message, uint64_t file, uint32_t number, uint64_t function);
    /* Called before each instruction of a traced kernel, with null for `name`. Called after the
     * instruction for each register that it wrote, with the register's type in the instruction. */
    void (*trace)(struct uptx_block *, uint32_t x, uint32_t y, uint32_t z, uint32_t line,
                  const char *name, const char *type, uint64_t bits);
    /* Ends the run: a call through a register reached an address without a function. */
    void (*no_function)(struct uptx_block *, uint32_t x, uint32_t y, uint32_t z, uint32_t line,
                        uint64_t address);
    uint64_t workspace; /* of a cooperative grid, UPTX_WORKSPACE bytes; 0 for other grids */
    uint32_t (*is_local)(struct uptx_block *, uint64_t address);
};

/* -- memory checks ------------------------------------------------------------------------------ */

/* How a kernel was translated. */
enum uptx_check {
    UPTX_CHECK_OFF,
    UPTX_CHECK_ON,     /* bounds and alignment of every access, freed memory */
    UPTX_CHECK_STRICT, /* also races on shared memory and reads of unwritten bytes */
    UPTX_CHECK_TRACE,  /* bounds and alignment, and traces */
    UPTX_CHECK_COUNT,  /* bounds and alignment, and counts (count.h) */
};

enum uptx_access { UPTX_LOAD, UPTX_STORE, UPTX_ATOMIC, UPTX_BRANCH };

enum uptx_space { UPTX_GENERIC, UPTX_GLOBAL, UPTX_SHARED, UPTX_LOCAL, UPTX_CONST };

/* An instruction of the text that accesses memory. */
struct uptx_site {
    uint32_t line;
    uint32_t bytes;        /* of one access, all elements of a vector together */
    uint8_t access;        /* enum uptx_access */
    uint8_t space;         /* enum uptx_space */
    uint8_t synchronizes;  /* volatile, relaxed or stronger: no race with such accesses */
    uint8_t watched_after; /* strict mode is called after the bytes are written */
};

/* Interval of a site's correct accesses: aligned addresses, `count` times `bytes`. */
struct uptx_interval {
    uint64_t start;
    uint64_t count;
    uint64_t delta; /* from the kernel's address to the host's */
};

enum uptx_range_state {
    UPTX_LIVE,
    UPTX_READ_ONLY,
    UPTX_FREED, /* names a stale pointer's old allocation; overlaps no live memory */
};

/* Memory that a kernel may access, or could access before. */
struct uptx_range {
    uint64_t address; /* address for kernels */
    uint64_t bytes;
    uint32_t state;
    uint32_t unused;
    uint64_t tag; /* the caller's own; comes back in the fault */
};

enum uptx_fault_kind {
    UPTX_NO_FAULT,
    UPTX_OUT_OF_BOUNDS,
    UPTX_MISALIGNED,
    UPTX_USE_AFTER_FREE,
    UPTX_WRITE_TO_READ_ONLY,
    UPTX_UNINITIALIZED, /* strict */
    UPTX_RACE,          /* strict */
    UPTX_UNMAPPED,      /* the processor's own fault, in a kernel without checks */
};

/* A fault, for the writer of the report; the message has the same facts. */
struct uptx_fault {
    uint32_t kind;   /* enum uptx_fault_kind; UPTX_NO_FAULT when the outcome is not an access */
    uint32_t access; /* enum uptx_access */
    uint32_t space;  /* enum uptx_space: of the address, or of the instruction */
    uint32_t bytes;
    uint64_t address; /* of shared memory: the offset in the block's part */
    uint32_t line;    /* of the PTX text; 0 when unknown */
    uint32_t has_thread;
    uint32_t block[3];
    uint32_t thread[3]; /* valid when `has_thread` */
    uint32_t other_line;
    uint32_t has_range;
    uint32_t other_thread[3]; /* of a race */
    uint32_t unused;
    struct uptx_range range; /* the nearest range, valid when `has_range` */
    int64_t distance;        /* from the range's start to the address, valid when `has_range` */
};

/* A thread of a kernel whose threads wait for each other. */
struct uptx_thread {
    uint32_t request; /* reason why the thread returned */
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
    uint32_t check; /* enum uptx_check */
    uint32_t site_count;
    uint32_t unused;
    const struct uptx_site *sites;
    /* Either both: run a thread until it waits, and resume it from there … */
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
    UPTX_MISALIGNED_ADDRESS,
    UPTX_SHARED_RACE,
    UPTX_UNINITIALIZED_READ,
    UPTX_ASSERTION,
    UPTX_NO_FUNCTION,
};

struct uptx_launch {
    uint32_t grid[3];
    uint32_t threads[3]; /* 1024 together at most */
    uint32_t dynamic_shared_bytes;
    uint32_t workers;      /* 0: one worker for each processor */
    uint64_t seed;         /* of the order in which threads run */
    uint64_t milliseconds; /* time limit of the run; 0: no limit */
    uint32_t cooperative;  /* 1: the grid's blocks may wait for each other */
    uint32_t unused;
    const void *parameters; /* at a multiple of 16 */
    uint64_t window_base;
    uint64_t window_span;
    uint64_t window_delta;
    uint64_t variables;
    /* For a kernel with checks: all memory that the kernel may access, except its shared and local
     * memory and its parameters. The ranges are sorted by address and do not overlap. The caller
     * must list the module's variables. The list must not change during the launch. */
    const struct uptx_range *ranges;
    uint64_t range_count;
    /* Prints the kernel's output; NULL: it goes to standard output. Called by several threads. */
    void (*print)(const char *text, uint64_t bytes);
    /* Takes the trace of one thread of a traced kernel. */
    void (*trace)(const struct uptx_launch *launch, uint32_t line, const char *name,
                  const char *type, uint64_t bits);
    const void *trace_text; /* the caller's own */
    uint32_t trace_block[3];
    uint32_t trace_thread[3];
    char message[512];                    /* out: the error, empty without one */
    struct uptx_fault fault;              /* out */
    const struct uptx_counting *counting; /* count.h; NULL: nothing is counted */
};

/* Runs a grid and returns its outcome. May be called by several threads at once. */
__attribute__((visibility("default"))) int uptx_run(const struct uptx_kernel *kernel,
                                                    struct uptx_launch *launch);

/* -- within the run time ------------------------------------------------------------------------ */

/* One worker: its block, and the place to leave it after an error. */
struct uptx_worker {
    struct uptx_block block; /* first: a pointer to the block also points to its worker */
    /* Called by a kernel that counts for an access or a branch of a thread, and … */
    void (*count)(struct uptx_block *, uint32_t site, uint64_t address, uint32_t x, uint32_t y,
                  uint32_t z);
    uint32_t *counts; /* … counts of each thread's entries into each basic block */
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
    uint32_t arrived[UPTX_BARRIERS]; /* threads that reached a barrier without waiting at it */
    int ended;
    sigjmp_buf *escape;
    int outcome;
    struct uptx_watch *watch;     /* of shared memory, in strict mode */
    struct uptx_counter *counter; /* count.h */
    struct uptx_fault fault;
    char message[512];
};

/* Ends the run with an outcome other than UPTX_OK. */
void uptx_fail(struct uptx_worker *worker, int outcome, const char *format, ...)
    __attribute__((noreturn, format(printf, 3, 4)));

/* Decides whether an access outside its site's interval is correct (check.c). */
void uptx_check(struct uptx_block *block, uint32_t number, uint64_t address, uint32_t x, uint32_t y,
                uint32_t z);
void *uptx_heap_allocate(struct uptx_block *block, uint64_t bytes);
void uptx_heap_free(struct uptx_block *block, void *memory);
/* Whether an address is in a thread's own memory. */
uint32_t uptx_is_local(struct uptx_block *block, uint64_t address);

/* Strict mode (watch.c): accesses of threads to shared memory between two barriers. */
struct uptx_watch *uptx_watch_open(uint32_t shared_bytes);
void uptx_watch_close(struct uptx_watch *watch);
void uptx_watch_block(struct uptx_watch *watch);               /* a block begins */
void uptx_watch_barrier(struct uptx_watch *watch);             /* all waiting threads continue */
void uptx_watch_warp(struct uptx_watch *watch, uint32_t warp); /* the same for bar.warp.sync */
void uptx_watch_access(struct uptx_block *block, uint32_t number, uint64_t offset, uint32_t x,
                       uint32_t y, uint32_t z);

/* Notes an access in the worker's fault. */
struct uptx_fault *uptx_note(struct uptx_worker *worker, uint32_t kind,
                             const struct uptx_site *site, uint64_t address,
                             const uint32_t *thread);
const char *uptx_access_name(uint32_t access);

/* Runs the threads of a block that wait for each other. */
void uptx_run_waiting(struct uptx_worker *worker);

/* Like uptx_run_waiting, in turns: resumes each thread until it waits again; 0 when all threads
 * have ended. */
void uptx_begin_waiting(struct uptx_worker *worker);
int uptx_go_on(struct uptx_worker *worker);

/* Answers the requests of a warp's waiting threads; returns how many may continue. */
uint32_t uptx_answer_warp(struct uptx_worker *worker, struct uptx_thread *warp, uint32_t lanes);
uint32_t uptx_answer_active_mask(struct uptx_thread *warp, uint32_t lanes);
void uptx_multiply(struct uptx_thread *warp, uint32_t operation);
void uptx_wmma(struct uptx_thread *warp, uint32_t operation);

/* The host's address for a kernel's generic address. */
const char *uptx_reach(const struct uptx_block *block, uint64_t address);

int uptx_print(struct uptx_block *block, uint64_t format, uint64_t arguments);

/* Runs `body`; a fault or the deadline becomes the worker's outcome. */
void uptx_guarded(struct uptx_worker *worker, void (*body)(struct uptx_worker *));

/* Within `body`: later faults go to another worker's outcome. */
void uptx_guard_other(struct uptx_worker *other);
const char *uptx_request_name(uint32_t request);

#ifdef __cplusplus
}
#endif
