// Threads of a simulated driver. They are never joined, because a driver library cannot know when
// its program is done.
#pragma once

#include <functional>

namespace sim {

// Runs `body`, which must not throw, on a thread with a stack large enough for kernels.
void start_thread(std::function<void()> body);

} // namespace sim
