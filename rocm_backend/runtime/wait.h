/* Waits of the host for a device, and looks at whether the device can still finish its work. Any
 * thread may call everything. Answers are codes of runtime.h.
 */
#ifndef UHAL_HSA_WAIT_H
#define UHAL_HSA_WAIT_H

#include "device.h"

/* uhal_hsa_check, after a look at whether a copy has failed or a device that is waited for is lost. */
int uhal_hsa_check_work(uhal_hsa_device *device);

/* The same for callers that ask often: looks only when the last look is a while ago. */
int uhal_hsa_check_now_and_then(uhal_hsa_device *device);

/* How long a caller waits: while its function says so, NULL: for ever. */
typedef struct uhal_hsa_patience {
    uhal_go_on go_on;
    void *user_data;
} uhal_hsa_patience;

/* Waits until the signal is below 1, looking every now and then at whether the device is lost and
 * the caller's patience over: then it answers UHAL_HSA_NOT_READY. */
int uhal_hsa_wait_while(uhal_hsa_device *device, hsa_signal_t signal, uhal_hsa_patience patience);

/* Waits until the first `upto` packets of a queue are done. */
int uhal_hsa_wait_queue_while(uhal_hsa_queue *queue, uint64_t upto, uhal_hsa_patience patience);

/* The same, for ever. */
int uhal_hsa_wait(uhal_hsa_device *device, hsa_signal_t signal);
int uhal_hsa_wait_queue(uhal_hsa_queue *queue, uint64_t upto);

#endif
