/* Global state of the process: the runtime's functions, the settings, unused signals, and the
 * number of live objects of each kind. Any thread may use everything here; the functions
 * and settings are written once, before the first device is opened.
 */
#ifndef UHAL_HSA_PROCESS_H
#define UHAL_HSA_PROCESS_H

#include "functions.h"

/* All other symbols have hidden visibility. */
#pragma GCC visibility push(default)
#include "runtime.h"
#pragma GCC visibility pop

#include <stdatomic.h>

enum { UHAL_HSA_KINDS = UHAL_HSA_KIND_GRAPH_EXEC + 1, UHAL_HSA_SLICE_MS = 20 };

typedef struct uhal_hsa_process {
    uhal_hsa_functions hsa;
    uhalHsaSettings settings;
    uint64_t slice_ticks; /* longest wait between two checks for a lost device */
    atomic_size_t live[UHAL_HSA_KINDS];
} uhal_hsa_process;

extern uhal_hsa_process uhal_hsa;

uint64_t uhal_hsa_now_ns(void);

/* Takes a signal of value 1, an unused signal if there is one. */
hsa_status_t uhal_hsa_signal_take(hsa_signal_t *signal);

/* Gives a signal back. No device may still wait for the signal or count it down. */
void uhal_hsa_signal_give(hsa_signal_t signal);

/* Destroys the unused signals. */
void uhal_hsa_signals_drop(void);

static inline int uhal_hsa_signal_done(hsa_signal_t signal) {
    return uhal_hsa.hsa.hsa_signal_load_scacquire(signal) < 1;
}

#endif
