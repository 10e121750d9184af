// Runner threads, and the streams that are ready for a runner. A runner without a stream helps the
// pool.
//
// There is one runner per core, and one more for each runner inside a host function. Only
// host functions may block, so a ready stream always finds a runner in the end.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace uhal_host {

class Pool;
class Stream;

class Scheduler {
  public:
    Scheduler(unsigned runners, Pool &pool) : pool_(pool), limit_(runners) {}

    // The caller owns the stream and gives it, with one reference, to the next free runner.
    void make_ready(Stream &stream);
    // Like make_ready(), for a caller that continues to run: the runner should run on another
    // processor.
    void make_ready_elsewhere(Stream &stream);
    // Gives the stream back to the caller if no runner has taken it yet, because a woken runner
    // may wait milliseconds for a processor. First the caller yields once: a runner that waits for
    // the caller's processor then runs, and moves to another processor.
    bool take_back(Stream &stream);
    // Whether a runner without a stream is awake. A called runner need not be awake: on a virtual
    // machine it may wait milliseconds for the caller's processor.
    bool has_idle_runner() const { return spinning_.load(std::memory_order_relaxed) != 0; }

    // Whether a runner should leave its stream for another stream: at once for a stream of higher
    // priority, after its turn for a stream of equal priority.
    bool wants(int priority, bool turn_over) const {
        if (turn_over) {
            return ready_count_.load(std::memory_order_relaxed) != 0;
        }
        return priority >= 0 && ready_high_.load(std::memory_order_relaxed) != 0;
    }

    // While an object lives, its runner may block.
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
    void taken(const Stream &stream);
    void call_runner(std::unique_lock<std::mutex> guard);
    bool has_work() const;
    void linger() const;

    Pool &pool_;
    std::mutex lock_; // of all but the atomics
    std::condition_variable ready_;
    Queue queues_[2]; // high priority first
    unsigned limit_;
    unsigned runners_ = 0;
    unsigned sleeping_ = 0; // and not yet called
    unsigned calls_ = 0;    // not yet taken by a sleeper
    unsigned called_ = 0;   // out of sleep, and not yet back
    bool made_way_ = false; // for those called
    std::atomic<unsigned> spinning_{0};
    std::atomic<unsigned> ready_count_{0};
    std::atomic<unsigned> ready_high_{0};
    std::atomic<int> called_from_{-1}; // the processor
};

} // namespace uhal_host
