// The runtime's own thread, on which it calls the program: signal handlers, queue errors, events.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>

namespace hsa_sim {

using Lock = std::unique_lock<std::mutex>;

class Callbacks {
  public:
    explicit Callbacks(std::mutex &mutex) : mutex_(mutex) {}

    // Runs `call` soon, without the lock; the caller holds it.
    void post(std::function<void()> call);

  private:
    void serve_forever();

    std::mutex &mutex_;
    bool started_ = false;
    std::deque<std::function<void()>> calls_;
    std::condition_variable posted_;
};

} // namespace hsa_sim
