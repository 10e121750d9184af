/* Functions: a shader module, a pipeline for each shape of block, and a bind group for each set of
 * its buffers. A buffer is bound whole, so that pointers into it need no alignment and the
 * pool's many blocks share one group.
 */
#ifndef UHAL_WG_KERNEL_H
#define UHAL_WG_KERNEL_H

#include "group.h"

enum { UHAL_WG_GRID_WORDS = 4 }; /* x, y, z, and the first block's x */

typedef struct uhal_wg_launch {
    uint32_t grid[3];
    uint32_t block[3];
    uint32_t shared_bytes;
    uint32_t words[UHAL_WG_MOST_WORDS]; /* behind the grid's: parameters */
    uhal_wg_binding bindings[UHAL_WG_MOST_BINDINGS];
} uhal_wg_launch;

/* The start of a binding that contains an offset of a buffer, and the offset in the binding. */
uint64_t uhal_wg_window(const uhal_wg_device *device, const uhal_wg_buffer *buffer,
                        uint64_t *offset);

/* With the lock: records a launch. */
int uhal_wg_dispatch(struct uhal_wg_function *function, uhal_wg_stream *stream,
                     uhal_wg_launch *launch);

/* The kernels that copy and fill bytes. */
int uhal_wg_make_own_kernels(uhal_wg_device *device);
void uhal_wg_release_own_kernels(uhal_wg_device *device);

#endif
