/* What happens when a device breaks: the first report is kept in words, every queue of the device is
 * told, and every later call answers the same code. Reports come from threads of the runtime, which
 * must never be stopped by an exit of ours; they take no lock that is held while waiting.
 */
#ifndef UHAL_HSA_FAULT_H
#define UHAL_HSA_FAULT_H

#include "device.h"

/* For hsa_queue_create: `data` is the uhal_hsa_queue. */
void uhal_hsa_queue_failed(hsa_status_t status, hsa_queue_t *source, void *data);

/* For hsa_amd_register_system_event_handler. */
hsa_status_t uhal_hsa_system_event(const hsa_amd_event_t *event, void *data);

/* 0, or the code of a lost device. */
int uhal_hsa_check(uhal_hsa_device *device);

/* The same, after a look at whether a copy has failed or a device that is waited for is lost. */
int uhal_hsa_check_work(uhal_hsa_device *device);

/* The same for callers that ask often: looks only when the last look is a while ago. */
int uhal_hsa_check_now_and_then(uhal_hsa_device *device);

/* Gives the device up: something took longer than the deadline. Answers its code. */
int uhal_hsa_overdue(uhal_hsa_device *device);

/* What a call answers that got `status` from a writer: remembers whose loss this thread was told. */
int uhal_hsa_told(uhal_hsa_device *device, int status);

#endif
