#include "scheduler.h"

#include <thread>

#include "linger.h"
#include "platform.h"
#include "pool.h"
#include "stream.h"

namespace uhal_host {

void Scheduler::make_ready(Stream &stream) {
    std::unique_lock<std::mutex> guard(lock_);
    const bool high = stream.priority_ < 0;
    Queue &queue = queues_[high ? 0 : 1];
    stream.next_ready_ = nullptr;
    (queue.last != nullptr ? queue.last->next_ready_ : queue.first) = &stream;
    queue.last = &stream;
    ready_count_.fetch_add(1, std::memory_order_relaxed);
    ready_high_.fetch_add(high, std::memory_order_relaxed);
    call_runner(std::move(guard));
}

void Scheduler::make_ready_elsewhere(Stream &stream) {
    called_from_.store(this_processor(), std::memory_order_relaxed);
    make_ready(stream);
}

bool Scheduler::take_back(Stream &stream) {
    if (ready_count_.load(std::memory_order_relaxed) == 0) {
        return false;
    }
    std::unique_lock<std::mutex> guard(lock_);
    if (spinning_ == 0 && called_ != 0 && !made_way_) {
        made_way_ = true;
        guard.unlock();
        std::this_thread::yield();
        guard.lock();
    }
    if (spinning_ + called_ == 0) {
        return false;
    }
    Queue &queue = queues_[stream.priority_ < 0 ? 0 : 1];
    Stream *before = nullptr;
    for (Stream *one = queue.first; one != nullptr; before = one, one = one->next_ready_) {
        if (one == &stream) {
            (before != nullptr ? before->next_ready_ : queue.first) = one->next_ready_;
            if (queue.last == one) {
                queue.last = before;
            }
            taken(stream);
            return true;
        }
    }
    return false;
}

// Wakes or starts a runner for the ready streams, unless all runners are at work.
void Scheduler::call_runner(std::unique_lock<std::mutex> guard) {
    if (ready_count_.load(std::memory_order_relaxed) <= spinning_ + called_) {
        return;
    }
    if (sleeping_ != 0) {
        --sleeping_;
        ++calls_;
        ++called_;
        made_way_ = false;
        guard.unlock();
        ready_.notify_one();
        return;
    }
    if (runners_ >= limit_) {
        return;
    }
    ++runners_;
    guard.unlock();
    if (start_thread(run_forever, this, "uhal-runner")) {
        return;
    }
    // The system has no more threads. If there is no runner at all, this thread does the work.
    guard.lock();
    --runners_;
    while (runners_ == 0) {
        Stream *const stream = take();
        if (stream == nullptr) {
            return;
        }
        guard.unlock();
        stream->run();
        guard.lock();
    }
}

Stream *Scheduler::take() {
    for (Queue &queue : queues_) {
        Stream *const stream = queue.first;
        if (stream != nullptr) {
            queue.first = stream->next_ready_;
            if (queue.first == nullptr) {
                queue.last = nullptr;
            }
            taken(*stream);
            return stream;
        }
    }
    return nullptr;
}

void Scheduler::taken(const Stream &stream) {
    ready_count_.fetch_sub(1, std::memory_order_relaxed);
    ready_high_.fetch_sub(stream.priority_ < 0, std::memory_order_relaxed);
}

void Scheduler::run_forever(void *pointer) {
    Scheduler &self = *static_cast<Scheduler *>(pointer);
    std::unique_lock<std::mutex> guard(self.lock_);
    for (;;) {
        if (Stream *const stream = self.take()) {
            guard.unlock();
            stream->run();
            guard.lock();
            continue;
        }
        if (self.runners_ > self.limit_) {
            --self.runners_;
            return;
        }
        ++self.spinning_;
        guard.unlock();
        if (spinning_pays()) {
            self.linger();
            if (self.ready_count_.load(std::memory_order_relaxed) != 0) {
                leave_processor(self.called_from_.load(std::memory_order_relaxed));
            }
        }
        guard.lock();
        --self.spinning_;
        if (self.ready_count_.load(std::memory_order_relaxed) != 0) {
            continue;
        }
        if (self.pool_.wants_help()) {
            guard.unlock();
            self.pool_.help();
            guard.lock();
            continue;
        }
        ++self.sleeping_;
        self.ready_.wait(guard, [&self] { return self.calls_ != 0; });
        --self.calls_; // now, so that no runner that falls asleep meanwhile takes the call, too
        guard.unlock();
        leave_processor(self.called_from_.load(std::memory_order_relaxed));
        guard.lock();
        --self.called_;
    }
}

bool Scheduler::has_work() const {
    return ready_count_.load(std::memory_order_relaxed) != 0 || pool_.wants_help();
}

// Returns when there is work, or after a while without work.
void Scheduler::linger() const {
    for (Linger linger; !has_work() && linger.turn();) {
    }
}

Scheduler::Blocking::Blocking(Scheduler &scheduler) : scheduler_(scheduler) {
    std::unique_lock<std::mutex> guard(scheduler_.lock_);
    ++scheduler_.limit_;
    scheduler_.call_runner(std::move(guard));
}

Scheduler::Blocking::~Blocking() {
    const std::lock_guard<std::mutex> guard(scheduler_.lock_);
    --scheduler_.limit_;
}

} // namespace uhal_host
