/* Letting a device's kernels and copies into memory of another. Any thread may call everything. */
#ifndef UHAL_HSA_PEERS_H
#define UHAL_HSA_PEERS_H

#include "device.h"

/* Lets a device into the allocation an address lies in. HSA_STATUS_SUCCESS also for memory that was
 * not allocated here: nobody knows better. */
hsa_status_t uhal_hsa_let_in(uhal_hsa_device *device, uint64_t address);

/* Lets the devices whose bits are set into an allocation of `owner`, which always keeps access. */
hsa_status_t uhal_hsa_let_all_in(const void *start, uint64_t peers);

#endif
