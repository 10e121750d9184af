#include "callbacks.h"

#include "../engine/thread.h"

namespace hsa_sim {

void Callbacks::post(std::function<void()> call) {
    if (!started_) {
        started_ = true;
        sim::start_thread([this] { serve_forever(); });
    }
    calls_.push_back(std::move(call));
    posted_.notify_one();
}

void Callbacks::serve_forever() {
    Lock lock(mutex_);
    for (;;) {
        posted_.wait(lock, [&] { return !calls_.empty(); });
        {
            const std::function<void()> call = std::move(calls_.front());
            calls_.pop_front();
            lock.unlock();
            call();
            // What it held goes before the lock is taken.
        }
        lock.lock();
    }
}

} // namespace hsa_sim
