#include "stream.h"

#include <algorithm>
#include <new>

#include "linger.h"
#include "platform.h"
#include "runtime.h"

namespace uhal_host {

namespace {

// A launch that should take no longer than this time runs on the caller's thread. On a single
// processor, a runner would only alternate with the caller, so anything shorter than a time slice
// runs inline.
double inline_nanoseconds() { return spinning_pays() ? 20'000 : 1'000'000; }

// How long a runner stays awake after a launch.
constexpr double awake_nanoseconds = 200'000;

} // namespace

Stream::Stream(Device &device, int priority) : device_(device), priority_(priority) {
    device_.add(*this);
}

Stream::~Stream() {
    for (Task *task = spare_; task != nullptr;) {
        Task *const next = task->next;
        delete task;
        task = next;
    }
}

// -- the caller's side ----------------------------------------------------------------------------

template <class Set> uint64_t Stream::submit(Set &&set) {
    Task *const task = make_task(set);
    task->has_ticket = true;
    task->next = nullptr;
    uint64_t ticket;
    bool was_idle;
    {
        std::unique_lock<std::mutex> guard(lock_);
        if (queued_ >= queue_depth) {
            ++waiting_for_room_;
            room_.wait(guard, [this] { return queued_ <= queue_room; });
            --waiting_for_room_;
        }
        (last_ != nullptr ? last_->next : first_) = task;
        last_ = task;
        ++queued_;
        ticket = ++submitted_;
        was_idle = pending_.fetch_add(1) == 0;
    }
    if (was_idle) {
        hold();
        device_.runtime.scheduler.make_ready_elsewhere(*this);
    }
    return ticket;
}

template <class Set> Task *Stream::make_task(Set &&set) {
    Task *task = nullptr;
    {
        const std::lock_guard<std::mutex> guard(lock_);
        if (spare_ != nullptr) {
            task = spare_;
            spare_ = task->next;
        }
    }
    if (task == nullptr) {
        task = new Task;
    }
    try {
        set(*task);
    } catch (...) {
        recycle(task);
        throw;
    }
    return task;
}

bool Stream::claim() {
    uint32_t none = 0;
    return pending_.compare_exchange_strong(none, 1, std::memory_order_acquire,
                                            std::memory_order_relaxed);
}

void Stream::unclaim() {
    if (pending_.fetch_sub(1) != 1) {
        // Meanwhile, other threads queued work that the owner must run.
        hold();
        device_.runtime.scheduler.make_ready_elsewhere(*this);
    } else if (waiters_.load() != 0) {
        notify_waiters();
    }
}

void Stream::launch(const Launch &launch) {
    const uint64_t items = launch.blocks * launch.threads();
    const double expected = launch.function->predict_nanoseconds(items);
    if (expected < inline_nanoseconds() && stack_has_room() && claim()) {
        if (launch.blocks == 1 && !launch.function->is_timed_now(expected)) {
            run_untimed(launch);
        } else if (expected > worth_of_help_nanoseconds && is_worth_help(launch)) {
            try {
                hand_over(launch);
            } catch (const std::bad_alloc &) {
                run_inline(launch);
            }
        } else {
            run_inline(launch);
        }
        return;
    }
    submit([&](Task &task) {
        task.set(launch);
        launch.function->module->hold();
    });
}

// Runs a launch of one block, which cannot be shared, without measuring it.
void Stream::run_untimed(const Launch &launch) {
    try {
        run_blocks(launch, *this, 0, 1);
    } catch (...) {
        device_.fail(std::current_exception(), launch, *this, 0);
    }
    count_launch();
    unclaim();
}

// The estimate may be wrong, so blocks run in growing batches. If the remaining blocks would take
// too long, the launch goes to the front of the queue.
void Stream::run_inline(const Launch &launch) {
    const uint64_t start = ticks();
    const uint64_t threads = launch.threads();
    const double tick = device_.runtime.nanoseconds_per_tick;
    const double longest = inline_nanoseconds();
    uint64_t done = 0;
    uint64_t batch = 1;
    double spent = 0;
    try {
        for (;;) {
            run_blocks(launch, *this, done, batch);
            done += batch;
            spent = static_cast<double>(ticks() - start) * tick;
            if (done == launch.blocks) {
                break;
            }
            const double rest = static_cast<double>(launch.blocks - done);
            if (spent / static_cast<double>(done) * rest > longest) {
                launch.function->learn(done * threads, spent);
                Launch remaining = launch;
                remaining.first = done;
                hand_over(remaining);
                return;
            }
            batch = std::min(done, launch.blocks - done);
        }
        launch.function->learn(done * threads, spent);
    } catch (...) {
        device_.fail(std::current_exception(), launch, *this, 0);
    }
    count_launch();
    unclaim();
}

void Stream::count_launch() {
    if (device_.error.load(std::memory_order_relaxed) != 0) {
        return; // it may not have run
    }
    const uint64_t before = launches_done_.load(std::memory_order_relaxed);
    launches_done_.store(before + 1, std::memory_order_release);
}

// Whether to share a launch between a runner and the caller, who is expected to wait for the
// launch. Waking a runner takes longer than the launch, so only launches in a row are shared.
bool Stream::is_worth_help(const Launch &launch) {
    const double apart = static_cast<double>(ticks() - last_shareable_);
    last_shareable_ = ticks();
    return launch.blocks > 1 && device_.runtime.pool.threads() > 1 &&
           will_be_awaited(*launch.function) &&
           apart * device_.runtime.nanoseconds_per_tick < awake_nanoseconds;
}

// Turns the caller's claim into a task at the front of the queue.
void Stream::hand_over(const Launch &rest) {
    Task *const task = make_task([&](Task &fresh) { fresh.set(rest); });
    rest.function->module->hold();
    task->has_ticket = false;
    {
        const std::lock_guard<std::mutex> guard(lock_);
        task->next = first_;
        first_ = task;
        if (last_ == nullptr) {
            last_ = task;
        }
        ++queued_;
    }
    hold();
    device_.runtime.scheduler.make_ready_elsewhere(*this);
}

void Stream::copy_pinned(const Copy &copy) {
    if (copy.bytes <= snapshot_bytes && claim()) {
        move(copy);
        unclaim();
        return;
    }
    submit([&](Task &task) {
        task.kind = TaskKind::copy;
        task.copy = copy;
    });
}

void Stream::copy_from_pageable(const Copy &copy) {
    if (claim()) {
        move(copy);
        unclaim();
    } else if (copy.bytes <= snapshot_bytes) {
        submit([&](Task &task) { task.set_snapshot(copy.destination, copy.source, copy.bytes); });
    } else {
        copy_to_pageable(copy);
    }
}

void Stream::copy_to_pageable(const Copy &copy) {
    if (claim()) {
        move(copy);
        unclaim();
        return;
    }
    wait_for_ticket(submit([&](Task &task) {
        task.kind = TaskKind::copy;
        task.copy = copy;
    }));
}

void Stream::fill(const Fill &fill) {
    if (fill.count * fill.width <= snapshot_bytes && claim()) {
        uhal_host::run(fill);
        unclaim();
        return;
    }
    submit([&](Task &task) {
        task.kind = TaskKind::fill;
        task.fill = fill;
    });
}

void Stream::callback(const Callback &callback) {
    submit([&](Task &task) {
        task.kind = TaskKind::callback;
        task.callback = callback;
    });
}

void Stream::call(const Call &call) {
    submit([&](Task &task) {
        task.kind = TaskKind::call;
        task.call = call;
    });
}

void Stream::release_memory(uint64_t address) {
    submit([&](Task &task) {
        task.kind = TaskKind::release;
        task.address = address;
    });
}

void Stream::replay(const Replay &replay) {
    submit([&](Task &task) {
        task.kind = TaskKind::replay;
        task.replay = replay;
    });
}

void Stream::record(MarkHold mark) {
    if (claim()) {
        mark->complete();
        unclaim();
        return;
    }
    submit([&](Task &task) {
        task.kind = TaskKind::record;
        task.mark = mark.release();
    });
}

void Stream::wait_for(MarkHold mark) {
    if (mark->done()) {
        return;
    }
    submit([&](Task &task) {
        task.kind = TaskKind::wait;
        task.mark = mark.release();
    });
}

// -- waiting --------------------------------------------------------------------------------------

// Waits while others run the stream's work, helps with shared launches of this stream, and runs
// tasks that no runner takes.
template <class Condition>
bool Stream::look_on(const Patience &patience, uint64_t ticket, Condition &&condition) {
    constexpr int64_t runner_comes_nanoseconds = 5'000;
    constexpr int64_t slice_nanoseconds = 50'000'000; // until the patience is checked again
    const int64_t end = monotonic_nanoseconds() + slice_nanoseconds;
    const auto goes_on = [&] { return !condition() && monotonic_nanoseconds() < end; };
    Pool &pool = device_.runtime.pool;
    const bool helps = patience.deadline == 0 && stack_has_room();
    for (Linger linger; !condition(); linger = {}) {
        note_wait();
        while (!helps || !(pool.help(this, goes_on) ||
                           (linger.spent() > runner_comes_nanoseconds && run_instead(ticket)))) {
            if (condition()) {
                return true;
            }
            const bool is_over = pool.keeps_awake() && linger.spent() > runner_comes_nanoseconds;
            if (is_over || !linger.turn()) {
                return false;
            }
        }
        if (monotonic_nanoseconds() >= end) {
            return condition();
        }
    }
    return true;
}

template <class Condition>
bool Stream::wait_until(const Patience &patience, uint64_t ticket, Condition &&condition) {
    if (spinning_pays() && look_on(patience, ticket, condition)) {
        return true;
    }
    std::unique_lock<std::mutex> guard(lock_);
    // The waiter is counted before it checks the condition; the owner changes the state before it
    // reads the count.
    waiters_.fetch_add(1);
    const bool holds = wait_patiently(changed_, guard, patience, condition);
    waiters_.fetch_sub(1);
    return holds;
}

bool Stream::synchronize(const Patience &patience) {
    const bool done = idle() || wait_for_queued(patience);
    note_wait();
    return done;
}

bool Stream::wait_for_queued(const Patience &patience) {
    uint64_t ticket;
    {
        const std::lock_guard<std::mutex> guard(lock_);
        ticket = submitted_;
    }
    if (executed_.load() < ticket) {
        return wait_for_ticket(ticket, patience);
    }
    // Another thread runs a launch inline. A later task runs only after this launch.
    return wait_until(patience, ticket + 1,
                      [&] { return pending_.load() == 0 || executed_.load() > ticket; });
}

bool Stream::wait_for_ticket(uint64_t ticket, const Patience &patience) {
    return wait_until(patience, ticket, [&] { return executed_.load() >= ticket; });
}

void Stream::notify_waiters() {
    const std::lock_guard<std::mutex> guard(lock_);
    changed_.notify_all();
}

// -- lifetime -------------------------------------------------------------------------------------

void Stream::drop() {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        device_.remove(*this);
        delete this;
    }
}

bool Stream::hold_if_alive() {
    uint32_t references = references_.load(std::memory_order_relaxed);
    while (references != 0) {
        if (references_.compare_exchange_weak(references, references + 1)) {
            return true;
        }
    }
    return false;
}

} // namespace uhal_host
