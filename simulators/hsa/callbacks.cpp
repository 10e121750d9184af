#include "callbacks.h"

#include <algorithm>

#include "../engine/thread.h"

namespace hsa_sim {

void Callbacks::post(const void *about, std::function<void()> call) {
    if (!started_) {
        started_ = true;
        sim::start_thread([this] { serve_forever(); });
    }
    calls_.push_back({about, std::move(call)});
    posted_.notify_one();
}

void Callbacks::withdraw(Lock &lock, const void *about) {
    const auto meant = [&](const void *one) { return about == nullptr || one == about; };
    calls_.erase(std::remove_if(calls_.begin(), calls_.end(),
                                [&](const Call &call) { return meant(call.about); }),
                 calls_.end());
    if (thread_ != std::this_thread::get_id()) {
        called_.wait(lock, [&] { return !calling_ || !meant(calling_about_); });
    }
}

void Callbacks::serve_forever() {
    Lock lock(mutex_);
    thread_ = std::this_thread::get_id();
    for (;;) {
        posted_.wait(lock, [&] { return !calls_.empty(); });
        {
            const Call call = std::move(calls_.front());
            calls_.pop_front();
            calling_ = true;
            calling_about_ = call.about;
            lock.unlock();
            call.make();
            // The call's captured objects are destroyed before the lock is taken.
        }
        lock.lock();
        calling_ = false;
        called_.notify_all();
    }
}

} // namespace hsa_sim
