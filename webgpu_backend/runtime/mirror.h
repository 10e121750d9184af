/* Page-locked memory that kernels use. */
#ifndef UHAL_WG_MIRROR_H
#define UHAL_WG_MIRROR_H

#include "memory.h"

/* With the lock, before a launch that uses a mirror: copies the host's writes to it. */
int uhal_wg_renew_mirror(struct uhal_wg_mirror *mirror);
/* With the lock: the open batch has a kernel that uses the buffer. */
void uhal_wg_use_mirror(uhal_wg_buffer *buffer);

#endif
