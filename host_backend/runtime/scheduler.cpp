#include "scheduler.h"

#include <thread>

#include "platform.h"
#include "stream.h"

namespace uhal_host {

namespace {

// Bridges the gap between two launches of a loop.
constexpr int64_t spin_nanoseconds = 20'000;
// From then on others that want the processor get it. Waking a processor that went to sleep costs the
// caller some 15 us on a virtual machine: more than to hand over a graph of 400 launches.
constexpr int64_t yield_nanoseconds = 200'000;
// Asking for the time, and giving way, takes from the other thread of the core, a look does not.
constexpr unsigned looks_between_times = 32;

} // namespace

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

// Sees to it that somebody takes the ready streams, unless all who may are at work.
void Scheduler::call_runner(std::unique_lock<std::mutex> guard) {
    if (ready_count_.load(std::memory_order_relaxed) <= spinning_ + called_) {
        return;
    }
    if (sleeping_ != 0) {
        --sleeping_;
        ++called_;
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
    // No thread to be had: without any runner this one has to do the work.
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
            ready_count_.fetch_sub(1, std::memory_order_relaxed);
            ready_high_.fetch_sub(stream->priority_ < 0, std::memory_order_relaxed);
            return stream;
        }
    }
    return nullptr;
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
        }
        guard.lock();
        --self.spinning_;
        if (self.ready_count_.load(std::memory_order_relaxed) != 0) {
            continue;
        }
        ++self.sleeping_;
        self.ready_.wait(guard, [&self] { return self.called_ != 0; });
        --self.called_;
    }
}

// Returns when there is something to do, or there was not for a while.
void Scheduler::linger() const {
    const int64_t start = monotonic_nanoseconds();
    for (unsigned turn = 1; ready_count_.load(std::memory_order_relaxed) == 0; ++turn) {
        relax();
        if (turn % looks_between_times != 0) {
            continue;
        }
        const int64_t spent = monotonic_nanoseconds() - start;
        if (spent >= yield_nanoseconds) {
            return;
        }
        if (spent >= spin_nanoseconds) {
            std::this_thread::yield();
        }
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
