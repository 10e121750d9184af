#include "event.h"

#include <utility>

#include "abi.h"
#include "platform.h"
#include "stream.h"

namespace uhal_host {

void Mark::complete() {
    std::vector<Stream *> parked;
    {
        const std::lock_guard<std::mutex> guard(lock_);
        nanoseconds_ = monotonic_nanoseconds();
        done_.store(true, std::memory_order_release);
        parked.swap(parked_);
        // Under the lock: a waiter that wakes may drop the last reference but the caller's.
        completed_.notify_all();
    }
    for (Stream *stream : parked) {
        stream->resume();
    }
}

void Mark::wait() {
    std::unique_lock<std::mutex> guard(lock_);
    completed_.wait(guard, [this] { return done(); });
}

bool Mark::park(Stream &stream) {
    const std::lock_guard<std::mutex> guard(lock_);
    if (done()) {
        return false;
    }
    parked_.push_back(&stream);
    return true;
}

Event::~Event() {
    if (mark_ != nullptr) {
        mark_->drop();
    }
}

bool Event::timed() const { return (flags_ & UHAL_HOST_EVENT_DISABLE_TIMING) == 0; }

void Event::record(Stream &stream) {
    MarkHold mark;
    {
        const std::lock_guard<std::mutex> guard(lock_);
        if (mark_ != nullptr && mark_->held_once() && mark_->done()) {
            mark_->reset();
        } else {
            Mark *const fresh = new Mark;
            if (mark_ != nullptr) {
                mark_->drop();
            }
            mark_ = fresh;
        }
        mark.reset(mark_->hold());
    }
    stream.record(std::move(mark));
}

bool Event::complete() {
    const std::lock_guard<std::mutex> guard(lock_);
    return mark_ == nullptr || mark_->done();
}

void Event::wait() {
    if (const MarkHold mark = latest()) {
        mark->wait();
    }
}

MarkHold Event::latest() {
    const std::lock_guard<std::mutex> guard(lock_);
    return MarkHold(mark_ != nullptr ? mark_->hold() : nullptr);
}

} // namespace uhal_host
