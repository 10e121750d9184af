// A thread that expects a short wait polls before it sleeps, because waking a thread takes at
// least 15 µs, on a virtual machine 100 µs.
#pragma once

#include <cstdint>
#include <thread>

#include "platform.h"

namespace uhal_host {

class Linger {
  public:
    // One pause between two polls; false when it is time to sleep. At first the thread keeps its
    // processor, to bridge the gap between two launches of a loop; later it yields.
    bool turn() {
        relax();
        // Reading the clock and yielding slow down the core's other thread; polling does not.
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
