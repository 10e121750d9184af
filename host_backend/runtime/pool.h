// The thread pool over blocks: the thread that runs a launch is joined by whatever workers are
// awake or get up in time, and never waits for one that sleeps. Several launches run at once.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>

#include "kernel.h"

namespace uhal_host {

class Pool {
  public:
    // `threads` counts the caller of run(); no thread is started before the first run().
    explicit Pool(unsigned threads) : threads_(threads) {}

    unsigned threads() const { return threads_; }

    // Runs all blocks from launch.first on and returns how many threads took part. What a kernel
    // throws first is passed on, the blocks not yet begun are dropped then.
    unsigned run(const Launch &launch);

    // While one lives, workers wait longer for the next launch before they sleep: a graph's launches
    // follow each other closely, and those that run on the caller leave gaps.
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
        Job(const Launch &job_launch, unsigned job_threads)
            : launch(job_launch), threads(job_threads), next(job_launch.first) {}

        const Launch &launch;
        const unsigned threads; // that may take part
        std::atomic<unsigned> helpers{0};
        std::atomic_flag failed = ATOMIC_FLAG_INIT;
        std::exception_ptr failure; // written by whoever set `failed`
        alignas(64) std::atomic<uint64_t> next;
    };

    // Slots outlive jobs, which live on the stack of the thread in run().
    struct alignas(64) Slot {
        std::atomic<bool> taken{false};
        std::atomic<Job *> job{nullptr};
        std::atomic<uint32_t> joined{0};
        std::atomic<bool> awaited{false};
    };

    static constexpr unsigned slot_count = 16;

    static void work(Job &job);
    static void work_forever(void *pool);
    int64_t patience() const;
    bool help();
    void start_workers();
    Slot *take_slot();
    void leave_slot(Slot &slot);

    const unsigned threads_;
    std::once_flag started_;
    Slot slots_[slot_count];
    alignas(64) std::atomic<uint32_t> generation_{0};
    alignas(64) std::atomic<uint32_t> sleepers_{0};
    std::atomic<uint32_t> kept_awake_{0};
};

} // namespace uhal_host
