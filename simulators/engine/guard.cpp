#include "guard.h"

#include <csetjmp>
#include <csignal>

namespace sim {

namespace {

struct Frame {
    sigjmp_buf jump;
    volatile int signal;
    volatile uint64_t address;
};

constexpr int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};

thread_local Frame *volatile current_frame = nullptr;
struct sigaction previous_actions[NSIG];
bool installed[NSIG];

void on_fault(int number, siginfo_t *information, void *) {
    Frame *frame = current_frame;
    if (frame == nullptr) {
        // The fault is not ours: the instruction runs again, and the earlier handler gets the new
        // fault.
        sigaction(number, &previous_actions[number], nullptr);
        return;
    }
    frame->signal = number;
    frame->address = reinterpret_cast<uint64_t>(information->si_addr);
    siglongjmp(frame->jump, 1);
}

// Installed before every run, because a program may set its own handlers (faulthandler does).
void install() {
    for (const int number : faults) {
        struct sigaction present = {};
        sigaction(number, nullptr, &present);
        if ((present.sa_flags & SA_SIGINFO) != 0 && present.sa_sigaction == &on_fault) {
            continue;
        }
        // Stored once, because two handlers that call each other would never end the process.
        if (!installed[number]) {
            previous_actions[number] = present;
            installed[number] = true;
        }
        struct sigaction ours = {};
        ours.sa_sigaction = &on_fault;
        ours.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
        sigemptyset(&ours.sa_mask);
        sigaction(number, &ours, nullptr);
    }
}

} // namespace

Outcome run_guarded(const std::function<void()> &body) {
    install();
    Frame frame = {};
    if (sigsetjmp(frame.jump, 0) != 0) {
        current_frame = nullptr;
        const bool memory = frame.signal == SIGSEGV || frame.signal == SIGBUS;
        if (memory) {
            return {Status::illegal_address, frame.address, "touched memory that it may not reach"};
        }
        return {Status::launch_failed, frame.address, "failed"};
    }
    current_frame = &frame;
    Status status = Status::ok;
    try {
        body();
    } catch (...) {
        status = Status::launch_failed;
    }
    current_frame = nullptr;
    return {status, 0, status == Status::ok ? "" : "failed"};
}

} // namespace sim
