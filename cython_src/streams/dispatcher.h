/* The hand-over from driver threads to Python. A driver thread only queues host callbacks and never
 * takes the GIL. The dispatcher thread takes the callbacks from the queue.
 */
#ifndef UHAL_DISPATCHER_H
#define UHAL_DISPATCHER_H

#include <Python.h>
#include <pthread.h>
#include <stdlib.h>

typedef struct uhal_callback {
    PyObject *function; /* null: the dispatcher stops */
    PyObject *arguments;
    struct uhal_callback *next;
} uhal_callback;

static pthread_mutex_t uhal_callback_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t uhal_callback_ready = PTHREAD_COND_INITIALIZER;
static uhal_callback *uhal_callback_first = NULL;
static uhal_callback **uhal_callback_last = &uhal_callback_first;

static uhal_callback *uhal_callback_new(PyObject *function, PyObject *arguments) {
    uhal_callback *callback = (uhal_callback *)malloc(sizeof(uhal_callback));
    if (callback != NULL) {
        Py_XINCREF(function);
        Py_XINCREF(arguments);
        callback->function = function;
        callback->arguments = arguments;
        callback->next = NULL;
    }
    return callback;
}

static void uhal_callback_delete(uhal_callback *callback) {
    Py_XDECREF(callback->function);
    Py_XDECREF(callback->arguments);
    free(callback);
}

/* Runs on a driver thread, with the prototype that stream_callback expects. */
static void uhal_callback_post(void *user_data) {
    uhal_callback *callback = (uhal_callback *)user_data;
    pthread_mutex_lock(&uhal_callback_lock);
    *uhal_callback_last = callback;
    uhal_callback_last = &callback->next;
    pthread_cond_signal(&uhal_callback_ready);
    pthread_mutex_unlock(&uhal_callback_lock);
}

/* Blocks without the GIL until a callback has been posted. */
static uhal_callback *uhal_callback_take(void) {
    pthread_mutex_lock(&uhal_callback_lock);
    while (uhal_callback_first == NULL) {
        pthread_cond_wait(&uhal_callback_ready, &uhal_callback_lock);
    }
    uhal_callback *callback = uhal_callback_first;
    uhal_callback_first = callback->next;
    if (uhal_callback_first == NULL) {
        uhal_callback_last = &uhal_callback_first;
    }
    pthread_mutex_unlock(&uhal_callback_lock);
    return callback;
}

/* For the child of a fork: another thread may have held the lock, and posted callbacks belong to
 * the parent. */
static void uhal_callback_reset(void) {
    pthread_mutex_init(&uhal_callback_lock, NULL);
    pthread_cond_init(&uhal_callback_ready, NULL);
    uhal_callback_first = NULL;
    uhal_callback_last = &uhal_callback_first;
}

#endif
