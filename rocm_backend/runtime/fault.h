/* What happens when a device breaks: the first report is kept in words, every queue of the device is
 * told, and every later call answers the same code. Reports come from threads of the runtime, which
 * must never be stopped by an exit of ours; they take no lock that is held while waiting.
 */
#ifndef UHAL_HSA_FAULT_H
#define UHAL_HSA_FAULT_H

#include "device.h"

/* Marks the device lost, with the report in words; `queue` is the failed queue, NULL if unknown. Only
 * the first report counts, but a later one may add the queue. Answers the first report's code. */
__attribute__((format(printf, 4, 5))) int
uhal_hsa_lose(uhal_hsa_device *device, uhal_hsa_queue *queue, int code, const char *format, ...);

/* For hsa_queue_create: `data` is the uhal_hsa_queue. */
void uhal_hsa_queue_failed(hsa_status_t status, hsa_queue_t *source, void *data);

/* 0, or the code of a lost device. */
int uhal_hsa_check(uhal_hsa_device *device);

/* Gives the device up: something took longer than the deadline. Answers its code. */
int uhal_hsa_overdue(uhal_hsa_device *device);

/* What a call answers that got `status` from a writer: remembers whose loss this thread was told. */
int uhal_hsa_told(uhal_hsa_device *device, int status);

#endif
