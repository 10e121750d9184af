#include "platform.h"

#include "control_groups.h"
#include "float_control.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <pthread.h>
#include <sched.h>
#include <string>
#include <thread>
#include <time.h>
#include <unistd.h>

#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#elif defined(__APPLE__)
#include <mach/mach.h>
#include <sys/sysctl.h>
#endif

namespace uhal_host {

#if defined(__linux__)

void wait_on(std::atomic<uint32_t> &word, uint32_t expected) {
    syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
}

void wake(std::atomic<uint32_t> &word, int sleepers) {
    syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, sleepers, nullptr, nullptr, 0);
}

#else

// No futex: poll, slowly enough to cost nothing.
void wait_on(std::atomic<uint32_t> &word, uint32_t expected) {
    if (word.load(std::memory_order_acquire) == expected) {
        usleep(50);
    }
}

void wake(std::atomic<uint32_t> &, int) {}

#endif

int64_t monotonic_nanoseconds() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

double measure_nanoseconds_per_tick() {
#if defined(__aarch64__)
    uint64_t frequency;
    __asm__ __volatile__("mrs %0, cntfrq_el0" : "=r"(frequency));
    return frequency != 0 ? 1e9 / static_cast<double>(frequency) : 1.0;
#elif defined(__x86_64__)
    constexpr int64_t window = 200'000;
    const int64_t start = monotonic_nanoseconds();
    const uint64_t first = ticks();
    int64_t elapsed = 0;
    while (elapsed < window) {
        elapsed = monotonic_nanoseconds() - start;
    }
    const uint64_t passed = ticks() - first;
    return passed != 0 ? static_cast<double>(elapsed) / static_cast<double>(passed) : 1.0;
#else
    return 1.0;
#endif
}

unsigned usable_cores() {
    unsigned cores = std::max(1U, std::thread::hardware_concurrency());
#if defined(__linux__)
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) {
        cores = std::max(1, CPU_COUNT(&allowed));
    }
#endif
    return std::min(cores, ControlGroups().cores());
}

#if defined(__linux__)

int this_processor() { return sched_getcpu(); }

void leave_processor(int processor) {
    if (processor < 0 || sched_getcpu() != processor) {
        return;
    }
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) {
        return;
    }
    cpu_set_t others = allowed;
    CPU_CLR(processor, &others);
    if (CPU_COUNT(&others) != 0 && sched_setaffinity(0, sizeof others, &others) == 0) {
        sched_setaffinity(0, sizeof allowed, &allowed);
    }
}

#else

int this_processor() { return -1; }

void leave_processor(int) {}

#endif

bool spinning_pays() {
    static const bool pays = usable_cores() > 1;
    return pays;
}

unsigned instruction_level() {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("sse4.2") || !__builtin_cpu_supports("popcnt")) {
        return 1;
    }
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
        !__builtin_cpu_supports("bmi2")) {
        return 2;
    }
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512cd") || !__builtin_cpu_supports("avx512dq") ||
        !__builtin_cpu_supports("avx512vl")) {
        return 3;
    }
    return 4;
#else
    return 0;
#endif
}

uint64_t total_memory() {
#if defined(__APPLE__)
    uint64_t bytes = 0;
    size_t size = sizeof bytes;
    sysctlbyname("hw.memsize", &bytes, &size, nullptr, 0);
    return bytes;
#else
    const uint64_t pages = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES));
    const uint64_t installed = pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    return std::min(installed, ControlGroups().memory());
#endif
}

uint64_t available_memory() {
#if defined(__APPLE__)
    vm_statistics64_data_t statistics;
    mach_msg_type_number_t count = HOST_VM_INFO64_COUNT;
    const kern_return_t result = host_statistics64(
        mach_host_self(), HOST_VM_INFO64, reinterpret_cast<host_info64_t>(&statistics), &count);
    if (result != KERN_SUCCESS) {
        return total_memory();
    }
    const uint64_t pages = uint64_t{statistics.free_count} + statistics.inactive_count;
    return pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
#else
    uint64_t available = total_memory();
    std::ifstream file("/proc/meminfo");
    for (std::string line; std::getline(file, line);) {
        unsigned long long kilobytes;
        if (sscanf(line.c_str(), "MemAvailable: %llu kB", &kilobytes) == 1) {
            available = std::min<uint64_t>(available, kilobytes * 1024);
            break;
        }
    }
    return std::min(available, ControlGroups().memory_left());
#endif
}

namespace {

constexpr uintptr_t not_measured = ~uintptr_t{0};

// The lowest address of the calling thread's stack; 0 if unknown.
uintptr_t end_of_stack() {
#if defined(__APPLE__)
    const pthread_t self = pthread_self();
    return reinterpret_cast<uintptr_t>(pthread_get_stackaddr_np(self)) -
           pthread_get_stacksize_np(self);
#else
    pthread_attr_t attributes;
    if (pthread_getattr_np(pthread_self(), &attributes) != 0) {
        return 0;
    }
    void *lowest = nullptr;
    size_t bytes = 0;
    pthread_attr_getstack(&attributes, &lowest, &bytes);
    pthread_attr_destroy(&attributes);
    return reinterpret_cast<uintptr_t>(lowest);
#endif
}

} // namespace

__thread uintptr_t kernel_stack_begin = not_measured;

bool measured_stack_has_room(uintptr_t frame) {
    // Bytes for static and dynamic shared memory, and more than twice as many for the kernel's
    // frames.
    constexpr uintptr_t kernel_bytes = 256 << 10;
    if (kernel_stack_begin == not_measured) {
        kernel_stack_begin = end_of_stack() + kernel_bytes;
    }
    return frame >= kernel_stack_begin;
}

namespace {

struct ThreadStart {
    void (*body)(void *);
    void *argument;
    char name[16];
};

void *run_thread(void *pointer) {
    const std::unique_ptr<ThreadStart> start(static_cast<ThreadStart *>(pointer));
#if defined(__linux__)
    pthread_setname_np(pthread_self(), start->name);
#elif defined(__APPLE__)
    pthread_setname_np(start->name);
#endif
    uhal_float_control_set(uhal_float_control_default());
    start->body(start->argument);
    return nullptr;
}

} // namespace

bool start_thread(void (*body)(void *), void *argument, const char *name) {
    std::unique_ptr<ThreadStart> start(new (std::nothrow) ThreadStart);
    if (start == nullptr) {
        return false;
    }
    start->body = body;
    start->argument = argument;
    snprintf(start->name, sizeof start->name, "%s", name);

    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, size_t{8} << 20);
    // Signals go to the program's own threads, which have handlers for them.
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    // Fault signals stay unblocked: a blocked fault would end the process without a message.
    for (const int fault : {SIGSEGV, SIGBUS, SIGILL, SIGFPE}) {
        sigdelset(&all, fault);
    }
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_t thread;
    const int result = pthread_create(&thread, &attributes, run_thread, start.get());
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    pthread_attr_destroy(&attributes);
    if (result != 0) {
        return false;
    }
    start.release();
    return true;
}

bool environment_number(const char *name, unsigned least, unsigned most, unsigned &value) {
    const char *text = getenv(name);
    if (text == nullptr || *text == '\0') {
        return true;
    }
    char *end;
    errno = 0;
    const unsigned long number = strtoul(text, &end, 10);
    if (errno != 0 || *end != '\0' || *text < '0' || *text > '9' || number < least ||
        number > most) {
        return false;
    }
    value = static_cast<unsigned>(number);
    return true;
}

} // namespace uhal_host
