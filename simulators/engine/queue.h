// In-order queues of work, and points in them that others wait for.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "status.h"

namespace sim {

class Queue;
struct Device;

// The completion of the first `position` tasks of a queue. An empty point is always reached.
struct Point {
    std::shared_ptr<Queue> queue;
    uint64_t position = 0;

    bool reached() const;
};

struct Task {
    // Called without the lock. Any result other than ok is a fault: the device is lost.
    std::function<Status()> work;
    // The task starts after all of these points are reached.
    std::vector<Point> after;
    // `work` calls the program back, on a separate thread, so that a slow call delays only its
    // queue.
    bool calls_back = false;
};

// Only the scheduler changes a queue, under the scheduler's lock.
class Queue {
  public:
    // The maximum number of tasks in a queue; adding another task waits.
    static constexpr uint64_t capacity = 1024;

    explicit Queue(Device &owner) : device(owner) {}

    bool empty() const { return finished == submitted; }

    Device &device;
    std::deque<Task> waiting;
    uint64_t submitted = 0;
    uint64_t finished = 0;
    uint64_t due = 0; // the schedule lets tasks run up to this position
    bool running = false;
};

inline bool Point::reached() const {
    return queue == nullptr || queue->finished >= position;
}

} // namespace sim
