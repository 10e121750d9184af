/* Host callbacks for a library without callbacks.
 *
 * If the library has events, an event is recorded after the stream's work. A thread polls all
 * events, so that no stream waits for another's callback. Later work of the stream does not wait
 * for the function; no caller of the slot relies on that. Without events the caller waits for the
 * stream and calls the function. */
#include "emulation.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

struct call {
    void *context;
    void *event;
    uhal_host_function function;
    void *user_data;
    struct call *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t given = PTHREAD_COND_INITIALIZER;
static struct call *first;
static struct call **end = &first;
static int started;

static void finish(struct call *call) {
    uhal_base.event_destroy(call->event);
    call->function(call->user_data);
    free(call);
}

/* Removes the calls whose work is done from `pending`, in order; returns whether any were removed.
 * A failed query counts as done: waits for the stream report the fault. */
static int finish_passed(struct call **pending) {
    int any = 0;
    while (*pending != NULL) {
        struct call *call = *pending;
        uhal_base.bind(call->context);
        if (uhal_base.event_query(call->event) == uhal_base.not_ready) {
            pending = &call->next;
            continue;
        }
        *pending = call->next;
        finish(call);
        any = 1;
    }
    return any;
}

static void *serve(void *nothing) {
    enum { LEAST_SLEEP = 20000, MOST_SLEEP = 1000000 }; /* ns */
    struct call *pending = NULL;
    struct timespec pause = {0, LEAST_SLEEP};
    (void)nothing;
    for (;;) {
        struct call **last = &pending;
        while (*last != NULL)
            last = &(*last)->next;
        pthread_mutex_lock(&lock);
        while (pending == NULL && first == NULL)
            pthread_cond_wait(&given, &lock);
        *last = first;
        first = NULL;
        end = &first;
        pthread_mutex_unlock(&lock);
        if (finish_passed(&pending)) {
            pause.tv_nsec = LEAST_SLEEP;
        } else {
            nanosleep(&pause, NULL);
            pause.tv_nsec = pause.tv_nsec < MOST_SLEEP / 2 ? pause.tv_nsec * 2 : MOST_SLEEP;
        }
    }
    return NULL;
}

static int enqueue(struct call *call) {
    pthread_t thread;
    pthread_mutex_lock(&lock);
    if (!started) {
        if (pthread_create(&thread, NULL, serve, NULL) != 0) {
            pthread_mutex_unlock(&lock);
            return uhal_base.out_of_memory;
        }
        pthread_detach(thread);
        started = 1;
    }
    *end = call;
    end = &call->next;
    pthread_cond_signal(&given);
    pthread_mutex_unlock(&lock);
    return 0;
}

int uhal_emulated_stream_callback(void *stream, uhal_host_function function, void *user_data) {
    enum { WITHOUT_TIMING = 2 }; /* CU_EVENT_DISABLE_TIMING */
    struct call *call;
    int status = 0;
    if (uhal_base.event_create == NULL) {
        if (uhal_base.stream_synchronize != NULL)
            status = uhal_base.stream_synchronize(stream);
        if (status == 0)
            function(user_data);
        return status;
    }
    call = calloc(1, sizeof(*call));
    if (call == NULL)
        return uhal_base.out_of_memory;
    call->function = function;
    call->user_data = user_data;
    status = uhal_base.current(&call->context);
    if (status == 0)
        status = uhal_base.event_create(&call->event, WITHOUT_TIMING);
    if (status != 0) {
        free(call);
        return status;
    }
    status = uhal_base.event_record(call->event, stream);
    if (status == 0)
        status = enqueue(call);
    if (status != 0) {
        uhal_base.event_destroy(call->event);
        free(call);
    }
    return status;
}
