/* The state word: one word per stream, tested once per launch; all rare cases set a bit in it.
 *
 * All words of the process are in one linked list. The child of a fork walks this list and marks
 * every word before the child's first Python instruction. The list changes only under the GIL, and
 * Python forks with the GIL held.
 */
#ifndef UHAL_STATE_WORD_H
#define UHAL_STATE_WORD_H

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

enum {
    UHAL_STATE_LOST = 1,      /* the device answered a sticky error */
    UHAL_STATE_CAPTURING = 2, /* launches are recorded, not run */
    UHAL_STATE_BLOCKING = 4,  /* UHAL_LAUNCH_BLOCKING: wait after every launch */
    UHAL_STATE_MARKING = 8,   /* UHAL_LAUNCH_MARKS: write a progress word now and then */
    UHAL_STATE_FORKED = 16,   /* made in the parent of this process */
    UHAL_STATE_CLOSED = 32,
    UHAL_STATE_BARRED = 64,    /* another stream is captured: check before enqueueing */
    UHAL_STATE_PROFILED = 128, /* a profile records this stream's work */
    UHAL_STATE_PYTHON = 256,   /* a slot is a Python function, so other threads run during a call */
    UHAL_STATE_OBSERVED = 512, /* an observer is called before work is enqueued */
    UHAL_STATE_REFUSES = UHAL_STATE_LOST | UHAL_STATE_FORKED | UHAL_STATE_CLOSED,
    UHAL_STATE_DIVERTS = UHAL_STATE_REFUSES | UHAL_STATE_CAPTURING | UHAL_STATE_BARRED |
        UHAL_STATE_PROFILED | UHAL_STATE_PYTHON | UHAL_STATE_OBSERVED,
    UHAL_STATE_WATCHED = UHAL_STATE_CAPTURING | UHAL_STATE_PROFILED,
};

typedef struct uhal_state {
    uint32_t word;
    struct uhal_state *previous;
    struct uhal_state *next;
} uhal_state;

static uhal_state uhal_states = {0, &uhal_states, &uhal_states};
static unsigned int uhal_fork_count = 0;

static uhal_state *uhal_state_new(void) {
    uhal_state *state = (uhal_state *)calloc(1, sizeof(uhal_state));
    if (state != NULL) {
        state->previous = &uhal_states;
        state->next = uhal_states.next;
        state->next->previous = state;
        uhal_states.next = state;
    }
    return state;
}

static void uhal_state_delete(uhal_state *state) {
    if (state != NULL) {
        state->previous->next = state->next;
        state->next->previous = state->previous;
        free(state);
    }
}

static void uhal_state_forked(void) {
    uhal_fork_count++;
    for (uhal_state *state = uhal_states.next; state != &uhal_states; state = state->next) {
        state->word |= UHAL_STATE_FORKED;
    }
}

static int uhal_state_watch_forks(void) { return pthread_atfork(NULL, NULL, uhal_state_forked); }

#endif
