/* Whether events of a device have timestamps. */
#ifndef UHAL_CL_EVENT_H
#define UHAL_CL_EVENT_H

#include "stream.h"

/* Checks whether the device's markers have timestamps; if not, prepares a substitute. */
void uhal_cl_events_open(uhal_cl_device *device);
int uhal_cl_events_close(uhal_cl_device *device);

#endif
