// Runner threads and the streams that are ready for one.
//
// There are as many runners as cores, and one more for each that is inside a host function: those
// are the only tasks that may block, so a ready stream always finds a runner in the end.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace uhal_host {

class Stream;

class Scheduler {
  public:
    explicit Scheduler(unsigned runners) : limit_(runners) {}

    // The caller owns the stream and gives it, with one reference, to the next free runner.
    void make_ready(Stream &stream);

    // Whether a runner should leave its stream for another: at once for a higher priority, for an
    // equal one when its turn is over.
    bool wants(int priority, bool turn_over) const {
        if (turn_over) {
            return ready_count_.load(std::memory_order_relaxed) != 0;
        }
        return priority >= 0 && ready_high_.load(std::memory_order_relaxed) != 0;
    }

    // While one lives its runner may block.
    class Blocking {
      public:
        explicit Blocking(Scheduler &scheduler);
        ~Blocking();
        Blocking(const Blocking &) = delete;

      private:
        Scheduler &scheduler_;
    };

  private:
    struct Queue {
        Stream *first = nullptr;
        Stream *last = nullptr;
    };

    static void run_forever(void *scheduler);
    Stream *take();
    void call_runner(std::unique_lock<std::mutex> guard);
    void linger() const;

    std::mutex lock_; // of all but the atomics
    std::condition_variable ready_;
    Queue queues_[2]; // high priority first
    unsigned limit_;
    unsigned runners_ = 0;
    unsigned sleeping_ = 0; // and not yet called
    unsigned called_ = 0;   // out of sleep, and not yet back
    unsigned spinning_ = 0;
    std::atomic<unsigned> ready_count_{0};
    std::atomic<unsigned> ready_high_{0};
};

} // namespace uhal_host
