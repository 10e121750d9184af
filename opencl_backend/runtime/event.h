/* Whether events of a device tell times. */
#ifndef UHAL_CL_EVENT_H
#define UHAL_CL_EVENT_H

#include "stream.h"

/* Sees whether the device's markers tell times, and has what does so in their place. */
void uhal_cl_events_open(uhal_cl_device *device);
int uhal_cl_events_close(uhal_cl_device *device);

#endif
