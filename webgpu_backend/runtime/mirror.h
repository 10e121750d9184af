/* Page-locked memory that kernels use. */
#ifndef UHAL_WG_MIRROR_H
#define UHAL_WG_MIRROR_H

#include "memory.h"

/* Copies the host's writes to a mirror before a launch uses the mirror. Called with the lock. */
int uhal_wg_renew_mirror(struct uhal_wg_mirror *mirror);
/* Notes that a kernel in the open batch uses the buffer. The caller holds the lock. */
void uhal_wg_use_mirror(uhal_wg_buffer *buffer);

#endif
