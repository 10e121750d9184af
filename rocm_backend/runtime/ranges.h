/* Owners of memory: the allocations made here, by address. A copy names the agents that own its
 * source and its destination. Only memory that the device accesses directly may be copied
 * asynchronously. Any thread may call every function.
 */
#ifndef UHAL_HSA_RANGES_H
#define UHAL_HSA_RANGES_H

#include "address_ranges.h"
#include "process.h"

typedef struct uhal_hsa_range {
    uhal_range place;
    hsa_agent_t owner;  /* a CPU for pinned memory */
    const void *device; /* the device that the memory was allocated for; only compared */
    uint64_t peers;     /* other devices with access, a bit for each ordinal */
    int pinned;
} uhal_hsa_range;

/* Returns HSA_STATUS_ERROR_OUT_OF_RESOURCES if there is no memory for the entry. */
hsa_status_t uhal_hsa_ranges_add(const uhal_hsa_range *range);

/* Forgets the range that begins at `start`; returns 0 if there is none. */
int uhal_hsa_ranges_remove(uint64_t start, uhal_hsa_range *removed);

/* The range that holds an address; 0 when there is none. */
int uhal_hsa_ranges_find(uint64_t address, uhal_hsa_range *found);

/* Iterates over a device's ranges: `start` is the next position, 0 to begin. 0 at the end. */
int uhal_hsa_ranges_next(const void *device, uint64_t *start, uhal_hsa_range *found);

/* Notes that devices got access. */
void uhal_hsa_ranges_let_in(uint64_t start, uint64_t peers);

/* Describes an address: its allocation, or the distance to the nearest allocation. */
void uhal_hsa_ranges_describe(uint64_t address, char *text, size_t bytes);

#endif
