/* Events for a library without events: recording waits for the stream. */
#include "emulation.h"

#include <stdint.h>
#include <stdlib.h>
#include <time.h>

struct event {
    int64_t nanoseconds; /* time of recording; may be read by another thread than the writer */
};

int uhal_emulated_event_create(void **event, unsigned int flags) {
    (void)flags;
    *event = calloc(1, sizeof(struct event));
    return *event != NULL ? 0 : uhal_base.out_of_memory;
}

int uhal_emulated_event_destroy(void *event) {
    free(event);
    return 0;
}

int uhal_emulated_event_record(void *event, void *stream) {
    struct timespec now;
    const int status =
        uhal_base.stream_synchronize != NULL ? uhal_base.stream_synchronize(stream) : 0;
    if (status != 0)
        return status;
    clock_gettime(CLOCK_MONOTONIC, &now);
    ((struct event *)event)->nanoseconds = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    return 0;
}

int uhal_emulated_event_synchronize(void *event) {
    (void)event;
    return 0;
}

int uhal_emulated_event_query(void *event) {
    (void)event;
    return 0;
}

int uhal_emulated_event_elapsed(float *milliseconds, void *start, void *end) {
    const struct event *first = start;
    const struct event *last = end;
    *milliseconds = (float)((double)(last->nanoseconds - first->nanoseconds) / 1e6);
    return 0;
}

int uhal_emulated_stream_wait_event(void *stream, void *event, unsigned int flags) {
    (void)stream;
    (void)event;
    (void)flags;
    return 0;
}
