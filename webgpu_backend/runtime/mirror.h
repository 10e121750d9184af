/* Page-locked memory that kernels are given. */
#ifndef UHAL_WG_MIRROR_H
#define UHAL_WG_MIRROR_H

#include "memory.h"

/* With the lock, before a launch that is given a mirror: renews it where the host has written. */
int uhal_wg_renew_mirror(struct uhal_wg_mirror *mirror);
/* With the lock: the open batch has a kernel that is given the buffer. */
void uhal_wg_use_mirror(uhal_wg_buffer *buffer);

#endif
