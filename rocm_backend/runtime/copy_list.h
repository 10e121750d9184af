/* The pending copies of a device. Each copy holds objects until it is done. Any thread may call
 * every function.
 */
#ifndef UHAL_HSA_COPY_LIST_H
#define UHAL_HSA_COPY_LIST_H

#include "staging.h"

enum { UHAL_HSA_MAX_PARTS = 64 };

/* A pending copy, and the objects it holds. */
typedef struct uhal_hsa_copy {
    uhal_hsa_device *device;
    uhal_hsa_device *peer; /* other device whose memory the copy reads; NULL: none */
    uhal_hsa_mark *before; /* mark that the parts wait for; NULL: none */
    uhal_hsa_piece *piece; /* of staging memory; NULL: none */
    void *pinned;          /* memory that is freed at the end; NULL: none */
    size_t bytes;
    atomic_int holders; /* number of holders: the queue, and a waiting caller */
    uint32_t count;
    hsa_signal_t signals[UHAL_HSA_MAX_PARTS];
    struct uhal_hsa_copy *previous;
    struct uhal_hsa_copy *next;
} uhal_hsa_copy;

/* Enters a copy in the list of its device. */
void uhal_hsa_copy_list(uhal_hsa_copy *copy);

/* Removes a copy from the list and frees the copy's objects. No device may still use them. */
void uhal_hsa_copy_free(uhal_hsa_copy *copy);

/* Drops one holder; the last one frees the copy. */
void uhal_hsa_copy_drop(void *copy);

/* Returns 0, or the code of the loss if a copy of the device has failed or can never complete.
 * `words` describes the copy. */
int uhal_hsa_copies_failed(uhal_hsa_device *device, char *words, size_t bytes);

#endif
