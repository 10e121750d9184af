/* A stream: an in-order queue, and its known progress. */
#ifndef UHAL_CL_STREAM_H
#define UHAL_CL_STREAM_H

#include "process.h"

#include <pthread.h>

struct uhal_cl_callback;

typedef struct uhal_cl_stream {
    uhal_cl_device *device;
    struct uhal_cl_stream *next; /* next stream of the device, until the owner closes this stream */
    cl_command_queue queue;
    atomic_size_t holders;          /* its owner, its recorded events, its pending callbacks */
    atomic_uint_fast64_t submitted; /* commands put into the queue, counted afterwards */
    atomic_uint_fast64_t completed; /* number of commands known to be done */
    atomic_bool is_shared;          /* its queue also gets commands that are not counted */
    pthread_mutex_t lock;           /* of the fields below */
    cl_event probe;                 /* the marker of the last query */
    uint64_t probe_ticket;
    struct uhal_cl_callback *first_callback; /* in the queue's order */
    struct uhal_cl_callback *last_callback;
} uhal_cl_stream;

void uhal_cl_stream_hold(uhal_cl_stream *stream);
void uhal_cl_stream_drop(uhal_cl_stream *stream);

/* Waits for every stream of the device. */
int uhal_cl_streams_finish(uhal_cl_device *device);

/* Whether work is pending in a stream of the device. The last thread of the process calls this, so
 * it never waits; a stream that cannot be queried counts as done. */
bool uhal_cl_streams_pending(uhal_cl_device *device);

/* Returns whether nothing is known to be pending. False: work may be pending. */
bool uhal_cl_stream_is_idle(uhal_cl_stream *stream);

/* Notes that the first `ticket` commands are done. */
void uhal_cl_stream_done(uhal_cl_stream *stream, uint64_t ticket);

/* Puts a marker behind everything in the queue and hands it to the device; `ticket` counts it. */
int uhal_cl_stream_mark(uhal_cl_stream *stream, cl_event *event, uint64_t *ticket);

/* Like uhal_cl_stream_mark, with an event that has a timestamp. */
int uhal_cl_stream_tick(uhal_cl_stream *stream, cl_event *event, uint64_t *ticket);

/* Returns 0 if the event's command is done, otherwise UHAL_CL_NOT_READY or the command's error. */
int uhal_cl_event_status(cl_event event);

#endif
