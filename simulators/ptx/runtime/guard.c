/* Faults and the deadline: both end a run by a jump, from the thread that executes it. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "ptx.h"

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

static __thread struct uptx_worker *guarded;
static pthread_mutex_t installing = PTHREAD_MUTEX_INITIALIZER;
static int installed;
static struct sigaction earlier[3];
static int deadline_signal;
static pthread_key_t at_thread_end;
static __thread struct {
    timer_t id;
    int made;
} timer;

static const struct sigaction *earlier_of(int number) {
    return &earlier[number == SIGSEGV ? 0 : number == SIGBUS ? 1 : 2];
}

static void pass_on(int number, siginfo_t *info, void *context) {
    const struct sigaction *before = earlier_of(number);
    if (before->sa_flags & SA_SIGINFO) {
        before->sa_sigaction(number, info, context);
    } else if (before->sa_handler == SIG_DFL) {
        signal(number, SIG_DFL); /* returning repeats the fault */
    } else if (before->sa_handler != SIG_IGN) {
        before->sa_handler(number);
    }
}

static void on_signal(int number, siginfo_t *info, void *context) {
    struct uptx_worker *worker = guarded;
    if (worker == NULL) {
        if (number != deadline_signal) {
            pass_on(number, info, context);
        }
        return;
    }
    guarded = NULL;
    const uint32_t *block = worker->block.block;
    if (number == deadline_signal) {
        worker->outcome = UPTX_TIMEOUT;
        snprintf(worker->message, sizeof worker->message,
                 "block (%u, %u, %u): still running after %llu ms: an endless loop%s?", block[0],
                 block[1], block[2], (unsigned long long)worker->launch->milliseconds,
                 worker->launch->cooperative ? ", or a wait for blocks that have ended" : "");
    } else {
        const struct uptx_block *known = &worker->block;
        uint64_t address = (uint64_t)info->si_addr;
        if (address - known->window_delta - known->window_base < known->window_span) {
            address -= known->window_delta;
        }
        worker->outcome = UPTX_ILLEGAL_ADDRESS;
        worker->fault = (struct uptx_fault){
            .kind = UPTX_UNMAPPED, .address = address, .block = {block[0], block[1], block[2]}};
        snprintf(worker->message, sizeof worker->message,
                 "block (%u, %u, %u): access to the address %#llx, which is not mapped", block[0],
                 block[1], block[2], (unsigned long long)worker->fault.address);
    }
    siglongjmp(*worker->escape, 1);
}

static void forget_timer(void *unused) {
    (void)unused;
    timer_delete(timer.id);
}

static void install_one(int number, struct sigaction *before) {
    struct sigaction present;
    sigaction(number, NULL, &present);
    if ((present.sa_flags & SA_SIGINFO) && present.sa_sigaction == on_signal) {
        return;
    }
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_RESTART | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    sigaction(number, &action, NULL);
    /* Stored once, because two handlers that call each other would never end a process. */
    if (before != NULL && !installed) {
        *before = present;
    }
}

/* Installed before every run, because a program may set its own handlers (faulthandler does). */
static void install(void) {
    pthread_mutex_lock(&installing);
    if (!installed) {
        deadline_signal = SIGRTMAX - 2;
        pthread_key_create(&at_thread_end, forget_timer);
    }
    install_one(SIGSEGV, &earlier[0]);
    install_one(SIGBUS, &earlier[1]);
    install_one(SIGFPE, &earlier[2]);
    install_one(deadline_signal, NULL);
    installed = 1;
    pthread_mutex_unlock(&installing);
}

/* Made once for each thread, because making it costs more than a small launch. */
static int make_timer(void) {
    if (timer.made) {
        return 1;
    }
    struct sigevent event;
    memset(&event, 0, sizeof event);
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = deadline_signal;
    event.sigev_notify_thread_id = (pid_t)syscall(SYS_gettid);
    timer.made = timer_create(CLOCK_MONOTONIC, &event, &timer.id) == 0;
    if (timer.made) {
        pthread_setspecific(at_thread_end, &timer);
    }
    return timer.made;
}

/* Left armed after the launch, because the next launch sets it again; a late expiry is ignored. */
static void set_deadline(uint64_t milliseconds) {
    const struct itimerspec when = {
        .it_value = {(time_t)(milliseconds / 1000), (long)(milliseconds % 1000) * 1000000}};
    if (make_timer()) {
        timer_settime(timer.id, 0, &when, NULL);
    }
}

void uptx_guarded(struct uptx_worker *worker, void (*body)(struct uptx_worker *)) {
    install();
    set_deadline(worker->launch->milliseconds);
    sigjmp_buf escape;
    worker->escape = &escape;
    /* The handlers block no signal, so there is no mask to restore. */
    if (sigsetjmp(escape, 0) == 0) {
        guarded = worker;
        body(worker);
    }
    guarded = NULL;
}

void uptx_guard_other(struct uptx_worker *other) {
    other->escape = guarded->escape;
    guarded = other;
}
