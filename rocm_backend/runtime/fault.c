#include "fault.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "copy.h"
#include "ranges.h"

enum { LOOK_NS = 1000000 /* between two looks at everything under way */ };

static pthread_mutex_t fault_lock = PTHREAD_MUTEX_INITIALIZER;

/* The lost device this thread was told of last. */
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

/* Keeps the first report; of a later one at most the queue it names. Answers the first one's code. */
__attribute__((format(printf, 4, 5))) static int
lose(uhal_hsa_device *device, uhal_hsa_queue *queue, int code, const char *format, ...) {
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
    /* A queue that is being added meanwhile is told by its next submission's check. */
    for (uint32_t i = 0; i < device->queue_count; ++i)
        uhal_aql_fail(&device->queues[i]->writer, code);
    return code;
}

void uhal_hsa_queue_failed(hsa_status_t status, hsa_queue_t *source, void *data) {
    uhal_hsa_queue *queue = data;
    const uint64_t id = source != NULL ? source->id : 0;
    lose(queue->device, queue, code_of(status), "queue %" PRIu64 " reported status 0x%x", id,
         (unsigned)status);
}

/* -- events of the system ---------------------------------------------------------------------- */

typedef struct reason {
    uint32_t bit;
    const char *words;
} reason;

static const reason REASONS[] = {
    {HSA_AMD_MEMORY_FAULT_PAGE_NOT_PRESENT, "no memory there"},
    {HSA_AMD_MEMORY_FAULT_READ_ONLY, "written, and read-only"},
    {HSA_AMD_MEMORY_FAULT_NX, "executed, and no code"},
    {HSA_AMD_MEMORY_FAULT_HOST_ONLY, "the host's only"},
    {HSA_AMD_MEMORY_FAULT_DRAMECC, "uncorrectable error of the DRAM"},
    {HSA_AMD_MEMORY_FAULT_IMPRECISE, "the address is not exact"},
    {HSA_AMD_MEMORY_FAULT_SRAMECC, "uncorrectable error of the SRAM"},
};

static void tell_reasons(uint32_t mask, char *text, size_t bytes) {
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < sizeof REASONS / sizeof *REASONS && used < bytes; ++i)
        if (mask & REASONS[i].bit)
            used += (size_t)snprintf(text + used, bytes - used, "%s%s", used ? ", " : "",
                                     REASONS[i].words);
}

hsa_status_t uhal_hsa_system_event(const hsa_amd_event_t *event, void *data) {
    (void)data;
    /* Every kind of event has the agent at this offset. */
    uhal_hsa_device *device = uhal_hsa_device_of(event->memory_fault.agent);
    if (device == NULL)
        return HSA_STATUS_ERROR; /* another library's: as if we were not there */
    if (event->event_type == HSA_AMD_GPU_HW_EXCEPTION_EVENT) {
        lose(device, NULL, UHAL_HSA_LOST_EXCEPTION, "the device met a hardware exception");
        return HSA_STATUS_SUCCESS;
    }
    char reasons[160];
    char where[120];
    const uint64_t address = event->memory_fault.virtual_address;
    tell_reasons(event->memory_fault.fault_reason_mask, reasons, sizeof reasons);
    uhal_hsa_ranges_describe(address, where, sizeof where);
    lose(device, NULL, UHAL_HSA_LOST_MEMORY_FAULT, "at address 0x%" PRIx64 " (%s): %s", address,
         where, reasons[0] != '\0' ? reasons : "no reason was told");
    return HSA_STATUS_SUCCESS;
}

/* -- what calls answer ------------------------------------------------------------------------- */

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

int uhal_hsa_check_work(uhal_hsa_device *device) {
    char words[160];
    const int lost = uhal_hsa_check(device);
    if (lost != 0)
        return lost;
    int code = uhal_hsa_copies_failed(device, words, sizeof words);
    pthread_mutex_lock(&device->lock);
    const uint32_t count = device->queue_count;
    pthread_mutex_unlock(&device->lock);
    for (uint32_t i = 0; i < count && code == 0; ++i)
        if (uhal_hsa_queue_is_forsaken(device->queues[i])) {
            code = UHAL_HSA_LOST_PEER;
            snprintf(words, sizeof words, "it waits for an event of the other");
        }
    return code == 0 ? 0 : uhal_hsa_told(device, lose(device, NULL, code, "%s", words));
}

int uhal_hsa_check_now_and_then(uhal_hsa_device *device) {
    const uint64_t now = uhal_hsa_now_ns();
    const uint64_t before = atomic_exchange_explicit(&device->looked_ns, now, memory_order_relaxed);
    if (now - before >= LOOK_NS)
        return uhal_hsa_check_work(device);
    atomic_store_explicit(&device->looked_ns, before, memory_order_relaxed);
    return uhal_hsa_check(device);
}

int uhal_hsa_overdue(uhal_hsa_device *device) {
    return uhal_hsa_told(device, lose(device, NULL, UHAL_HSA_LOST_DEADLINE,
                                      "nothing was done for %" PRIu64 " ms",
                                      uhal_hsa.settings.deadline_ns / 1000000));
}

uhalHsaResult uhalHsaFaultText(char *text, size_t bytes) {
    pthread_mutex_lock(&fault_lock);
    snprintf(text, bytes, "%s", told_of != NULL ? told_of->fault : "");
    pthread_mutex_unlock(&fault_lock);
    return 0;
}
