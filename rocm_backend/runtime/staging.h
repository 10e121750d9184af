/* Reusable pieces of pinned memory, of two sizes, for copies of pageable memory. Any thread may
 * call these functions.
 */
#ifndef UHAL_HSA_STAGING_H
#define UHAL_HSA_STAGING_H

#include "device.h"

enum { UHAL_HSA_SMALL_PIECE = 4096, UHAL_HSA_LARGE_PIECE = 1 << 16 };

typedef struct uhal_hsa_piece {
    unsigned char *memory;
    size_t bytes;
    struct uhal_hsa_piece *next;
} uhal_hsa_piece;

/* Host memory from the pinned pool that every GPU may use. */
hsa_status_t uhal_hsa_pinned_allocate(const uhal_hsa_device *device, size_t bytes, void **memory);

/* Takes a piece of at least `bytes`, at most UHAL_HSA_LARGE_PIECE. */
hsa_status_t uhal_hsa_piece_take(uhal_hsa_device *device, size_t bytes, uhal_hsa_piece **piece);

/* Gives a piece back. No copy may still use the piece. */
void uhal_hsa_piece_give(uhal_hsa_device *device, uhal_hsa_piece *piece);

/* Frees the pieces that are not in use. */
void uhal_hsa_staging_drop(uhal_hsa_device *device);

#endif
