/* Host callbacks: a marker behind the earlier work, and OpenCL's callback when the marker is done.
 * OpenCL's callbacks fire in any order; ours are called in the queue's order. Callbacks must be
 * brief, because they run on a driver's thread.
 */
#include "stream.h"

#include <stdbool.h>
#include <stdlib.h>

typedef struct uhal_cl_callback {
    uhal_cl_stream *stream;
    uhal_host_function function;
    void *user_data;
    bool due;
    struct uhal_cl_callback *next;
} callback;

/* Calls all functions whose turn has come. */
static void fire(cl_event event, cl_int status, void *data) {
    (void)event;
    (void)status; /* also after a failure: waiting threads must not wait for ever */
    callback *mine = data;
    uhal_cl_stream *stream = mine->stream;
    pthread_mutex_lock(&stream->lock);
    mine->due = true;
    while (stream->first_callback != NULL && stream->first_callback->due) {
        callback *one = stream->first_callback;
        stream->first_callback = one->next;
        if (one->next == NULL)
            stream->last_callback = NULL;
        one->function(one->user_data);
        free(one);
        uhal_cl_stream_drop(stream); /* this call still holds its own reference */
    }
    pthread_mutex_unlock(&stream->lock);
    uhal_cl_stream_drop(stream);
}

/* Removes the newest callback. The lock is held. */
static void take_back(uhal_cl_stream *stream, const callback *newest) {
    callback *before = NULL;
    for (callback *one = stream->first_callback; one != newest; one = one->next)
        before = one;
    if (before == NULL)
        stream->first_callback = NULL;
    else
        before->next = NULL;
    stream->last_callback = before;
}

uhalClResult uhalClLaunchHostFunc(void *handle, uhal_host_function function, void *user_data) {
    uhal_cl_stream *stream = handle;
    callback *made = calloc(1, sizeof *made);
    if (made == NULL)
        return CL_OUT_OF_HOST_MEMORY;
    made->stream = stream;
    made->function = function;
    made->user_data = user_data;
    /* One reference for the list, one for the call. */
    uhal_cl_stream_hold(stream);
    uhal_cl_stream_hold(stream);
    cl_event mark = NULL;
    pthread_mutex_lock(&stream->lock);
    int status = uhal_cl.cl.clEnqueueMarkerWithWaitList(stream->queue, 0, NULL, &mark);
    if (status == 0) {
        if (stream->last_callback == NULL)
            stream->first_callback = made;
        else
            stream->last_callback->next = made;
        stream->last_callback = made;
    }
    pthread_mutex_unlock(&stream->lock);
    if (status == 0) {
        /* Release the lock first, because OpenCL may call the callback at once, on this thread. */
        status = uhal_cl.cl.clSetEventCallback(mark, CL_COMPLETE, fire, made);
        if (status != 0) {
            pthread_mutex_lock(&stream->lock);
            take_back(stream, made);
            pthread_mutex_unlock(&stream->lock);
        }
        uhal_cl.cl.clReleaseEvent(mark);
    }
    if (status != 0) {
        free(made);
        uhal_cl_stream_drop(stream);
        uhal_cl_stream_drop(stream);
        return status;
    }
    atomic_fetch_add(&stream->submitted, 1);
    return uhal_cl.cl.clFlush(stream->queue);
}
