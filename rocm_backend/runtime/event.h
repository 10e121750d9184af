/* An event: the mark of its last record, or none when that is known to be passed. Any thread may use
 * one.
 */
#ifndef UHAL_HSA_EVENT_H
#define UHAL_HSA_EVENT_H

#include "queue.h"

struct uhal_hsa_stream;

/* The mark of the last record, held for the caller; NULL when it is passed or was never made. */
uhal_hsa_mark *uhal_hsa_event_mark(void *event);

/* Whether the last record was in a capture: then the event has a point there instead of a mark. */
int uhal_hsa_event_captured(void *event);

/* Makes a stream wait for an event if either is in a capture. */
int uhal_hsa_event_join(void *event, struct uhal_hsa_stream *stream);

#endif
