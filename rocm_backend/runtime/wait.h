/* Waits of the host for a device, and checks whether the device can still finish its work. Any
 * thread may call these functions. Results are codes of runtime.h.
 */
#ifndef UHAL_HSA_WAIT_H
#define UHAL_HSA_WAIT_H

#include "device.h"

/* Checks for a failed copy, and for a lost device that this device waits for; then calls
 * uhal_hsa_check. */
int uhal_hsa_check_work(uhal_hsa_device *device);

/* Like uhal_hsa_check_work, for frequent callers: checks copies and other devices only some time
 * after the last check. */
int uhal_hsa_check_now_and_then(uhal_hsa_device *device);

/* How long a caller waits: while its function returns true; NULL: for ever. */
typedef struct uhal_hsa_patience {
    uhal_go_on go_on;
    void *user_data;
} uhal_hsa_patience;

/* Waits until the signal is below 1. Checks now and then whether the device is lost. Returns
 * UHAL_HSA_NOT_READY when the caller's patience ends. */
int uhal_hsa_wait_while(uhal_hsa_device *device, hsa_signal_t signal, uhal_hsa_patience patience);

/* Waits until the first `upto` packets of a queue are done. */
int uhal_hsa_wait_queue_while(uhal_hsa_queue *queue, uint64_t upto, uhal_hsa_patience patience);

/* Like the functions whose names end in while, but wait for ever. */
int uhal_hsa_wait(uhal_hsa_device *device, hsa_signal_t signal);
int uhal_hsa_wait_queue(uhal_hsa_queue *queue, uint64_t upto);

#endif
