#include "scheduler.h"

#include <algorithm>
#include <chrono>

#include "device.h"
#include "thread.h"

namespace sim {

namespace {

thread_local bool is_calling_back = false;

} // namespace

bool Scheduler::calling_back() {
    return is_calling_back;
}

Point Scheduler::submit(Lock &lock, const std::shared_ptr<Queue> &queue, Task task) {
    start();
    while (queue->submitted - queue->finished >= Queue::capacity) {
        // Makes a quarter of the queue due at once, because waking the other thread for each task
        // would be slow.
        make_due({queue, queue->finished + Queue::capacity / 4});
        progress_.wait(lock);
    }
    if (queue->empty()) {
        active_.push_back(queue);
    }
    queue->waiting.push_back(std::move(task));
    const Point point{queue, ++queue->submitted};
    if (schedule_.kind() == Schedule::Kind::eager || queue->device.fault != Status::ok) {
        make_due(point);
    } else if (schedule_.kind() == Schedule::Kind::random) {
        make_random_due();
    }
    return point;
}

void Scheduler::wait(Lock &lock, const std::vector<Point> &points) {
    for (const Point &point : points) {
        make_due(point);
    }
    for (const Point &point : points) {
        progress_.wait(lock, [&] { return point.reached(); });
    }
}

bool Scheduler::poll(const Point &point) {
    if (point.reached()) {
        return true;
    }
    make_due({point.queue, point.queue->finished + 1});
    return false;
}

void Scheduler::make_all_due() {
    for (const auto &queue : active_) {
        make_due({queue, queue->submitted});
    }
}

std::vector<Point> Scheduler::pending(const Device &device) const {
    std::vector<Point> points;
    for (const auto &queue : active_) {
        if (&queue->device == &device) {
            points.push_back({queue, queue->submitted});
        }
    }
    return points;
}

void Scheduler::make_due(const Point &point) {
    if (point.reached() || point.queue->due >= point.position) {
        return;
    }
    point.queue->due = point.position;
    work_due_.notify_one();
    watch();
}

void Scheduler::make_random_due() {
    for (unsigned steps = schedule_.due_on_submit(); steps != 0; --steps) {
        const auto &queue = active_[schedule_.choose(active_.size())];
        const uint64_t least = std::max(queue->due, queue->finished);
        make_due({queue, std::min(least + 1, queue->submitted)});
    }
}

void Scheduler::start() {
    if (started_) {
        return;
    }
    started_ = true;
    start_thread([this] { work_forever(); });
    start_thread([this] { call_back_forever(); });
}

void Scheduler::work_forever() {
    Lock lock(mutex);
    for (;;) {
        if (!run_next(lock)) {
            work_due_.wait(lock);
        }
    }
}

// Asks a relief thread to watch the running tasks while other work is due.
void Scheduler::watch() {
    if (running_ == 0 || watching_) {
        return;
    }
    constexpr unsigned most_reliefs = 64;
    watching_ = true;
    if (idle_reliefs_ != 0) {
        relief_due_.notify_one();
    } else if (reliefs_ < most_reliefs) {
        start_relief();
    }
}

void Scheduler::start_relief() {
    ++reliefs_;
    start_thread([this] { relieve_forever(); });
}

void Scheduler::relieve_forever() {
    // A task that takes longer than this may wait for another task.
    constexpr std::chrono::milliseconds patience{5};
    Lock lock(mutex);
    for (;;) {
        ++idle_reliefs_;
        relief_due_.wait(lock, [&] { return watching_; });
        uint64_t seen;
        do {
            seen = changes_;
            relief_due_.wait_for(lock, patience, [] { return false; });
        } while (running_ != 0 && changes_ != seen);
        watching_ = false;
        --idle_reliefs_;
        if (running_ == 0) {
            continue;
        }
        while (run_next(lock)) {
        }
    }
}

bool Scheduler::run_next(Lock &lock) {
    const std::shared_ptr<Queue> queue = next_queue();
    if (queue == nullptr) {
        return false;
    }
    queue->running = true;
    if (queue->waiting.front().calls_back && queue->device.fault == Status::ok) {
        to_call_back_.push_back(queue);
        call_due_.notify_one();
        return true;
    }
    ++running_;
    ++changes_;
    const auto waits = [](const auto &one) { return !one->running && one->due > one->finished; };
    if (std::any_of(active_.begin(), active_.end(), waits)) {
        watch();
    }
    run(lock, queue);
    --running_;
    ++changes_;
    return true;
}

std::shared_ptr<Queue> Scheduler::next_queue() {
    // Predecessors of a due task become due too, one queue at a time.
    for (size_t round = 0; round < active_.size(); ++round) {
        std::vector<std::shared_ptr<Queue>> ready;
        for (const auto &queue : active_) {
            if (!queue->running && queue->due > queue->finished && startable(*queue)) {
                ready.push_back(queue);
            }
        }
        if (!ready.empty()) {
            return ready[schedule_.choose(ready.size())];
        }
    }
    return nullptr;
}

bool Scheduler::startable(const Queue &queue) {
    bool ready = true;
    for (const Point &point : queue.waiting.front().after) {
        if (!point.reached()) {
            make_due(point);
            ready = false;
        }
    }
    return ready;
}

void Scheduler::run(Lock &lock, const std::shared_ptr<Queue> &queue) {
    Status status = Status::ok;
    {
        Task task = std::move(queue->waiting.front());
        queue->waiting.pop_front();
        const bool lost = queue->device.fault != Status::ok;
        lock.unlock();
        if (!lost) {
            status = task.work();
        }
        // The task's captured objects are destroyed before the lock is taken: they may need the
        // lock.
    }
    lock.lock();
    finish(queue, status);
}

void Scheduler::finish(const std::shared_ptr<Queue> &queue, Status status) {
    queue->running = false;
    ++queue->finished;
    if (queue->empty()) {
        active_.erase(std::find(active_.begin(), active_.end(), queue));
    }
    Device &device = queue->device;
    if (status != Status::ok && device.fault == Status::ok) {
        device.fault = status;
        // No more tasks run on this device. Its queues empty themselves, so no wait hangs.
        for (const Point &point : pending(device)) {
            make_due(point);
        }
    }
    progress_.notify_all();
    work_due_.notify_one();
    watch();
}

void Scheduler::call_back_forever() {
    is_calling_back = true;
    Lock lock(mutex);
    for (;;) {
        call_due_.wait(lock, [&] { return !to_call_back_.empty(); });
        const std::shared_ptr<Queue> queue = to_call_back_.front();
        to_call_back_.pop_front();
        run(lock, queue);
    }
}

} // namespace sim
