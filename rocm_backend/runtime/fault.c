#include "fault.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

static pthread_mutex_t fault_lock = PTHREAD_MUTEX_INITIALIZER;

/* The lost device that was last reported to this thread. */
static _Thread_local const uhal_hsa_device *told_of;

static int code_of(hsa_status_t status) {
    const int code = UHAL_HSA_LOST + (int)status;
    switch (code) {
    case UHAL_HSA_LOST_MEMORY_APERTURE_VIOLATION:
    case UHAL_HSA_LOST_ILLEGAL_INSTRUCTION:
    case UHAL_HSA_LOST_MEMORY_FAULT:
    case UHAL_HSA_LOST_OUT_OF_REGISTERS:
    case UHAL_HSA_LOST_INVALID_ARGUMENT:
    case UHAL_HSA_LOST_INVALID_ALLOCATION:
    case UHAL_HSA_LOST_OUT_OF_RESOURCES:
    case UHAL_HSA_LOST_INVALID_PACKET_FORMAT:
    case UHAL_HSA_LOST_INCOMPATIBLE_ARGUMENTS:
    case UHAL_HSA_LOST_INVALID_ISA:
    case UHAL_HSA_LOST_INVALID_CODE_OBJECT:
    case UHAL_HSA_LOST_EXCEPTION:
        return code;
    default:
        return UHAL_HSA_LOST_ERROR;
    }
}

int uhal_hsa_lose(uhal_hsa_device *device, uhal_hsa_queue *queue, int code, const char *format,
                  ...) {
    pthread_mutex_lock(&fault_lock);
    if (queue != NULL && atomic_load(&device->failed_queue) == NULL)
        atomic_store(&device->failed_queue, queue);
    const int first = atomic_load(&device->lost);
    if (first == 0) {
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(device->fault, sizeof device->fault, format, arguments);
        va_end(arguments);
        atomic_store(&device->lost, code);
    }
    pthread_mutex_unlock(&fault_lock);
    if (first != 0)
        return first;
    /* Another thread may be adding a queue; such a queue sees the code at its next submission. */
    for (uint32_t i = 0; i < device->queue_count; ++i)
        uhal_aql_fail(&device->queues[i]->writer, code);
    return code;
}

void uhal_hsa_queue_failed(hsa_status_t status, hsa_queue_t *source, void *data) {
    uhal_hsa_queue *queue = data;
    const uint64_t id = source != NULL ? source->id : 0;
    uhal_hsa_lose(queue->device, queue, code_of(status), "queue %" PRIu64 " reported status 0x%x",
                  id, (unsigned)status);
}

int uhal_hsa_told(uhal_hsa_device *device, int status) {
    if (status == UHAL_AQL_TIMEOUT)
        return uhal_hsa_overdue(device);
    if (status >= UHAL_HSA_LOST)
        told_of = device;
    return status;
}

int uhal_hsa_check(uhal_hsa_device *device) {
    return uhal_hsa_told(device, atomic_load_explicit(&device->lost, memory_order_acquire));
}

int uhal_hsa_overdue(uhal_hsa_device *device) {
    return uhal_hsa_told(device, uhal_hsa_lose(device, NULL, UHAL_HSA_LOST_DEADLINE,
                                               "nothing was done for %" PRIu64 " ms",
                                               uhal_hsa.settings.deadline_ns / 1000000));
}

uhalHsaResult uhalHsaFaultText(char *text, size_t bytes) {
    pthread_mutex_lock(&fault_lock);
    snprintf(text, bytes, "%s", told_of != NULL ? told_of->fault : "");
    pthread_mutex_unlock(&fault_lock);
    return 0;
}
