// Events, and the marks they leave in streams.
//
// Each record makes a new mark, or reuses the old mark if it has no other holder. So a wait still
// refers to its record after later records, and an event may be destroyed at any time.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "patience.h"

namespace uhal_host {

struct CapturePoint;
struct Device;
class Stream;

class Mark {
  public:
    bool done() const { return done_.load(std::memory_order_acquire); }
    int64_t nanoseconds() const { return nanoseconds_; } // valid when done

    // Sets the time and wakes all waiters. Only the stream that holds the mark calls this
    // function.
    void complete();
    // Blocks the calling thread until completion; false if the patience ended first.
    bool wait(const Patience &patience);
    // Parks `stream` here until completion; false if the mark is complete already.
    bool park(Stream &stream);

    Mark *hold() {
        references_.fetch_add(1, std::memory_order_relaxed);
        return this;
    }
    void drop() {
        if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
            delete this;
        }
    }
    bool held_once() const { return references_.load(std::memory_order_acquire) == 1; }
    void reset() { done_.store(false, std::memory_order_relaxed); }

  private:
    std::atomic<uint32_t> references_{1};
    std::atomic<bool> done_{false};
    int64_t nanoseconds_ = 0;
    std::mutex lock_;
    std::condition_variable completed_;
    std::vector<Stream *> parked_;
};

// Owns one reference to a mark, or none.
struct MarkDropper {
    void operator()(Mark *mark) const { mark->drop(); }
};
using MarkHold = std::unique_ptr<Mark, MarkDropper>;

class Event {
  public:
    Event(Device &device, unsigned flags) : device_(device), flags_(flags) {}
    Device &device() const { return device_; }
    bool timed() const;
    void record(Stream &stream);
    // An event that was never recorded is complete.
    bool complete();
    bool wait(const Patience &patience);
    // The mark of the latest record, null before the first.
    MarkHold latest();

    // Whether the latest record was in a capture. If so, the event has a point in the capture
    // instead of a mark. Only the capture accesses the point.
    bool captured() const { return captured_.load(std::memory_order_acquire); }
    std::shared_ptr<const CapturePoint> point() const { return point_; }
    void set_point(std::shared_ptr<const CapturePoint> point);

  private:
    Device &device_;
    const unsigned flags_;
    std::mutex lock_;
    MarkHold mark_;
    std::atomic<bool> captured_{false};
    std::shared_ptr<const CapturePoint> point_;
};

} // namespace uhal_host
