#define _POSIX_C_SOURCE 200809L

#include "device.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "fault.h"
#include "ranges.h"
#include "staging.h"
#include "wait.h"

static _Thread_local uhal_hsa_device *current;

static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
static uhal_hsa_device *_Atomic open_devices[UHAL_HSA_MAX_DEVICES];
static uint32_t open_count;
static int watching;

uhal_hsa_device *uhal_hsa_current(void) { return current; }

uhalHsaResult uhalHsaCtxGetCurrent(void **context) {
    *context = current;
    return 0;
}

uhalHsaResult uhalHsaCtxSetCurrent(void *context) {
    current = context;
    return 0;
}

uhal_hsa_device *uhal_hsa_device_numbered(uint32_t ordinal) {
    return atomic_load(&open_devices[ordinal]);
}

uhal_hsa_device *uhal_hsa_device_of(hsa_agent_t agent) {
    for (uint32_t ordinal = 0; ordinal < UHAL_HSA_MAX_DEVICES; ++ordinal) {
        uhal_hsa_device *device = uhal_hsa_device_numbered(ordinal);
        if (device != NULL && device->agent.handle == agent.handle)
            return device;
    }
    return NULL;
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

/* The runtime calls this on its own thread, which our exit must not stop. */
static hsa_status_t system_event(const hsa_amd_event_t *event, void *data) {
    (void)data;
    /* Every kind of event has the agent at this offset. */
    uhal_hsa_device *device = uhal_hsa_device_of(event->memory_fault.agent);
    if (device == NULL)
        return HSA_STATUS_ERROR; /* another library's: behave as if uhal were absent */
    if (event->event_type == HSA_AMD_GPU_HW_EXCEPTION_EVENT) {
        uhal_hsa_lose(device, NULL, UHAL_HSA_LOST_EXCEPTION, "the device met a hardware exception");
        return HSA_STATUS_SUCCESS;
    }
    char reasons[160];
    char where[120];
    const uint64_t address = event->memory_fault.virtual_address;
    tell_reasons(event->memory_fault.fault_reason_mask, reasons, sizeof reasons);
    uhal_hsa_ranges_describe(address, where, sizeof where);
    uhal_hsa_lose(device, NULL, UHAL_HSA_LOST_MEMORY_FAULT, "at address 0x%" PRIx64 " (%s): %s",
                  address, where, reasons[0] != '\0' ? reasons : "no reason was told");
    return HSA_STATUS_SUCCESS;
}

/* -- open and close ---------------------------------------------------------------------------- */

uhalHsaResult uhalHsaDeviceOpen(void **context, const uhalHsaDeviceInfo *info) {
    if (info->ordinal >= UHAL_HSA_MAX_DEVICES)
        return HSA_STATUS_ERROR_INVALID_ARGUMENT;
    uhal_hsa_device *device = calloc(1, sizeof *device);
    if (device == NULL)
        return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
    device->info = *info;
    device->agent.handle = info->agent;
    device->host.handle = info->host_agent;
    pthread_mutex_init(&device->lock, NULL);
    pthread_mutex_lock(&open_lock);
    if (!watching) {
        /* Another library of the process may have a handler already: then that handler decides. */
        uhal_hsa.hsa.hsa_amd_register_system_event_handler(system_event, NULL);
        watching = 1;
    }
    atomic_store(&open_devices[info->ordinal], device);
    open_count += 1;
    pthread_mutex_unlock(&open_lock);
    *context = device;
    return 0;
}

/* The runtime's thread may still be in the last callback after its stream is done. */
static void wait_for_callbacks(uhal_hsa_queue *queue) {
    int waiting = 1;
    while (waiting) {
        pthread_mutex_lock(&queue->callback_lock);
        waiting = queue->first_callback != NULL;
        pthread_mutex_unlock(&queue->callback_lock);
        if (waiting)
            sched_yield();
    }
}

static int close_queues(uhal_hsa_device *device) {
    int status = 0;
    for (uint32_t i = 0; i < device->queue_count && status == 0; ++i) {
        uhal_hsa_queue *queue = device->queues[i];
        status = uhal_hsa_wait_queue(queue, uhal_aql_submitted(&queue->writer));
    }
    if (status != 0)
        return status;
    for (uint32_t i = 0; i < device->queue_count; ++i) {
        wait_for_callbacks(device->queues[i]);
        uhal_hsa_queue_reap(device->queues[i]);
        uhal_hsa_queue_close(device->queues[i]);
    }
    return 0;
}

uhalHsaResult uhalHsaDeviceClose(void *context) {
    uhal_hsa_device *device = context;
    const int lost = close_queues(device) != 0;
    pthread_mutex_lock(&open_lock);
    if (uhal_hsa_device_numbered(device->info.ordinal) == device)
        atomic_store(&open_devices[device->info.ordinal], NULL);
    open_count -= 1;
    const int last = open_count == 0;
    pthread_mutex_unlock(&open_lock);
    if (current == device)
        current = NULL;
    if (lost)
        return 0; /* hanging work may still use its queues and memory */
    uhal_hsa_staging_drop(device);
    pthread_mutex_destroy(&device->lock);
    free(device);
    if (last)
        uhal_hsa_signals_drop();
    return 0;
}

uhalHsaResult uhalHsaDeviceSynchronize(void *context) {
    uhal_hsa_device *device = context;
    pthread_mutex_lock(&device->lock);
    const uint32_t count = device->queue_count;
    pthread_mutex_unlock(&device->lock);
    int status = uhal_hsa_check(device);
    /* Queues are only added while the device is open. */
    for (uint32_t i = 0; i < count && status == 0; ++i) {
        uhal_hsa_queue *queue = device->queues[i];
        status = uhal_hsa_wait_queue(queue, uhal_aql_submitted(&queue->writer));
    }
    return status;
}

uhalHsaResult uhalHsaDeviceAllocated(size_t *bytes, void *context) {
    *bytes = atomic_load(&((uhal_hsa_device *)context)->allocated);
    return 0;
}

/* -- queues ------------------------------------------------------------------------------------ */

hsa_status_t uhal_hsa_device_join_queue(uhal_hsa_device *device, uhal_hsa_queue **joined) {
    const uint32_t wanted = uhal_hsa.settings.queues;
    const int exclusive = wanted == 0;
    const uint32_t most = exclusive || wanted > UHAL_HSA_MAX_QUEUES ? UHAL_HSA_MAX_QUEUES : wanted;
    hsa_status_t status = HSA_STATUS_SUCCESS;
    uhal_hsa_queue *found = NULL;
    pthread_mutex_lock(&device->lock);
    for (uint32_t i = 0; i < device->queue_count; ++i)
        if (found == NULL || device->queues[i]->streams < found->streams)
            found = device->queues[i];
    if ((found == NULL || found->streams > 0) && device->queue_count < most) {
        status = uhal_hsa_queue_open(device, &found);
        if (status == HSA_STATUS_SUCCESS)
            device->queues[device->queue_count++] = found;
    } else if (exclusive && found->streams > 0) {
        status = HSA_STATUS_ERROR_OUT_OF_RESOURCES;
    }
    if (status == HSA_STATUS_SUCCESS) {
        found->streams += 1;
        *joined = found;
    }
    pthread_mutex_unlock(&device->lock);
    return status;
}

void uhal_hsa_device_leave_queue(uhal_hsa_queue *queue) {
    pthread_mutex_lock(&queue->device->lock);
    queue->streams -= 1;
    pthread_mutex_unlock(&queue->device->lock);
}

hsa_status_t uhal_hsa_device_time(uhal_hsa_device *device) {
    hsa_status_t status = HSA_STATUS_SUCCESS;
    if (atomic_load(&device->timed))
        return status;
    pthread_mutex_lock(&device->lock);
    for (uint32_t i = 0; i < device->queue_count && status == HSA_STATUS_SUCCESS; ++i)
        status = uhal_hsa.hsa.hsa_amd_profiling_set_profiler_enabled(device->queues[i]->native, 1);
    if (status == HSA_STATUS_SUCCESS)
        atomic_store(&device->timed, 1);
    pthread_mutex_unlock(&device->lock);
    return status;
}
