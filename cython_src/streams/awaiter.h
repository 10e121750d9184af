/* Waits that a caller can give up, for a driver whose own waits end only with the work.
 *
 * A caller first polls for a moment, because most waits are short. Then a thread of ours blocks in
 * the driver's call. The caller waits for the thread in slices, and may give up between them. A
 * wait that was given up keeps its thread in the driver, and needs its event, until the work ends.
 * The number of threads is therefore small. If no thread is left, the caller polls at intervals.
 *
 * Threads are taken and given back under the GIL. They never use Python, and block all signals.
 */
#ifndef UHAL_AWAITER_H
#define UHAL_AWAITER_H

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include "hot_table.h"
#include "device/state_word.h"

enum {
    UHAL_MAX_AWAITERS = 4,
    UHAL_WAIT_SLICE_NS = 50 * 1000 * 1000, /* between two calls of `go_on` */
    UHAL_LOOK_NS = 1000 * 1000,            /* a thread costs its caller some 10 µs: 1 % of this */
    UHAL_LONGEST_NAP_NS = 1000 * 1000,
};

typedef int (*uhal_handle_call)(void *handle);

static inline int64_t uhal_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Polls a stream or event for a moment, and yields to other threads; returns the last answer. */
static int uhal_look(uhal_handle_call query, void *handle, int not_ready) {
    const int64_t end = uhal_now_ns() + UHAL_LOOK_NS;
    int status = query(handle);
    while (status == not_ready && uhal_now_ns() < end) {
        sched_yield();
        status = query(handle);
    }
    return status;
}

/* Polls a stream or event at growing intervals until it is ready or `go_on` returns 0. */
static int uhal_look_now_and_then(uhal_handle_call query, void *handle, int not_ready,
                                  uhal_go_on go_on, void *user_data) {
    int64_t asked = uhal_now_ns();
    int64_t nap = 20 * 1000;
    int status = uhal_look(query, handle, not_ready);
    while (status == not_ready) {
        const struct timespec pause = {0, (long)nap};
        nanosleep(&pause, NULL);
        nap = nap < UHAL_LONGEST_NAP_NS / 2 ? 2 * nap : UHAL_LONGEST_NAP_NS;
        if (uhal_now_ns() - asked > UHAL_WAIT_SLICE_NS) {
            if (!go_on(user_data))
                return not_ready;
            asked = uhal_now_ns();
        }
        status = query(handle);
    }
    return status;
}

/* -- threads ----------------------------------------------------------------------------------- */

typedef struct uhal_awaiter {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int waiting; /* 1: in the driver's call, or about to call it */
    int status;  /* the driver's answer, after the call */
    const uhal_hot_table *table;
    void *context;
    void *event;
    struct uhal_awaiter *next;
} uhal_awaiter;

static uhal_awaiter *uhal_idle_awaiters = NULL;
static unsigned int uhal_awaiters_in_use = 0;
static unsigned int uhal_awaiters_forks = 0;

static void *uhal_awaiter_run(void *given) {
    uhal_awaiter *awaiter = (uhal_awaiter *)given;
    pthread_mutex_lock(&awaiter->lock);
    for (;;) {
        while (!awaiter->waiting)
            pthread_cond_wait(&awaiter->changed, &awaiter->lock);
        pthread_mutex_unlock(&awaiter->lock);
        int status = awaiter->table->bind(awaiter->context);
        if (status == 0)
            status = awaiter->table->event_synchronize(awaiter->event);
        pthread_mutex_lock(&awaiter->lock);
        awaiter->status = status;
        awaiter->waiting = 0;
        pthread_cond_broadcast(&awaiter->changed);
    }
    return NULL;
}

static int uhal_awaiter_start(uhal_awaiter *awaiter) {
    pthread_condattr_t clock;
    pthread_attr_t detached;
    pthread_t thread;
    sigset_t all, before;
    pthread_mutex_init(&awaiter->lock, NULL);
    pthread_condattr_init(&clock);
#ifndef __APPLE__
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
#endif
    pthread_cond_init(&awaiter->changed, &clock);
    pthread_condattr_destroy(&clock);
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int status = pthread_create(&thread, &detached, uhal_awaiter_run, awaiter);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&detached);
    return status;
}

/* An unused thread; NULL at the maximum, or if the system has no more threads. */
static uhal_awaiter *uhal_awaiter_take(void) {
    if (uhal_awaiters_forks != uhal_fork_count) {
        /* a forked child lacks the parent's threads */
        uhal_awaiters_forks = uhal_fork_count;
        uhal_idle_awaiters = NULL;
        uhal_awaiters_in_use = 0;
    }
    if (uhal_awaiters_in_use == UHAL_MAX_AWAITERS)
        return NULL;
    uhal_awaiter *awaiter = uhal_idle_awaiters;
    if (awaiter != NULL) {
        uhal_idle_awaiters = awaiter->next;
    } else {
        awaiter = (uhal_awaiter *)calloc(1, sizeof *awaiter);
        if (awaiter == NULL || uhal_awaiter_start(awaiter) != 0) {
            free(awaiter);
            return NULL;
        }
    }
    uhal_awaiters_in_use += 1;
    return awaiter;
}

/* Gives a thread back after its wait. */
static void uhal_awaiter_give(uhal_awaiter *awaiter) {
    awaiter->next = uhal_idle_awaiters;
    uhal_idle_awaiters = awaiter;
    uhal_awaiters_in_use -= 1;
}

/* Returns whether the thread's wait has ended. */
static int uhal_awaiter_ended(uhal_awaiter *awaiter) {
    pthread_mutex_lock(&awaiter->lock);
    const int ended = !awaiter->waiting;
    pthread_mutex_unlock(&awaiter->lock);
    return ended;
}

/* Sleeps for a slice, or until the thread's wait ends. The lock is held. */
static void uhal_awaiter_slice(uhal_awaiter *awaiter) {
#ifdef __APPLE__
    const struct timespec slice = {0, UHAL_WAIT_SLICE_NS};
    pthread_cond_timedwait_relative_np(&awaiter->changed, &awaiter->lock, &slice);
#else
    const int64_t end_ns = uhal_now_ns() + UHAL_WAIT_SLICE_NS;
    const struct timespec end = {(time_t)(end_ns / 1000000000), (long)(end_ns % 1000000000)};
    int status = 0;
    while (awaiter->waiting && status != ETIMEDOUT)
        status = pthread_cond_timedwait(&awaiter->changed, &awaiter->lock, &end);
#endif
}

/* Waits for the event. Returns 1 and the driver's status in `status`, or 0 once `go_on` returns 0.
 * In this case the thread continues to wait without the caller. */
static int uhal_awaiter_wait(uhal_awaiter *awaiter, const uhal_hot_table *table, void *context,
                             void *event, uhal_go_on go_on, void *user_data, int *status) {
    pthread_mutex_lock(&awaiter->lock);
    awaiter->table = table;
    awaiter->context = context;
    awaiter->event = event;
    awaiter->waiting = 1;
    pthread_cond_broadcast(&awaiter->changed);
    int goes_on = 1;
    uhal_awaiter_slice(awaiter);
    while (awaiter->waiting && goes_on) {
        pthread_mutex_unlock(&awaiter->lock);
        goes_on = go_on(user_data);
        pthread_mutex_lock(&awaiter->lock);
        if (goes_on)
            uhal_awaiter_slice(awaiter);
    }
    const int ended = !awaiter->waiting;
    *status = awaiter->status;
    pthread_mutex_unlock(&awaiter->lock);
    return ended;
}

#endif
