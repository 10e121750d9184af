#include "wait.h"

#include <stdio.h>

#include "copy_list.h"
#include "fault.h"

enum { LOOK_NS = 1000000 /* between two checks of all pending work */ };

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
    return code == 0 ? 0 : uhal_hsa_told(device, uhal_hsa_lose(device, NULL, code, "%s", words));
}

int uhal_hsa_check_now_and_then(uhal_hsa_device *device) {
    const uint64_t now = uhal_hsa_now_ns();
    const uint64_t before = atomic_exchange_explicit(&device->looked_ns, now, memory_order_relaxed);
    if (now - before >= LOOK_NS)
        return uhal_hsa_check_work(device);
    atomic_store_explicit(&device->looked_ns, before, memory_order_relaxed);
    return uhal_hsa_check(device);
}

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
