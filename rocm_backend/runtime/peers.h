/* Gives a device access to memory of another device. Any thread may call these functions. */
#ifndef UHAL_HSA_PEERS_H
#define UHAL_HSA_PEERS_H

#include "device.h"

/* Gives a device access to the allocation that holds an address. Returns HSA_STATUS_SUCCESS also
 * for memory that was not allocated here, because the devices with access are unknown. */
hsa_status_t uhal_hsa_let_in(uhal_hsa_device *device, uint64_t address);

/* Gives the devices whose bits are set in `peers` access to an allocation. The allocation's owner
 * keeps access. */
hsa_status_t uhal_hsa_let_all_in(const void *start, uint64_t peers);

#endif
