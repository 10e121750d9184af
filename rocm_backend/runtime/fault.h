/* Loss of a device: the first report is kept as text, every queue of the device gets the report's
 * code, and every later call returns this code. Reports come from the runtime's threads, which our
 * exit must never stop. A report takes no lock that is held while waiting.
 */
#ifndef UHAL_HSA_FAULT_H
#define UHAL_HSA_FAULT_H

#include "device.h"

/* Marks the device lost, with the report text; `queue` is the failed queue, NULL if unknown. Only
 * the first report counts, but a later one may add the queue. Returns the first report's code. */
__attribute__((format(printf, 4, 5))) int
uhal_hsa_lose(uhal_hsa_device *device, uhal_hsa_queue *queue, int code, const char *format, ...);

/* For hsa_queue_create: `data` is the uhal_hsa_queue. */
void uhal_hsa_queue_failed(hsa_status_t status, hsa_queue_t *source, void *data);

/* 0, or the code of a lost device. */
int uhal_hsa_check(uhal_hsa_device *device);

/* Marks the device lost, because work took longer than the deadline. Returns the code of the
 * loss. */
int uhal_hsa_overdue(uhal_hsa_device *device);

/* Result of a call whose writer returned `status`; a loss is noted as reported to this thread. */
int uhal_hsa_told(uhal_hsa_device *device, int status);

#endif
