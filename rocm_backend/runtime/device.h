/* A device: its queues, its pending copies, and whether it is lost. Any thread may use a device.
 * One thread closes the device when none of its objects is in use any more. A lost device is never
 * freed.
 */
#ifndef UHAL_HSA_DEVICE_H
#define UHAL_HSA_DEVICE_H

#include "queue.h"

enum { UHAL_HSA_FAULT_TEXT = 400 };

struct uhal_hsa_copy;
struct uhal_hsa_piece;

typedef struct uhal_hsa_device {
    uhalHsaDeviceInfo info;
    hsa_agent_t agent;
    hsa_agent_t host;
    atomic_int timed;           /* 1: the device's events have times */
    _Atomic uint64_t peers;     /* devices whose kernels use its memory, a bit for each ordinal */
    atomic_size_t allocated;    /* bytes of device memory */
    _Atomic uint64_t looked_ns; /* when all pending work was checked last */
    pthread_mutex_t lock;       /* over the fields below */
    uhal_hsa_queue *queues[UHAL_HSA_MAX_QUEUES];
    uint32_t queue_count;
    struct uhal_hsa_copy *copies;     /* copies that are not known to be done */
    struct uhal_hsa_piece *pieces[2]; /* free staging memory: small pieces, large pieces */

    atomic_int lost;                      /* code that every call returns; 0: not lost */
    uhal_hsa_queue *_Atomic failed_queue; /* queue of the failure; NULL: unknown */
    char fault[UHAL_HSA_FAULT_TEXT];
} uhal_hsa_device;

/* The device current on this thread, NULL for none. */
uhal_hsa_device *uhal_hsa_current(void);

/* The open device of an agent or ordinal, NULL when it is not open. */
uhal_hsa_device *uhal_hsa_device_of(hsa_agent_t agent);
uhal_hsa_device *uhal_hsa_device_numbered(uint32_t ordinal);

/* A queue for one more stream: an idle queue, a new queue, or the queue with the fewest streams. */
hsa_status_t uhal_hsa_device_join_queue(uhal_hsa_device *device, uhal_hsa_queue **queue);
void uhal_hsa_device_leave_queue(uhal_hsa_queue *queue);

/* Gives later events of the device timestamps. */
hsa_status_t uhal_hsa_device_time(uhal_hsa_device *device);

#endif
