/* Interface between a checked host module, compiled with <uhal/checked.h>, and the host runtime,
 * whose host_backend/runtime/check.cpp judges each access. Plain data and C. A checked module
 * exports `uhal_host_check` besides its table of kernels. */
#ifndef UHAL_HOST_CHECK_H
#define UHAL_HOST_CHECK_H

#include <stddef.h>
#include <stdint.h>

#define UHAL_HOST_CHECK_VERSION 1
#define UHAL_HOST_CHECK_EVERY_THREAD 0xFFFFFFFFU /* code outside of regions: all threads run it */

#define UHAL_HOST_CHECK_WRITE 1
#define UHAL_HOST_CHECK_ATOMIC 2 /* a write, unless it only loads */
#define UHAL_HOST_CHECK_ALIGNED 4 /* the address must be a multiple of the size, or of 8 */

/* Set by the runtime before the first launch. None of these functions returns after it found a
 * mistake. */
struct uhal_host_check_services {
    void (*access)(const void *address, size_t bytes, uint32_t flags, const void *instruction);
    /* The block has passed a barrier. */
    void (*barrier)(void);
    /* The thread has made its writes visible to other blocks. */
    void (*fence)(void);
    /* Memory of a static shared variable; the same for the same `name` pointer in a block. */
    void *(*shared)(const char *name, size_t bytes);
};

struct uhal_host_check {
    uint32_t version;
    uint32_t thread; /* linear index of the running thread in the block, or
    UHAL_HOST_CHECK_EVERY_THREAD */
    const struct uhal_host_check_services *services;
};

#endif
