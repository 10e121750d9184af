// The pool of threads that run a launch's blocks. The thread that runs a launch never waits for a
// sleeping worker: workers join this thread if they are awake or wake in time. A thread that waits
// for the launch joins, too. Several launches run at once.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>

#include "kernel.h"
#include "platform.h"

namespace uhal_host {

class Pool {
  public:
    // `threads` counts the caller of run(); no thread is started before the first run().
    explicit Pool(unsigned threads) : threads_(threads) {}

    unsigned threads() const { return threads_; }

    // Runs all blocks from launch.first on and returns how many threads ran some of them. A
    // kernel's first exception is rethrown, and blocks not yet begun are dropped. With `is_open`,
    // threads that wait for the stream may join. With `is_coming`, such a thread is expected. Then
    // one worker fewer is woken, because this worker might share a processor with the thread. If
    // seats are still empty after the first blocks, the worker is woken, too.
    unsigned run(const Launch &launch, const Stream &stream, bool is_open, bool is_coming);

    // For a thread that waits for `owner`: runs blocks of the owner's launch while goes_on() is
    // true. goes_on() is called between blocks. Returns whether the thread ran any blocks.
    template <class GoesOn> bool help(const void *owner, GoesOn &&goes_on) {
        for (Slot &slot : slots_) {
            if (slot.owner.load(std::memory_order_relaxed) != owner) {
                continue;
            }
            Job *const job = join(slot, owner);
            if (job != nullptr) {
                while (goes_on() && work(*job)) {
                }
            }
            leave(slot);
            if (job != nullptr) {
                return true;
            }
        }
        return false;
    }

    // For an idle thread: runs blocks of any launch. Returns whether the thread ran any blocks.
    bool help();
    bool wants_help() const { return seats_.load(std::memory_order_relaxed) > 0; }

    bool keeps_awake() const { return kept_awake_.load(std::memory_order_relaxed) != 0; }

    // While an object lives, workers wait longer for the next launch before they sleep. A graph's
    // launches follow each other closely, but launches that run on the caller leave gaps for the
    // workers.
    class Awake {
      public:
        explicit Awake(Pool &pool) : pool_(pool) { pool_.kept_awake_.fetch_add(1); }
        ~Awake() { pool_.kept_awake_.fetch_sub(1); }
        Awake(const Awake &) = delete;

      private:
        Pool &pool_;
    };

  private:
    struct Job {
        Job(const Launch &job_launch, const Stream &job_stream, const void *job_owner,
            unsigned job_seats)
            : launch(job_launch), stream(job_stream), owner(job_owner), seats(job_seats),
              next(job_launch.first) {}

        const Launch &launch;
        const Stream &stream;
        const void *const owner; // waiting threads may take part
        const unsigned seats;    // of helpers
        std::atomic<unsigned> helpers{0};
        std::atomic_flag failed = ATOMIC_FLAG_INIT;
        std::exception_ptr failure; // written by the thread that set `failed`
        alignas(64) std::atomic<uint64_t> next;
    };

    // Slots outlive jobs, which live on the stack of the thread in run().
    struct alignas(64) Slot {
        std::atomic<bool> taken{false};
        std::atomic<Job *> job{nullptr};
        std::atomic<const void *> owner{nullptr}; // a hint; join() compares the job's owner
        std::atomic<int> processor{-1};           // where run() began
        std::atomic<uint32_t> joined{0};
        std::atomic<bool> awaited{false};
    };

    static constexpr unsigned slot_count = 16;

    static bool work(Job &job);
    static void work_forever(void *pool);
    int64_t patience() const;
    Job *join(Slot &slot, const void *owner);
    void leave(Slot &slot);
    void call(uint64_t workers);
    void start_workers();
    Slot *take_slot();
    void free_slot(Slot &slot);

    const unsigned threads_;
    std::mutex starting_; // of workers
    std::atomic<unsigned> workers_{0};
    int64_t next_start_ = 0; // by the monotonic clock in ns
    Slot slots_[slot_count];
    alignas(64) std::atomic<int64_t> seats_{0}; // of all jobs, for helpers that have not come
    alignas(64) std::atomic<uint32_t> generation_{0};
    alignas(64) std::atomic<uint32_t> sleepers_{0};
    std::atomic<uint32_t> kept_awake_{0};
};

} // namespace uhal_host
