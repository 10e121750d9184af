/* An event: the mark of its last record, or no mark if the record is known to be passed. Any thread
 * may use an event.
 */
#ifndef UHAL_HSA_EVENT_H
#define UHAL_HSA_EVENT_H

#include "queue.h"

struct uhal_hsa_stream;

/* The mark of the last record, held for the caller; NULL if the record is passed, or if there is
 * none. */
uhal_hsa_mark *uhal_hsa_event_mark(void *event);

/* Whether the last record was in a capture. Then the event has a point in the capture instead of a
 * mark. */
int uhal_hsa_event_captured(void *event);

/* Makes a stream wait for an event if the stream or the event is in a capture. */
int uhal_hsa_event_join(void *event, struct uhal_hsa_stream *stream);

#endif
