// In-order queues of work. A stream has no thread of its own. A stream with work has exactly one
// owner at a time: a runner, the mark it is parked at, or a caller that runs a tiny task inline.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "event.h"
#include "patience.h"
#include "task.h"

#include <uhal/stream_teller.h>

namespace uhal_host {

class Capture;
struct Device;

class Stream {
  public:
    static constexpr uint32_t queue_depth = 1024;
    // A caller blocked by a full queue continues when the queue has shrunk to this size. If it
    // continued earlier, caller and runner would wake each other for every task.
    static constexpr uint32_t queue_room = queue_depth - queue_depth / 4;
    static constexpr size_t snapshot_bytes = UHAL_HOST_STAGED_BYTES;

    Stream(Device &device, int priority);

    Device &device() const { return device_; }
    int priority() const { return priority_; }
    // Returns whether the stream records its work. Callers check this; the stream itself runs work.
    bool capturing() const { return capturing_.load(std::memory_order_acquire); }
    void set_capturing(bool capturing) { capturing_.store(capturing, std::memory_order_release); }
    std::shared_ptr<Capture> capture; // accessed by the capture only
    bool idle() const { return pending_.load(std::memory_order_acquire) == 0; }
    // Launches that are done; a graph counts as one launch.
    uint64_t launches_done() const { return launches_done_.load(std::memory_order_acquire); }
    // Identifies the running launch in reports.
    uhal_running running() const { return {reinterpret_cast<uintptr_t>(this), launches_done()}; }

    // These functions return when the work is queued. Tiny work on an idle stream is done on
    // return. A full queue makes the caller wait.
    void launch(const Launch &launch);
    void copy_pinned(const Copy &copy);
    void fill(const Fill &fill);
    void callback(const Callback &callback);
    void call(const Call &call);
    void release_memory(uint64_t address);
    void replay(const Replay &replay);
    void record(MarkHold mark);
    void wait_for(MarkHold mark);

    // Returns when the source may be reused.
    void copy_from_pageable(const Copy &copy);
    // Returns when the copy is done.
    void copy_to_pageable(const Copy &copy);

    // Waits for everything queued before the call; false when the patience ended first.
    bool synchronize(const Patience &patience = {});

    // Tells the owner that a thread waits for the current or last launch.
    void note_wait() {
        if (!waited_for_.load(std::memory_order_relaxed)) {
            waited_for_.store(true, std::memory_order_relaxed);
        }
    }

    // Drops the handle's reference; queued work still runs.
    void drop();
    bool hold_if_alive();

    // For the owner of the stream: a runner, or a mark that completed.
    void run();
    void resume();

  private:
    friend class Scheduler;
    friend struct Device;

    // Launches that are expected to take less are not shared with a waiting thread.
    static constexpr double worth_of_help_nanoseconds = 10'000;

    // Runner of a task: a runner thread, a runner for a graph, or a thread that waits for the
    // task.
    enum class By { runner, graph, waiter };

    // Result of a task: done; the stream is parked; or other streams come first.
    enum class Outcome { done, parked, later };

    ~Stream();
    bool claim();
    void unclaim();
    void hold() { references_.fetch_add(1, std::memory_order_relaxed); }
    template <class Set> Task *make_task(Set &&set);
    void recycle(Task *task);
    template <class Set> uint64_t submit(Set &&set);
    void run_inline(const Launch &launch);
    void run_untimed(const Launch &launch);
    void hand_over(const Launch &rest);
    Outcome execute(Task &task, By by);
    Outcome execute(Replay &replay);
    void execute(const Launch &launch, uint64_t index, By by);
    bool is_worth_help(const Launch &launch);
    uint64_t awaited(bool waited) const;
    bool will_be_awaited(const Function &function) const;
    void note_launch(const Function &function);
    // Runs queued tasks until `may_run` refuses a task; a runner gets the rest.
    template <class MayRun> void run_while(By by, MayRun &&may_run);
    // For a thread that waits for a ticket: runs short tasks if no runner took the stream. Returns
    // whether the thread ran any tasks.
    bool run_instead(uint64_t ticket);
    void execute_step(const Task &step, uint64_t index, By by);
    void move(const Copy &copy);
    void count_launch();
    bool wait_for_ticket(uint64_t ticket, const Patience &patience = {});
    bool wait_for_queued(const Patience &patience);
    template <class Condition>
    bool look_on(const Patience &patience, uint64_t ticket, Condition &&condition);
    template <class Condition>
    bool wait_until(const Patience &patience, uint64_t ticket, Condition &&condition);
    void notify_waiters();

    Device &device_;
    const int priority_;
    std::atomic<bool> capturing_{false};
    // Tasks queued or running. The thread that raises the count from 0 owns the stream until the
    // count is 0 again.
    alignas(64) std::atomic<uint32_t> pending_{0};
    std::atomic<uint32_t> waiters_{0};       // that sleep
    std::atomic<bool> waited_for_{false};    // when the current or last launch began
    std::atomic<uint64_t> executed_{0};      // tasks from the queue
    std::atomic<uint64_t> launches_done_{0}; // written by the stream's owner only
    std::atomic<uint32_t> references_{1};
    // Only the owner uses these words. The first is a set of kernels whose callers waited before
    // the next launch, as bits by a hash of the address. The second is the last kernel's bit.
    uint64_t awaited_ = 0;
    uint64_t last_launched_ = 0;
    uint64_t last_shareable_ = 0; // ticks

    alignas(64) std::mutex lock_; // of what follows
    std::condition_variable changed_;
    std::condition_variable room_; // for callers that met a full queue
    Task *first_ = nullptr;
    Task *last_ = nullptr;
    Task *spare_ = nullptr;
    uint32_t queued_ = 0;
    uint32_t waiting_for_room_ = 0;
    uint64_t submitted_ = 0;

    Stream *next_ready_ = nullptr;     // the scheduler's
    Stream *next_of_device_ = nullptr; // the device's, as the next
    Stream *previous_of_device_ = nullptr;
};

} // namespace uhal_host
