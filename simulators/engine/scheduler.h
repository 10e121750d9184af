// Runs the tasks of all queues of a simulated driver, in an order that the schedule chooses.
//
// One thread runs the tasks of every device, one task after the other. While a task waits, such as
// a kernel that polls a flag, other threads take over and run ready work of independent queues.
// One more thread calls the program back. Threads start when they are needed.
//
// `mutex` guards everything the simulated driver owns, not only the queues.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "queue.h"
#include "schedule.h"

namespace sim {

using Lock = std::unique_lock<std::mutex>;

class Scheduler {
  public:
    explicit Scheduler(Schedule schedule) : schedule_(std::move(schedule)) {}
    Scheduler(const Scheduler &) = delete;
    Scheduler &operator=(const Scheduler &) = delete;

    std::mutex mutex;

    // True on a thread that is calling the program back.
    static bool calling_back();

    const Schedule &schedule() const { return schedule_; }

    // Adds a task and returns the point of its completion. Waits while the queue is full.
    Point submit(Lock &lock, const std::shared_ptr<Queue> &queue, Task task);

    // Makes the work up to the points due and waits for it.
    void wait(Lock &lock, const std::vector<Point> &points);

    // Whether the point is reached. If not, one step towards the point becomes due, so that a
    // polling program makes progress.
    bool poll(const Point &point);

    // Makes all queued work due: a running task waits for some of this work, but does not know for
    // which part.
    void make_all_due();

    // Points at the ends of a device's queues that have unfinished work.
    std::vector<Point> pending(const Device &device) const;

    // Lets the schedule choose among independent items.
    size_t choose(size_t count) { return schedule_.choose(count); }

  private:
    void start();
    void work_forever();
    void relieve_forever();
    void call_back_forever();
    bool run_next(Lock &lock);
    void watch();
    void start_relief();
    std::shared_ptr<Queue> next_queue();
    bool startable(const Queue &queue);
    void run(Lock &lock, const std::shared_ptr<Queue> &queue);
    void finish(const std::shared_ptr<Queue> &queue, Status status);
    void make_due(const Point &point);
    void make_random_due();

    Schedule schedule_;
    bool started_ = false;
    std::vector<std::shared_ptr<Queue>> active_; // with unfinished tasks, oldest first
    std::deque<std::shared_ptr<Queue>> to_call_back_;
    unsigned running_ = 0;  // tasks in progress, without calls to the program
    uint64_t changes_ = 0;  // count of their starts and ends
    bool watching_ = false; // a relief thread watches whether they make progress
    unsigned reliefs_ = 0;
    unsigned idle_reliefs_ = 0;
    std::condition_variable work_due_;
    std::condition_variable relief_due_;
    std::condition_variable call_due_;
    std::condition_variable progress_;
};

} // namespace sim
