/* An event of the interface: the marker it was recorded with last. */
#ifndef UHAL_CL_EVENT_H
#define UHAL_CL_EVENT_H

#include "stream.h"

#include <stdbool.h>

/* The marker and its stream, both held for the caller; false: it was never recorded. */
bool uhal_cl_event_take(void *event, cl_event *mark, uhal_cl_stream **stream);

/* Sees whether the device's markers tell times, and has what does so in their place. */
void uhal_cl_events_open(uhal_cl_device *device);
int uhal_cl_events_close(uhal_cl_device *device);

#endif
