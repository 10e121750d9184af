/* An event of the interface: the marker it was recorded with last. */
#ifndef UHAL_CL_EVENT_H
#define UHAL_CL_EVENT_H

#include "stream.h"

#include <stdbool.h>

/* The marker and its stream, both held for the caller; false: it was never recorded. */
bool uhal_cl_event_take(void *event, cl_event *mark, uhal_cl_stream **stream);

#endif
