#include "crash.h"

#include <csignal>
#include <cstring>
#include <unistd.h>

#include "missing_page.h"

namespace uhal_host {

__thread const Launch *running = nullptr;
__thread const Stream *running_in = nullptr;

namespace {

struct Fault {
    int signal;
    const char *words;
};
constexpr Fault faults[] = {
    {SIGSEGV, "a wild pointer (SIGSEGV)"},
    {SIGBUS, "memory that is not there (SIGBUS)"},
    {SIGILL, "an instruction this CPU has not (SIGILL)"},
    {SIGFPE, "an impossible division (SIGFPE)"},
};

struct sigaction handled_before[sizeof faults / sizeof *faults];

// Text made only by calls that are safe in a signal handler. Text that does not fit is cut off.
class Text {
  public:
    void add(const char *words) {
        while (*words != '\0' && length_ < sizeof made_) {
            made_[length_++] = *words++;
        }
    }
    void add(uint64_t number, unsigned base = 10) {
        char digits[24];
        size_t first = sizeof digits - 1;
        digits[first] = '\0';
        do {
            digits[--first] = "0123456789abcdef"[number % base];
            number /= base;
        } while (number != 0);
        add(digits + first);
    }
    void add(const uhal_dim3 &extent) {
        add("(");
        add(extent.x);
        add(", ");
        add(extent.y);
        add(", ");
        add(extent.z);
        add(")");
    }
    void write_out() const {
        for (size_t written = 0; written < length_;) {
            const ssize_t more = write(STDERR_FILENO, made_ + written, length_ - written);
            if (more <= 0) {
                return;
            }
            written += static_cast<size_t>(more);
        }
    }

  private:
    char made_[2048];
    size_t length_ = 0;
};

void add_arguments(Text &text, const Launch &launch) {
    const uhal_host_kernel &kernel = *launch.function->kernel;
    text.add("\n  arguments ");
    text.add(kernel.parameter_text);
    text.add(":");
    for (uint32_t index = 0; index < kernel.parameter_count; ++index) {
        const uhal_host_parameter &parameter = kernel.parameters[index];
        uint64_t value = 0;
        if (parameter.size > sizeof value) {
            text.add(" …");
            continue;
        }
        memcpy(&value, launch.parameters[index], parameter.size); // on a small-endian machine
        text.add(" 0x");
        text.add(value, 16);
    }
}

void tell(int signal, siginfo_t *information, void *) {
    const uintptr_t address = reinterpret_cast<uintptr_t>(information->si_addr);
    if (signal == SIGBUS && information->si_code == BUS_ADRERR && stand_in(address)) {
        return;
    }
    size_t which = 0;
    while (faults[which].signal != signal) {
        ++which;
    }
    const Launch *const launch = running;
    if (launch != nullptr) {
        running = nullptr;
        Text text;
        text.add("uhal: a kernel of the host has ended the process by ");
        text.add(faults[which].words);
        text.add("\n  kernel    ");
        text.add(launch->function->kernel->entry);
        text.add(", grid ");
        text.add(launch->block.gridDim);
        text.add(", block ");
        text.add(launch->block.blockDim);
        add_arguments(text, *launch);
        text.add("\n  address   0x");
        text.add(address, 16);
        text.add(
            "\n  to find it: compile the kernel with uhal.compile.host(…, checked=True), or with "
            "$(python -m uhal cflags --checked)\n");
        text.write_out();
    }
    // The instruction runs again on return, with the earlier handler installed.
    sigaction(signal, &handled_before[which], nullptr);
}

} // namespace

void tell_crashes() {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = tell;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    for (size_t index = 0; index < sizeof faults / sizeof *faults; ++index) {
        sigaction(faults[index].signal, &action, &handled_before[index]);
    }
}

} // namespace uhal_host
