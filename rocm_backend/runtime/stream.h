/* A stream: its packets in a queue, which streams may share. Any thread may use a stream. */
#ifndef UHAL_HSA_STREAM_H
#define UHAL_HSA_STREAM_H

#include "device.h"

enum { UHAL_HSA_REMEMBERED_LAUNCHES = 256 }; /* the size of the lane's ledger */

typedef struct uhal_hsa_stream {
    uhal_hsa_queue *queue;
    _Atomic uint64_t upto;                    /* packets up to the stream's last packet */
    struct uhal_hsa_capture *_Atomic capture; /* the stream's capture; NULL: its work runs */
    _Atomic uint64_t launches;                /* a graph counts as one */
    /* For each of the last launches: the queue's launch counts before and after the launch. */
    _Atomic uint64_t begins[UHAL_HSA_REMEMBERED_LAUNCHES];
    _Atomic uint64_t ends[UHAL_HSA_REMEMBERED_LAUNCHES];
} uhal_hsa_stream;

static inline int uhal_hsa_capturing(uhal_hsa_stream *stream) {
    return atomic_load_explicit(&stream->capture, memory_order_acquire) != NULL;
}

/* Notes a launch of the stream. */
void uhal_hsa_stream_count(uhal_hsa_stream *stream, uint64_t begin, uint64_t end);

/* Orders the stream behind a mark, and takes over the caller's reference. NULL adds no order. */
int uhal_hsa_stream_await(uhal_hsa_stream *stream, uhal_hsa_mark *awaited);

/* Notes that the stream put packets into its queue, the last of them `upto`. */
static inline void uhal_hsa_stream_advance(uhal_hsa_stream *stream, uint64_t upto) {
    uint64_t known = atomic_load(&stream->upto);
    while (known < upto && !atomic_compare_exchange_weak(&stream->upto, &known, upto)) {
    }
}

#endif
