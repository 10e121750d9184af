/* A stream: the packets it put into a queue that it may share with others. Any thread may use one. */
#ifndef UHAL_HSA_STREAM_H
#define UHAL_HSA_STREAM_H

#include "device.h"

enum { UHAL_HSA_REMEMBERED_LAUNCHES = 256 }; /* as many as the lane's ledger has */

typedef struct uhal_hsa_stream {
    uhal_hsa_queue *queue;
    _Atomic uint64_t upto; /* packets of the queue up to and with its last */
    _Atomic uint64_t launches;
    _Atomic uint64_t places[UHAL_HSA_REMEMBERED_LAUNCHES]; /* among the queue's launches */
} uhal_hsa_stream;

/* Notes that the stream put packets into its queue, the last of them `upto`. */
void uhal_hsa_stream_advance(uhal_hsa_stream *stream, uint64_t upto);

#endif
