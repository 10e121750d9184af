// Faults of the processor in a kernel: a wild pointer, an illegal instruction, a division by zero.
#pragma once

#include "kernel.h"

namespace uhal_host {

// The launch whose blocks this thread runs, null when it runs none. A signal handler may read this
// single word. It is hidden, so that one lookup finds all of the library's thread-local words.
extern __thread const Launch *running __attribute__((visibility("hidden")));
// The stream of the launch, for reports by the kernel.
extern __thread const Stream *running_in __attribute__((visibility("hidden")));

struct Running {
    Running(const Launch &launch, const Stream &stream) {
        running = &launch;
        running_in = &stream;
    }
    ~Running() { running = nullptr; }
    Running(const Running &) = delete;
};

// Installs a handler for faults of threads that run a kernel. In the kernel's own code, a fault
// becomes a C++ exception of the kernel. A fault in a function that the kernel called ends the
// process: the handler writes the fault and the launch to standard error, then calls the earlier
// handler. Call once per process.
void tell_crashes();

} // namespace uhal_host
