#include "capture.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fault.h"

enum { WORDS_BYTES = 200 };

typedef struct member {
    uhal_hsa_stream *stream; /* NULL once the stream is destroyed */
    uint64_t behind[UHAL_HSA_CAPTURE_STREAMS];
} member;

typedef struct uhal_hsa_capture {
    uhal_hsa_graph *graph; /* NULL when the capture is over */
    uint32_t count;
    uint32_t holders;                         /* its streams and the points of events */
    char spoilt[WORDS_BYTES];                 /* the invalidating call, or empty */
    member members[UHAL_HSA_CAPTURE_STREAMS]; /* the first stream, then the joined streams */
} capture;

static pthread_mutex_t capture_lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local char told[WORDS_BYTES];

/* -- words; the lock is held ------------------------------------------------------------------- */

__attribute__((format(printf, 2, 3))) static int tell(int code, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(told, sizeof told, format, arguments);
    va_end(arguments);
    return code;
}

/* The capture keeps the first reason, and reports it at the end. */
static int spoil(capture *one, int code, const char *words) {
    if (one->spoilt[0] == '\0')
        snprintf(one->spoilt, sizeof one->spoilt, "%s", words);
    return tell(code, "%s", words);
}

static int tell_spoilt(const capture *one) {
    return tell(UHAL_HSA_CAPTURE_INVALIDATED, "the capture was spoilt: %.*s", WORDS_BYTES / 2,
                one->spoilt);
}

static int tell_ended(void) {
    return tell(UHAL_HSA_ILLEGAL_STATE, "the capture of the stream was ended by another thread");
}

uhalHsaResult uhalHsaCaptureText(char *text, size_t bytes) {
    snprintf(text, bytes, "%s", told);
    return 0;
}

/* -- members; the lock is held ----------------------------------------------------------------- */

static capture *capture_of(uhal_hsa_stream *stream) { return atomic_load(&stream->capture); }

static uint32_t number_of(const capture *one, const uhal_hsa_stream *stream) {
    uint32_t number = 0;
    while (one->members[number].stream != stream)
        number += 1;
    return number;
}

static void let_go(capture *one) {
    if (--one->holders == 0) {
        uhal_hsa_graph_delete(one->graph);
        free(one);
    }
}

static void add_member(capture *one, uhal_hsa_stream *stream) {
    one->members[one->count++].stream = stream;
    one->holders += 1;
    atomic_store(&stream->capture, one);
}

/* Ends recording: the capture's streams run new work again. */
static void finish(capture *one) {
    one->holders += 1;
    uhal_hsa_graph_delete(one->graph);
    one->graph = NULL;
    for (uint32_t i = 0; i < one->count; ++i)
        if (one->members[i].stream != NULL) {
            atomic_store(&one->members[i].stream->capture, NULL);
            let_go(one);
        }
    one->count = 0;
    let_go(one);
}

/* The number of a stream whose steps the first stream does not wait for; 0: no stream. */
static uint32_t unjoined(const capture *one) {
    for (uint32_t i = 1; i < one->count; ++i)
        if (one->members[0].behind[i] < one->members[i].behind[i])
            return i;
    return 0;
}

/* -- beginning and ending ---------------------------------------------------------------------- */

uhalHsaResult uhalHsaStreamBeginCapture(void *handle, int mode) {
    uhal_hsa_stream *stream = handle;
    const int lost = uhal_hsa_check(stream->queue->device);
    if (lost != 0)
        return lost;
    if (mode != UHAL_HSA_STREAM_CAPTURE_MODE_RELAXED)
        return HSA_STATUS_ERROR_INVALID_ARGUMENT;
    capture *one = calloc(1, sizeof *one);
    uhal_hsa_graph *graph = uhal_hsa_graph_new(stream->queue->device);
    int status = one == NULL || graph == NULL ? HSA_STATUS_ERROR_OUT_OF_RESOURCES : 0;
    pthread_mutex_lock(&capture_lock);
    if (status == 0 && capture_of(stream) != NULL)
        status = tell(UHAL_HSA_ILLEGAL_STATE, "the stream captures already");
    if (status == 0) {
        one->graph = graph;
        add_member(one, stream);
    }
    pthread_mutex_unlock(&capture_lock);
    if (status != 0) {
        uhal_hsa_graph_delete(graph);
        free(one);
    }
    return status;
}

static int end(uhal_hsa_stream *stream, capture *one, void **graph) {
    if (one->members[0].stream != stream)
        return spoil(one, UHAL_HSA_CAPTURE_UNMATCHED,
                     "it was to be ended on a stream it did not begin on");
    int status = uhal_hsa_check(stream->queue->device);
    const uint32_t number = unjoined(one);
    if (status == 0 && one->spoilt[0] != '\0') {
        status = tell_spoilt(one);
    } else if (status == 0 && number != 0) {
        status = tell(UHAL_HSA_CAPTURE_UNJOINED,
                      "the stream that joined the capture as number %u has work that the one it "
                      "began on does not wait for",
                      number);
    } else if (status == 0) {
        *graph = one->graph;
        one->graph = NULL;
    }
    finish(one);
    return status;
}

uhalHsaResult uhalHsaStreamEndCapture(void *handle, void **graph) {
    uhal_hsa_stream *stream = handle;
    pthread_mutex_lock(&capture_lock);
    capture *one = capture_of(stream);
    const int status = one != NULL ? end(stream, one, graph)
                                   : tell(UHAL_HSA_ILLEGAL_STATE, "the stream captures nothing");
    pthread_mutex_unlock(&capture_lock);
    return status;
}

uhalHsaResult uhalHsaStreamIsCapturing(void *handle, int *status) {
    pthread_mutex_lock(&capture_lock);
    const capture *one = capture_of(handle);
    if (one == NULL)
        *status = UHAL_HSA_STREAM_CAPTURE_STATUS_NONE;
    else if (one->spoilt[0] == '\0')
        *status = UHAL_HSA_STREAM_CAPTURE_STATUS_ACTIVE;
    else
        *status = UHAL_HSA_STREAM_CAPTURE_STATUS_INVALIDATED;
    pthread_mutex_unlock(&capture_lock);
    return 0;
}

void uhal_hsa_capture_leave(uhal_hsa_stream *stream) {
    pthread_mutex_lock(&capture_lock);
    capture *one = capture_of(stream);
    if (one != NULL) {
        const uint32_t number = number_of(one, stream);
        if (number == 0) {
            finish(one);
        } else {
            /* As with CUDA, the stream's recorded steps stay, and the first stream must still wait
             * for them. */
            one->members[number].stream = NULL;
            let_go(one);
        }
    }
    pthread_mutex_unlock(&capture_lock);
}

/* -- recording --------------------------------------------------------------------------------- */

/* Returns 0 if the stream can record. The caller holds the lock. */
static int check(const capture *one) {
    if (one == NULL)
        return tell_ended();
    return one->spoilt[0] == '\0' ? 0 : tell_spoilt(one);
}

static void count_step(capture *one, const uhal_hsa_stream *stream) {
    const uint32_t number = number_of(one, stream);
    one->members[number].behind[number] += 1;
}

int uhal_hsa_capture_launch(uhal_hsa_stream *stream, const uhal_aql_kernel *kernel,
                            const uhal_aql_geometry *geometry, void *const *parameters) {
    int status = uhal_hsa_check(stream->queue->device);
    if (status != 0)
        return status;
    pthread_mutex_lock(&capture_lock);
    capture *one = capture_of(stream);
    status = check(one);
    if (status == 0)
        status = uhal_hsa_graph_add_launch(one->graph, kernel, geometry, parameters,
                                           stream->queue->native);
    if (status == 0)
        count_step(one, stream);
    pthread_mutex_unlock(&capture_lock);
    return status;
}

int uhal_hsa_capture_step(uhal_hsa_stream *stream, const uhal_hsa_step *step) {
    int status = uhal_hsa_check(stream->queue->device);
    if (status != 0)
        return status;
    pthread_mutex_lock(&capture_lock);
    capture *one = capture_of(stream);
    status = check(one);
    if (status == 0)
        status = uhal_hsa_graph_add_step(one->graph, step);
    if (status == 0)
        count_step(one, stream);
    pthread_mutex_unlock(&capture_lock);
    return status;
}

int uhal_hsa_capture_refuse(uhal_hsa_stream *stream, const char *what) {
    char words[WORDS_BYTES];
    snprintf(words, sizeof words, "%s on a stream that captures", what);
    pthread_mutex_lock(&capture_lock);
    capture *one = capture_of(stream);
    const int status = one != NULL ? spoil(one, UHAL_HSA_CAPTURE_UNSUPPORTED, words) : tell_ended();
    pthread_mutex_unlock(&capture_lock);
    return status;
}

/* -- events ------------------------------------------------------------------------------------ */

int uhal_hsa_capture_record(uhal_hsa_stream *stream, uhal_hsa_point **made) {
    uhal_hsa_point *point = malloc(sizeof *point);
    if (point == NULL)
        return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
    pthread_mutex_lock(&capture_lock);
    capture *one = capture_of(stream);
    const int status = one == NULL ? tell_ended() : 0;
    if (status == 0) {
        const member *where = &one->members[number_of(one, stream)];
        memcpy(point->behind, where->behind, sizeof point->behind);
        point->capture = one;
        one->holders += 1;
        *made = point;
    }
    pthread_mutex_unlock(&capture_lock);
    if (status != 0)
        free(point);
    return status;
}

void uhal_hsa_point_delete(uhal_hsa_point *point) {
    if (point == NULL)
        return;
    pthread_mutex_lock(&capture_lock);
    let_go(point->capture);
    pthread_mutex_unlock(&capture_lock);
    free(point);
}

static int join(uhal_hsa_stream *stream, const uhal_hsa_point *point) {
    capture *one = point->capture;
    capture *own = capture_of(stream);
    if (one->graph == NULL) {
        const char *words = "a wait for an event that was recorded in a capture now over";
        return own != NULL ? spoil(own, UHAL_HSA_CAPTURED_EVENT, words)
                           : tell(UHAL_HSA_CAPTURED_EVENT, "%s", words);
    }
    if (own != NULL && own != one) {
        const char *words = "a wait for an event of another capture";
        spoil(own, UHAL_HSA_CAPTURE_MERGE, words);
        return spoil(one, UHAL_HSA_CAPTURE_MERGE, words);
    }
    if (stream->queue->device != one->graph->device)
        return spoil(one, UHAL_HSA_CAPTURE_UNSUPPORTED, "a wait by a stream of another device");
    if (own == NULL && one->count == UHAL_HSA_CAPTURE_STREAMS)
        return spoil(one, UHAL_HSA_CAPTURE_UNSUPPORTED, "a wait by one stream too many");
    if (own == NULL)
        add_member(one, stream);
    member *joined = &one->members[number_of(one, stream)];
    for (uint32_t i = 0; i < UHAL_HSA_CAPTURE_STREAMS; ++i)
        if (joined->behind[i] < point->behind[i])
            joined->behind[i] = point->behind[i];
    return 0;
}

int uhal_hsa_capture_wait(uhal_hsa_stream *stream, const uhal_hsa_point *point) {
    pthread_mutex_lock(&capture_lock);
    capture *own = capture_of(stream);
    int status;
    if (point != NULL)
        status = join(stream, point);
    else if (own != NULL)
        status = spoil(own, UHAL_HSA_CAPTURE_ISOLATION,
                       "a wait for an event that was recorded outside of the capture");
    else
        status = tell_ended();
    pthread_mutex_unlock(&capture_lock);
    return status;
}

int uhal_hsa_capture_no_time(void) {
    return tell(UHAL_HSA_CAPTURED_EVENT, "the event was recorded on a stream that captured");
}
