// The runtime's own thread, which calls the program: signal handlers, queue errors, events.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace hsa_sim {

using Lock = std::unique_lock<std::mutex>;

class Callbacks {
  public:
    explicit Callbacks(std::mutex &mutex) : mutex_(mutex) {}

    // Runs `call` soon, without the lock. The caller of post() holds the lock. `about` is the key
    // for withdraw().
    void post(const void *about, std::function<void()> call);

    // Withdraws the calls about `about`; null stands for all calls. Waits for a call in progress,
    // unless this call itself calls withdraw().
    void withdraw(Lock &lock, const void *about);

  private:
    struct Call {
        const void *about;
        std::function<void()> make;
    };

    void serve_forever();

    std::mutex &mutex_;
    bool started_ = false;
    bool calling_ = false;
    const void *calling_about_ = nullptr;
    std::thread::id thread_;
    std::deque<Call> calls_;
    std::condition_variable posted_;
    std::condition_variable called_;
};

} // namespace hsa_sim
