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
        // Under the lock: a woken waiter may drop the last reference except the caller's.
        completed_.notify_all();
    }
    for (Stream *stream : parked) {
        stream->resume();
    }
}

bool Mark::wait(const Patience &patience) {
    std::unique_lock<std::mutex> guard(lock_);
    return wait_patiently(completed_, guard, patience, [this] { return done(); });
}

bool Mark::park(Stream &stream) {
    const std::lock_guard<std::mutex> guard(lock_);
    if (done()) {
        return false;
    }
    parked_.push_back(&stream);
    return true;
}

bool Event::timed() const { return (flags_ & UHAL_HOST_EVENT_DISABLE_TIMING) == 0; }

// The mark becomes visible only after it is queued. Otherwise, a wait for the mark could be queued
// before the mark in the same stream, and would never end. Until then, other threads see the
// previous record, or no record if the previous record's mark is reused.
void Event::record(Stream &stream) {
    MarkHold mark;
    {
        const std::lock_guard<std::mutex> guard(lock_);
        if (mark_ && mark_->held_once() && mark_->done()) {
            mark = std::move(mark_);
            mark->reset();
        }
    }
    if (!mark) {
        mark.reset(new Mark);
    }
    stream.record(MarkHold(mark->hold()));
    const std::lock_guard<std::mutex> guard(lock_);
    mark_ = std::move(mark);
}

void Event::set_point(std::shared_ptr<const CapturePoint> point) {
    captured_.store(point != nullptr, std::memory_order_release);
    point_ = std::move(point);
}

bool Event::complete() {
    const std::lock_guard<std::mutex> guard(lock_);
    return !mark_ || mark_->done();
}

bool Event::wait(const Patience &patience) {
    const MarkHold mark = latest();
    return !mark || mark->wait(patience);
}

MarkHold Event::latest() {
    const std::lock_guard<std::mutex> guard(lock_);
    return MarkHold(mark_ ? mark_->hold() : nullptr);
}

} // namespace uhal_host
