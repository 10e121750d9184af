// How long a caller waits: for ever, while its function returns true, or until a deadline.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "abi.h"
#include "platform.h"

namespace uhal_host {

struct Patience {
    uhal_go_on go_on = nullptr; // null: for ever
    void *user_data = nullptr;
    int64_t deadline = 0; // of the monotonic clock, in ns; 0: none

    bool is_over() const { return deadline != 0 && monotonic_nanoseconds() > deadline; }
};

// Sleeps until the condition holds; false when the patience ended first. The lock is released
// while the caller's function runs, because this function may take other locks.
template <class Condition>
bool wait_patiently(std::condition_variable &changed, std::unique_lock<std::mutex> &guard,
                    const Patience &patience, Condition &&condition) {
    if (patience.go_on == nullptr && patience.deadline == 0) {
        changed.wait(guard, condition);
        return true;
    }
    constexpr std::chrono::milliseconds slice{50};
    while (!changed.wait_for(guard, slice, condition)) {
        guard.unlock();
        const bool goes_on = !patience.is_over() &&
                             (patience.go_on == nullptr || patience.go_on(patience.user_data) != 0);
        guard.lock();
        if (!goes_on) {
            return false;
        }
    }
    return true;
}

} // namespace uhal_host
