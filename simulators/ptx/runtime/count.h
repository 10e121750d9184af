/* Counting: the requests of a launch to a GPU's memory and to its instruction units.
 *
 * A kernel translated with `count` counts the basic blocks that its threads enter and reports every
 * access and every conditional branch. ../count.py repeats the structures that the kernel exports.
 */
#pragma once

#include "ptx.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { UPTX_SAMPLED_BLOCKS = 64 };

struct uptx_counted_instruction {
    uint32_t line;
    uint32_t basic_block;
    uint32_t kind; /* index in `class_names` */
};

/* Exported as `uptx_counted` by a kernel that counts. */
struct uptx_counted {
    uint32_t basic_block_count;
    uint32_t instruction_count;
    uint32_t class_count;
    uint32_t unused;
    const char *const *class_names;
    const struct uptx_counted_instruction *instructions;
};

/* The caller's request for counts, which outlives the launch. */
struct uptx_counting {
    const struct uptx_kernel *kernel; /* the launched kernel, translated to count */
    const struct uptx_counted *counted;
    /* One block in `every` is counted. 0: the run time chooses `every`, for UPTX_SAMPLED_BLOCKS
     * counted blocks. */
    uint64_t every;
    /* Takes the counts of a launch without fault, as members of a JSON object. */
    void (*tell)(const struct uptx_launch *launch, const char *members, uint64_t bytes);
    void *context; /* the caller's own */
};

/* -- within the run time ------------------------------------------------------------------------ */

/* Counts of a launch; `blocks` is the number of its grid's blocks. NULL without memory. */
struct uptx_counts *uptx_counts_open(const struct uptx_launch *launch, uint64_t blocks);
/* Passes the counts to the caller if `is_whole`. */
void uptx_counts_close(struct uptx_counts *counts, int is_whole);

/* Sets up the counter of a worker, behind the block. 0 when there is no memory. */
int uptx_counter_open(struct uptx_worker *worker, struct uptx_counts *counts);
void uptx_counter_close(struct uptx_worker *worker);

/* Starts a block: chooses whether it is counted, and its kernel. */
void uptx_counter_block(struct uptx_worker *worker, uint64_t index);

/* All threads of a warp have met, so their accesses so far belong together. */
void uptx_counter_meet(struct uptx_worker *worker, uint32_t warp);

#ifdef __cplusplus
}
#endif
