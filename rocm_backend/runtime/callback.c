/* Host callbacks. Each callback has a signal behind the earlier work, and a handler of the runtime
 * for the signal. The runtime calls handlers in any order, but uhal calls a queue's callbacks in
 * the queue's order. Callbacks must be brief, because they run on the runtime's thread.
 */
#include <stdlib.h>

#include "capture.h"
#include "fault.h"

typedef struct uhal_hsa_callback {
    uhal_hsa_queue *queue;
    uhal_hsa_mark *mark;
    uhal_host_function function;
    void *user_data;
    atomic_int holders; /* the list and the handler */
    struct uhal_hsa_callback *next;
} callback;

static void drop(callback *one) {
    if (atomic_fetch_sub(&one->holders, 1) != 1)
        return;
    uhal_hsa_mark_drop(one->mark);
    free(one);
}

/* Calls all functions whose turn has come. */
static bool fire(hsa_signal_value_t value, void *data) {
    (void)value;
    callback *mine = data;
    uhal_hsa_queue *queue = mine->queue;
    callback *called = NULL;
    pthread_mutex_lock(&queue->callback_lock);
    while (queue->first_callback != NULL &&
           uhal_hsa_signal_done(queue->first_callback->mark->signal)) {
        callback *due = queue->first_callback;
        queue->first_callback = due->next;
        due->next = called;
        called = due;
        due->function(due->user_data);
    }
    pthread_mutex_unlock(&queue->callback_lock);
    while (called != NULL) {
        callback *next = called->next;
        drop(called);
        called = next;
    }
    drop(mine);
    return false;
}

/* Removes the newest callback. The caller holds the lock. */
static void take_back(uhal_hsa_queue *queue, callback *newest) {
    callback *before = NULL;
    for (callback *one = queue->first_callback; one != newest; one = one->next)
        before = one;
    if (before == NULL)
        queue->first_callback = NULL;
    else
        before->next = NULL;
    queue->last_callback = before;
}

uhalHsaResult uhalHsaLaunchHostFunc(void *handle, uhal_host_function function, void *user_data) {
    uhal_hsa_stream *stream = handle;
    uhal_hsa_queue *queue = stream->queue;
    int status = uhal_hsa_check(queue->device);
    if (status != 0)
        return status;
    if (uhal_hsa_capturing(stream))
        return uhal_hsa_capture_refuse(stream, "a host function");
    callback *made = malloc(sizeof *made);
    if (made == NULL)
        return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
    made->queue = queue;
    made->function = function;
    made->user_data = user_data;
    made->next = NULL;
    atomic_init(&made->holders, 2);
    pthread_mutex_lock(&queue->callback_lock);
    status = uhal_hsa_queue_mark(queue, NULL, 0, &made->mark);
    if (status == 0) {
        if (queue->first_callback == NULL)
            queue->first_callback = made;
        else
            queue->last_callback->next = made;
        queue->last_callback = made;
        uhal_hsa_stream_advance(stream, made->mark->upto);
        status = (int)uhal_hsa.hsa.hsa_amd_signal_async_handler(
            made->mark->signal, HSA_SIGNAL_CONDITION_LT, 1, fire, made);
        if (status != 0) {
            take_back(queue, made);
            uhal_hsa_mark_drop(made->mark);
        }
    }
    pthread_mutex_unlock(&queue->callback_lock);
    if (status != 0)
        free(made);
    return status;
}
