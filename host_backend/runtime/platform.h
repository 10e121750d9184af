// The host runtime's interface to the operating system and the CPU. Nothing here knows of streams.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace uhal_host {

// Sleeps while `word` holds `expected`; may wake for no reason.
void wait_on(std::atomic<uint32_t> &word, uint32_t expected);
void wake(std::atomic<uint32_t> &word, int sleepers);

// Tells the core that this is a spin loop.
inline void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

int64_t monotonic_nanoseconds();

// The cheapest clock, for estimates, not for event times.
inline uint64_t ticks() {
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    uint64_t value;
    __asm__ __volatile__("mrs %0, cntvct_el0" : "=r"(value));
    return value;
#else
    return static_cast<uint64_t>(monotonic_nanoseconds());
#endif
}

// Measured once, when the runtime is made.
double measure_nanoseconds_per_tick();

// Number of cores that this process may use: the affinity's, or the control group's quota if that
// is smaller.
unsigned usable_cores();

// The processor of the calling thread; -1 if unknown.
int this_processor();

// Moves the calling thread, a thread of the runtime, away from a processor if the thread's
// affinity allows. A scheduler may leave two threads that never sleep on one processor, while
// another processor is idle.
void leave_processor(int processor);

// Whether other threads can run while one thread spins: false on a single core.
bool spinning_pays();

// x86-64 level of this CPU, 1 to 4; 0 on other machines.
unsigned instruction_level();

// Bytes, within the control group's limit.
uint64_t total_memory();
uint64_t available_memory();

// The lowest address at which a kernel's frames may begin on the calling thread, so that its shared
// memory and registers fit below. Measured at its first use.
extern __thread uintptr_t kernel_stack_begin __attribute__((visibility("hidden")));
bool measured_stack_has_room(uintptr_t frame);

// Whether the calling thread's stack is large enough for a kernel; a program's threads may have
// small stacks.
inline bool stack_has_room() {
    const auto frame = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
    return frame >= kernel_stack_begin || measured_stack_has_room(frame);
}

// Starts a detached thread with a stack for kernels, the default floating-point settings, and no
// signals. False when the system has no more threads.
bool start_thread(void (*body)(void *), void *argument, const char *name);

// Reads an unsigned number from the environment. False when the variable has another value or is
// out of range.
bool environment_number(const char *name, unsigned least, unsigned most, unsigned &value);

} // namespace uhal_host
