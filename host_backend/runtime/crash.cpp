#include "crash.h"

#include <csignal>
#include <cstring>
#include <stdexcept>
#include <unistd.h>

#if defined(__linux__)
#include <ucontext.h>
#endif

#include "missing_page.h"
#include "module.h"

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
    {SIGBUS, "memory that does not exist (SIGBUS)"},
    {SIGILL, "an illegal instruction (SIGILL)"},
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
    std::string words() const { return std::string(made_, length_); }
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

// The address of the instruction that raised the signal; 0 where it is unknown.
uintptr_t instruction_of(const void *context) {
#if defined(__linux__) && defined(__x86_64__)
    return static_cast<uintptr_t>(
        static_cast<const ucontext_t *>(context)->uc_mcontext.gregs[REG_RIP]);
#elif defined(__linux__) && defined(__aarch64__)
    return static_cast<const ucontext_t *>(context)->uc_mcontext.pc;
#else
    (void)context;
    return 0;
#endif
}

// Throws out of the kernel. The unwinder passes the signal's frame and continues at the faulting
// instruction. That works only in the code of a kernel, which holds no lock: a fault in a function
// of the system may leave the allocator locked. If the kernel has live objects with destructors,
// C++ ends the process and prints the exception's text. Therefore the text names the kernel.
[[noreturn]] void throw_out(const Fault &fault, const char *entry, uintptr_t address) {
    sigset_t raised;
    sigemptyset(&raised);
    sigaddset(&raised, fault.signal);
    pthread_sigmask(SIG_UNBLOCK, &raised, nullptr);
    Text text;
    text.add(fault.words);
    text.add(" in ");
    text.add(entry);
    text.add(", address 0x");
    text.add(address, 16);
    text.add(". To find it, compile the kernel with uhal.compile.host(…, checked=True)");
    throw std::runtime_error(text.words());
}

void tell(int signal, siginfo_t *information, void *context) {
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
        if (launch->function->module->has_code_at(instruction_of(context))) {
            throw_out(faults[which], launch->function->kernel->entry, address);
        }
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
