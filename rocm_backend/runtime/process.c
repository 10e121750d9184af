#define _POSIX_C_SOURCE 200809L

#include "process.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

uhal_hsa_process uhal_hsa;

/* -- the runtime's functions ------------------------------------------------------------------- */

#define FUNCTION_NAME(name) #name,
static const char *const FUNCTION_NAMES[] = {UHAL_HSA_FUNCTIONS(FUNCTION_NAME)};
#undef FUNCTION_NAME

enum { FUNCTION_COUNT = sizeof FUNCTION_NAMES / sizeof *FUNCTION_NAMES };

_Static_assert(sizeof(uhal_hsa_functions) == FUNCTION_COUNT * sizeof(void *), "addresses only");

uhalHsaResult uhalHsaVersion(int *version) {
    *version = UHAL_HSA_VERSION;
    return 0;
}

uhalHsaResult uhalHsaFunctionName(const char **name, unsigned int index) {
    if (index >= FUNCTION_COUNT)
        return HSA_STATUS_ERROR_INVALID_INDEX;
    *name = FUNCTION_NAMES[index];
    return 0;
}

uhalHsaResult uhalHsaOpen(void *const *functions, unsigned int count,
                          const uhalHsaSettings *settings) {
    if (count != FUNCTION_COUNT || settings->timestamp_frequency == 0 ||
        settings->agent_count > UHAL_HSA_MAX_DEVICES)
        return HSA_STATUS_ERROR_INVALID_ARGUMENT;
    memcpy(&uhal_hsa.hsa, functions, sizeof uhal_hsa.hsa);
    uhal_hsa.settings = *settings;
    uhal_hsa.slice_ticks = settings->timestamp_frequency / 1000 * UHAL_HSA_SLICE_MS;
    if (uhal_hsa.slice_ticks == 0)
        uhal_hsa.slice_ticks = 1;
    return 0;
}

uhalHsaResult uhalHsaLiveCount(uhalHsaKind kind, size_t *count) {
    *count = atomic_load(&uhal_hsa.live[kind]);
    return 0;
}

uint64_t uhal_hsa_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

/* -- signals ----------------------------------------------------------------------------------- */

static pthread_mutex_t signals_lock = PTHREAD_MUTEX_INITIALIZER;
static hsa_signal_t *idle_signals;
static size_t idle_count;
static size_t idle_room;

hsa_status_t uhal_hsa_signal_take(hsa_signal_t *signal) {
    pthread_mutex_lock(&signals_lock);
    const int found = idle_count > 0;
    if (found)
        *signal = idle_signals[--idle_count];
    pthread_mutex_unlock(&signals_lock);
    if (!found)
        return uhal_hsa.hsa.hsa_signal_create(1, 0, NULL, signal);
    uhal_hsa.hsa.hsa_signal_store_relaxed(*signal, 1);
    return HSA_STATUS_SUCCESS;
}

void uhal_hsa_signal_give(hsa_signal_t signal) {
    pthread_mutex_lock(&signals_lock);
    if (idle_count == idle_room) {
        const size_t room = idle_room == 0 ? 64 : 2 * idle_room;
        hsa_signal_t *grown = realloc(idle_signals, room * sizeof *grown);
        if (grown != NULL) {
            idle_signals = grown;
            idle_room = room;
        }
    }
    const int kept = idle_count < idle_room;
    if (kept)
        idle_signals[idle_count++] = signal;
    pthread_mutex_unlock(&signals_lock);
    if (!kept)
        uhal_hsa.hsa.hsa_signal_destroy(signal);
}

void uhal_hsa_signals_drop(void) {
    pthread_mutex_lock(&signals_lock);
    while (idle_count > 0)
        uhal_hsa.hsa.hsa_signal_destroy(idle_signals[--idle_count]);
    free(idle_signals);
    idle_signals = NULL;
    idle_room = 0;
    pthread_mutex_unlock(&signals_lock);
}
