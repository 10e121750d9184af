/* An event: the mark of its last record, or none when that is known to be passed. Any thread may use
 * one.
 */
#ifndef UHAL_HSA_EVENT_H
#define UHAL_HSA_EVENT_H

#include "queue.h"

/* The mark of the last record, held for the caller; NULL when it is passed or was never made. */
uhal_hsa_mark *uhal_hsa_event_mark(void *event);

#endif
