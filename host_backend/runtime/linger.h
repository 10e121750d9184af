// A thread that waits for something short looks for it before it sleeps: to wake it would take longer,
// 15 µs and more, on a virtual machine 100.
#pragma once

#include <cstdint>
#include <thread>

#include "platform.h"

namespace uhal_host {

class Linger {
  public:
    // One turn between two looks; false when it is time to sleep. At first the thread keeps its
    // processor, which bridges the gap between two launches of a loop, then others that want it get it.
    bool turn() {
        relax();
        // Asking for the time, and giving way, takes from the other thread of the core, a look does
        // not.
        if (++turns_ % 32 != 0) {
            return true;
        }
        spent_ = monotonic_nanoseconds() - start_;
        if (spent_ >= 20'000) {
            std::this_thread::yield();
        }
        return spent_ < 200'000;
    }

    int64_t spent() const { return spent_; } // nanoseconds, some turns ago

  private:
    int64_t start_ = monotonic_nanoseconds();
    int64_t spent_ = 0;
    unsigned turns_ = 0;
};

} // namespace uhal_host
