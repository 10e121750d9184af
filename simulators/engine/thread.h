// Threads of a simulated driver. They are never joined: a driver library has no moment at which its
// program is surely done.
#pragma once

#include <functional>

namespace sim {

// Runs `body` on a thread with room on its stack for kernels; it must not throw.
void start_thread(std::function<void()> body);

} // namespace sim
