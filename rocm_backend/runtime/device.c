#define _POSIX_C_SOURCE 200809L

#include "device.h"

#include <sched.h>
#include <stdlib.h>

#include "copy.h"
#include "fault.h"
#include "staging.h"

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
        /* Another library of the process may have one already: then it decides what a fault does. */
        uhal_hsa.hsa.hsa_amd_register_system_event_handler(uhal_hsa_system_event, NULL);
        watching = 1;
    }
    atomic_store(&open_devices[info->ordinal], device);
    open_count += 1;
    pthread_mutex_unlock(&open_lock);
    *context = device;
    return 0;
}

/* The runtime's thread may still be in the last callback when its stream is done. */
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
        return 0; /* its queues and memory may still be in use by what hangs on it */
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

/* -- waiting ----------------------------------------------------------------------------------- */

static const uhal_hsa_patience FOR_EVER = {NULL, NULL};

int uhal_hsa_wait_while(uhal_hsa_device *device, hsa_signal_t signal, uhal_hsa_patience patience) {
    const uint64_t deadline_ns = uhal_hsa.settings.deadline_ns;
    const uint64_t began = uhal_hsa_now_ns();
    for (;;) {
        const hsa_signal_value_t value = uhal_hsa.hsa.hsa_signal_wait_scacquire(
            signal, HSA_SIGNAL_CONDITION_LT, 1, uhal_hsa.slice_ticks, HSA_WAIT_STATE_BLOCKED);
        if (value == 0)
            return 0;
        const int status = uhal_hsa_check_work(device);
        if (status != 0)
            return status;
        if (deadline_ns != 0 && uhal_hsa_now_ns() - began > deadline_ns)
            return uhal_hsa_overdue(device);
        if (patience.go_on != NULL && patience.go_on(patience.user_data) == 0)
            return UHAL_HSA_NOT_READY;
    }
}

int uhal_hsa_wait(uhal_hsa_device *device, hsa_signal_t signal) {
    return uhal_hsa_wait_while(device, signal, FOR_EVER);
}

int uhal_hsa_wait_queue_while(uhal_hsa_queue *queue, uint64_t upto, uhal_hsa_patience patience) {
    uhal_hsa_mark *mark;
    int status = uhal_hsa_queue_cover(queue, upto, &mark);
    if (status != 0 || mark == NULL)
        return status;
    status = uhal_hsa_wait_while(queue->device, mark->signal, patience);
    uhal_hsa_mark_drop(mark);
    if (status == 0)
        uhal_hsa_queue_reap(queue);
    return status;
}

int uhal_hsa_wait_queue(uhal_hsa_queue *queue, uint64_t upto) {
    return uhal_hsa_wait_queue_while(queue, upto, FOR_EVER);
}
