/* Asynchronous copies in the order of a stream: a mark behind the work before, the copies that wait for
 * it, and a mark that waits for them. Any thread may call everything.
 */
#ifndef UHAL_HSA_COPY_H
#define UHAL_HSA_COPY_H

#include "staging.h"
#include "stream.h"

enum { UHAL_HSA_MAX_PARTS = 64 };

/* One call of hsa_amd_memory_async_copy. */
typedef struct uhal_hsa_part {
    uint64_t destination;
    uint64_t source;
    size_t bytes;
    hsa_agent_t destination_agent;
    hsa_agent_t source_agent;
} uhal_hsa_part;

/* Copies under way: what must stay until they are done. */
typedef struct uhal_hsa_copy {
    uhal_hsa_device *device;
    uhal_hsa_device *peer; /* whose memory it reads; NULL: no other device's */
    uhal_hsa_mark *before; /* NULL: they wait for nothing */
    uhal_hsa_piece *piece; /* of staging memory; NULL: none */
    void *pinned;          /* memory that is freed at the end; NULL: none */
    size_t bytes;
    atomic_int holders; /* the queue, and a caller that waits */
    uint32_t count;
    hsa_signal_t signals[UHAL_HSA_MAX_PARTS];
    struct uhal_hsa_copy *previous;
    struct uhal_hsa_copy *next;
} uhal_hsa_copy;

/* What a copy takes over, also when it fails. Each may be NULL. */
typedef struct uhal_hsa_freight {
    uhal_hsa_piece *piece;
    void *pinned;
    uhal_hsa_device *peer;
} uhal_hsa_freight;

/* Submits copies; with `chained` each waits for the one before. With `kept` the caller holds the copy
 * until uhal_hsa_copy_drop. */
int uhal_hsa_copy_submit(uhal_hsa_stream *stream, const uhal_hsa_part *parts, uint32_t count,
                         int chained, uhal_hsa_freight freight, uhal_hsa_copy **kept);

/* Waits until every part is done. */
int uhal_hsa_copy_wait(uhal_hsa_copy *copy);
void uhal_hsa_copy_drop(void *copy);

/* 0, or the code of the loss when a copy of the device has failed or never can be done; says which in
 * words. */
int uhal_hsa_copies_failed(uhal_hsa_device *device, char *words, size_t bytes);

#endif
