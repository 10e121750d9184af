/* Writes AQL packets into a queue of the HSA runtime: kernel launches and barriers.
 *
 * A writer owns one queue and its memory for kernel arguments. Packets of a writer run strictly in
 * order: each carries the barrier bit. Any thread may submit. A lock ensures that the doorbell's
 * values only rise, because some devices require this. Nothing here allocates, and the runtime's
 * functions are reached through addresses, so that no library is linked.
 *
 * Fences. A launch acquires at system scope, because its arguments are written by the host, and
 * releases to the device only. If the host or another device reads memory, a barrier with system
 * release must follow the launch: events and waits are such barriers. When one doorbell announces
 * several packets, the first packet acquires from the system for all, and the others acquire from
 * the device.
 */
#ifndef UHAL_HSA_AQL_H
#define UHAL_HSA_AQL_H

#include "functions.h"
#include "hot_table.h"

#include <pthread.h>
#include <stdatomic.h>

/* Results in addition to hsa_status_t. */
enum {
    UHAL_AQL_TIMEOUT = -2 /* the device took nothing from a full queue until the deadline */
};

/* Hidden arguments that the launcher writes; others stay zero. The metadata has their offsets. */
typedef enum uhal_aql_hidden_kind {
    UHAL_AQL_BLOCK_COUNT_X, /* whole blocks of the grid, u32 */
    UHAL_AQL_BLOCK_COUNT_Y,
    UHAL_AQL_BLOCK_COUNT_Z,
    UHAL_AQL_BLOCK_SIZE_X, /* work-items of a block, u16 */
    UHAL_AQL_BLOCK_SIZE_Y,
    UHAL_AQL_BLOCK_SIZE_Z,
    UHAL_AQL_GRID_DIMENSIONS,     /* u16 */
    UHAL_AQL_DYNAMIC_GROUP_BYTES, /* LDS beyond the kernel's own, u32 */
    UHAL_AQL_QUEUE                /* the hsa_queue_t, u64 */
} uhal_aql_hidden_kind;

typedef struct uhal_aql_hidden {
    uhal_aql_hidden_kind kind;
    uint32_t offset; /* in the kernel's arguments, bytes */
} uhal_aql_hidden;

/* A kernel, as launches need it. Sizes are in bytes; all members must outlive the kernel's
 * launches. */
typedef struct uhal_aql_kernel {
    uint64_t object;
    uint32_t kernarg_bytes;
    uint32_t group_bytes;
    uint32_t private_bytes;
    uint32_t parameter_count;
    const struct uhal_parameter *parameters;
    uint32_t hidden_count;
    const uhal_aql_hidden *hidden;
} uhal_aql_kernel;

/* A launch's geometry in blocks and work-items. All values are positive. */
typedef struct uhal_aql_geometry {
    uint32_t grid[3];
    uint32_t block[3];
    uint32_t shared_bytes;
} uhal_aql_geometry;

/* A packet's position: its index in the queue and, for a launch, the number of the queue's launches
 * before it. */
typedef struct uhal_aql_position {
    uint64_t index;
    uint64_t launch;
} uhal_aql_position;

/* Dimensions of every launch; unused dimensions have extent 1. */
enum { UHAL_AQL_DIMENSIONS = 3 };

/* Argument memory is a ring of this many pieces. A piece is used again when the barrier that closed
 * it has completed. */
enum { UHAL_AQL_PIECES = 4, UHAL_AQL_KERNARG_ALIGNMENT = 64 };

typedef struct uhal_aql_writer {
    const uhal_hsa_functions *functions;
    hsa_queue_t *queue;
    pthread_mutex_t lock;
    atomic_int failure; /* the code given to uhal_aql_fail; 0 while all is well */
    uint64_t next;      /* index of the next packet; doorbells up to `rung` were rung */
    uint64_t rung;
    uint64_t launches; /* among the packets; packets that were replayed together count as one */
    uint32_t batches;
    uint64_t deadline_ns; /* longest wait for a full ring that does not move; 0: no limit */
    uint64_t slice_ticks; /* longest wait between two checks of `failure` */

    unsigned char *kernarg;
    uint32_t piece_bytes;
    uint32_t piece;      /* being filled */
    uint32_t piece_used; /* bytes of it */
    hsa_signal_t closed[UHAL_AQL_PIECES];
    unsigned char pending[UHAL_AQL_PIECES]; /* 1: closed by a barrier not yet seen to complete */
} uhal_aql_writer;

/* Takes over an empty queue. `kernarg` is memory of the kernarg pool that the device may access,
 * aligned to UHAL_AQL_KERNARG_ALIGNMENT; `closed` are signals for this writer alone. The caller
 * owns queue, memory and signals, and keeps them until the queue is destroyed. */
int uhal_aql_open(uhal_aql_writer *writer, const uhal_hsa_functions *functions, hsa_queue_t *queue,
                  void *kernarg, uint32_t kernarg_bytes, const hsa_signal_t *closed,
                  uint64_t deadline_ns, uint64_t slice_ticks);

/* Call this function after the queue was destroyed. */
void uhal_aql_close(uhal_aql_writer *writer);

/* Any thread may call this function. The first failure is kept; every wait for the queue and every
 * submission returns it. `failure` is not 0. */
void uhal_aql_fail(uhal_aql_writer *writer, int failure);

/* The most bytes of arguments a kernel may have. */
uint32_t uhal_aql_largest_kernarg(const uhal_aql_writer *writer);

/* Writes a kernel's launch: the arguments into `kernarg`, of the kernel's size, and the packet
 * without its first four bytes and its signal. A kernel with the hidden queue argument gets
 * `queue`. Returns 0, or HSA_STATUS_ERROR_INVALID_ARGUMENT for the same reasons as a launch. */
int uhal_aql_write(const uhal_aql_kernel *kernel, const uhal_aql_geometry *geometry,
                   void *const *parameters, hsa_queue_t *queue, unsigned char *kernarg,
                   hsa_kernel_dispatch_packet_t *packet);

/* Returns whether a kernel has the hidden queue argument; the second function sets it. */
int uhal_aql_asks_for_queue(const uhal_aql_kernel *kernel);
void uhal_aql_name_queue(const uhal_aql_kernel *kernel, hsa_queue_t *queue, unsigned char *kernarg);

/* Launches packets written earlier, in their order; the caller owns the memory that the packets
 * point to. One doorbell serves all packets the queue has room for. The packets count as one
 * launch: only the last packet counts `completion` down, because signals between the packets would
 * cost device time. Sets `position` to the last packet's position and the number of launches in
 * front of the first. */
int uhal_aql_replay(uhal_aql_writer *writer, const hsa_kernel_dispatch_packet_t *packets,
                    uint32_t count, hsa_signal_t completion, uhal_aql_position *position);

/* Launches a kernel. `parameters` are the addresses of the arguments, one for each of the kernel's
 * parameters, copied before the call returns. `completion` is counted down at the end; handle 0:
 * none. Sets `position`. Waits while the queue or the argument memory is full. Returns 0, the
 * failure of the queue, or UHAL_AQL_TIMEOUT. Returns HSA_STATUS_ERROR_INVALID_ARGUMENT for a grid
 * of 2^32 or more work-items along an axis, a block of 2^16 or more, and too large arguments. */
int uhal_aql_launch(uhal_aql_writer *writer, const uhal_aql_kernel *kernel,
                    const uhal_aql_geometry *geometry, void *const *parameters,
                    hsa_signal_t completion, uhal_aql_position *position);

/* Puts a barrier behind everything submitted. The barrier waits for the signals to become 0, makes
 * all earlier writes visible to the system, and counts `completion` down. Sets `position` to the
 * barrier's last packet. Returns the same codes as a launch. */
int uhal_aql_barrier(uhal_aql_writer *writer, const hsa_signal_t *dependencies, uint32_t count,
                     hsa_signal_t completion, uhal_aql_position *position);

/* Between these calls no doorbell rings, unless the queue is full. Pairs of calls may be nested. */
void uhal_aql_begin_batch(uhal_aql_writer *writer);
void uhal_aql_end_batch(uhal_aql_writer *writer);

/* The first `upto` packets are done. If no other packets are pending, the next launches' arguments
 * reuse the memory of the last arguments, which is still in the cache. */
void uhal_aql_completed(uhal_aql_writer *writer, uint64_t upto);

/* Launches submitted so far; packets that were replayed together count as one. */
uint64_t uhal_aql_launches(uhal_aql_writer *writer);

/* Packets submitted so far. */
uint64_t uhal_aql_submitted(uhal_aql_writer *writer);

/* Packets submitted that the device has not taken yet. */
uint64_t uhal_aql_waiting(uhal_aql_writer *writer);

#endif
