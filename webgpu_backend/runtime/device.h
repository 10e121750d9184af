/* A device and its batch: commands are recorded into one encoder and submitted together, at a wait
 * or query, when the host reads, or when the batch is full. All streams share the queue, so work is
 * done in the order of its calls, and the number of the last finished batch is the device's progress.
 */
#ifndef UHAL_WG_DEVICE_H
#define UHAL_WG_DEVICE_H

#include "process.h"

#include <pthread.h>

enum { UHAL_WG_FULL_BATCH = 64 };         /* commands */
enum { UHAL_WG_FULL_SERIES = 4096 };      /* commands of a batch while a series runs */
enum { UHAL_WG_TIMED_EVENTS = 4096 };     /* timed events that a device has at once */
enum { UHAL_WG_UNIFORM_BYTES = 1 << 18 }; /* parameters of one batch */
enum { UHAL_WG_RESOLVE_ALIGNMENT = 256 };

struct uhal_wg_buffer;
struct uhal_wg_function;
struct uhal_wg_groups;
struct uhal_wg_mirror;
struct uhal_wg_staging;

typedef struct uhal_wg_device {
    uhalWgAdapterInfo info;
    WGPUDevice device;
    WGPUQueue queue;
    atomic_bool is_lost;
    char lost_because[512];
    atomic_size_t allocated; /* bytes */
    atomic_size_t submits;
    atomic_uint_fast64_t completed; /* the last batch that is known to be done */
    pthread_mutex_t lock;           /* for all fields below */
    uint64_t batch;                 /* the open batch's number, from 1 */
    uint32_t commands;              /* in the open batch */
    uint32_t series;                /* series that run; while any does, batches are longer */
    WGPUCommandEncoder encoder;     /* null: no command needs an encoder yet */
    WGPUComputePassEncoder pass;    /* null: no pass is open */
    const void *pipeline;           /* the pass's pipeline */
    const void *group;              /* the bind group of `pipeline`; null: unknown */
    WGPUBuffer uniforms;            /* parameters that are no immediates */
    unsigned char *uniform_bytes;   /* of the open batch */
    uint32_t uniform_end;
    struct uhal_wg_groups *groups; /* of all functions */
    struct uhal_wg_function *copier;
    struct uhal_wg_function *filler;
    struct uhal_wg_buffer *nothing; /* bound for a null pointer */
    struct uhal_wg_mirror *mirrors;
    void (*encode_mirrors)(struct uhal_wg_device *device); /* null without mirrors */
    int (*read_mirrors)(struct uhal_wg_device *device);
    struct uhal_wg_staging *staging; /* idle */
    WGPUQuerySet queries;            /* null: no events are timed */
    WGPUBuffer times;
    uint16_t free_times[UHAL_WG_TIMED_EVENTS];
    uint32_t free_time_count;
} uhal_wg_device;

typedef struct uhal_wg_stream {
    uhal_wg_device *device;
    atomic_uint_fast64_t last; /* the batch of the stream's newest command */
} uhal_wg_stream;

/* DEVICE_LOST with its message if the device is lost, else 0. */
int uhal_wg_check_lost(uhal_wg_device *device);

/* -- with the lock held ------------------------------------------------------------------------ */

/* Return the encoder, outside of any pass, or a compute pass. Null: an error is noted. */
WGPUCommandEncoder uhal_wg_encoder(uhal_wg_device *device);
WGPUComputePassEncoder uhal_wg_pass(uhal_wg_device *device);
/* Counts a command of the open batch, and submits the batch when it is full. */
int uhal_wg_command(uhal_wg_stream *stream);
int uhal_wg_submit(uhal_wg_device *device);

/* -- without it -------------------------------------------------------------------------------- */

/* Submits a batch if needed and waits for it; NOT_READY when `go_on` returns 0. */
int uhal_wg_wait(uhal_wg_device *device, uint64_t batch, int (*go_on)(void *), void *user_data);
/* Returns 0 if a batch is done, else NOT_READY. */
int uhal_wg_query(uhal_wg_device *device, uint64_t batch);
/* Copies the results of finished batches to the host. */
int uhal_wg_finish(uhal_wg_device *device);
/* Polls until the flag is set. */
int uhal_wg_wait_flag(uhal_wg_device *device, atomic_int *flag);

#endif
