// The owner's side of a stream: how a runner runs the stream's tasks.
#include "stream.h"

#include <exception>
#include <string>

#include "graph.h"
#include "missing_page.h"
#include "platform.h"
#include "runtime.h"

namespace uhal_host {

namespace {

// A launch that should take no longer than this time does not wake workers.
constexpr double worth_of_wake_nanoseconds = 30'000;
// A waiting thread begins no block that it could not finish soon.
constexpr double longest_wait_nanoseconds = 20'000'000;
// Tasks that a runner does for one stream while streams of equal priority wait for a runner.
constexpr unsigned fair_share = 32;

uint64_t bit_of(const Function &function) {
    return uint64_t{1} << (reinterpret_cast<uintptr_t>(&function) / sizeof(Function) % 64);
}

} // namespace

void Stream::resume() { device_.runtime.scheduler.make_ready(*this); }

void Stream::run() {
    run_while(By::runner, [](const Task &) { return true; });
}

bool Stream::run_instead(uint64_t ticket) {
    if (!device_.runtime.scheduler.take_back(*this)) {
        return false;
    }
    bool ran = false;
    run_while(By::waiter, [&](const Task &task) {
        if (task.kind != TaskKind::launch || executed_.load() >= ticket) {
            return false;
        }
        const Launch &launch = task.launch;
        const uint64_t items = (launch.blocks - launch.first) * launch.threads();
        const bool is_short =
            launch.function->predict_nanoseconds(items) < longest_wait_nanoseconds;
        ran |= is_short;
        return is_short;
    });
    return ran;
}

template <class MayRun> void Stream::run_while(By by, MayRun &&may_run) {
    Scheduler &scheduler = device_.runtime.scheduler;
    Task *task;
    {
        const std::lock_guard<std::mutex> guard(lock_);
        task = first_;
    }
    for (unsigned turn = 0;; ++turn) {
        if (!may_run(*task)) {
            scheduler.make_ready(*this);
            return;
        }
        const Outcome outcome = execute(*task, by);
        if (outcome == Outcome::parked) {
            return; // the mark owns the stream and may have passed it on already
        }
        if (outcome == Outcome::later) {
            scheduler.make_ready(*this);
            return;
        }
        const bool has_ticket = task->has_ticket;
        task->clear();
        {
            const std::lock_guard<std::mutex> guard(lock_);
            first_ = task->next;
            if (first_ == nullptr) {
                last_ = nullptr;
            }
            --queued_;
            if (waiting_for_room_ != 0 && queued_ <= queue_room) {
                room_.notify_all();
            }
            task->next = spare_;
            spare_ = task;
            task = first_;
        }
        if (has_ticket) {
            executed_.fetch_add(1);
        }
        const bool idle_now = pending_.fetch_sub(1) == 1;
        if (waiters_.load() != 0) {
            notify_waiters();
        }
        if (idle_now) {
            drop();
            return;
        }
        if (scheduler.wants(priority_, turn >= fair_share)) {
            scheduler.make_ready(*this);
            return;
        }
        if (task == nullptr) {
            // A task was queued after the check above, so the stream is not idle.
            const std::lock_guard<std::mutex> guard(lock_);
            task = first_;
        }
    }
}

void Stream::recycle(Task *task) {
    task->clear();
    const std::lock_guard<std::mutex> guard(lock_);
    task->next = spare_;
    spare_ = task;
}

// Runs a task, or its next steps; the caller calls again until the task is done.
Stream::Outcome Stream::execute(Task &task, By by) {
    switch (task.kind) {
    case TaskKind::launch: {
        Module *const module = task.launch.function->module;
        execute_step(task, 0, by);
        count_launch();
        module->drop();
        break;
    }
    case TaskKind::copy:
    case TaskKind::fill:
    case TaskKind::callback:
    case TaskKind::call:
        execute_step(task, 0, by);
        break;
    case TaskKind::replay:
        return execute(task.replay);
    case TaskKind::record:
        task.mark->complete();
        break;
    case TaskKind::wait:
        return task.mark->park(*this) ? Outcome::parked : Outcome::done;
    case TaskKind::release:
        device_.runtime.memory.free(task.address);
        break;
    }
    return Outcome::done;
}

// Steps alternate with other streams' work, as single tasks would.
Stream::Outcome Stream::execute(Replay &replay) {
    const Steps &steps = replay.version->steps;
    const Pool::Awake awake(device_.runtime.pool);
    for (unsigned turn = 1; replay.next < steps.size(); ++turn) {
        const Step &step = *steps[replay.next++];
        execute_step(step.task(), replay.launches, By::graph);
        replay.launches += step.is_launch();
        if (device_.runtime.scheduler.wants(priority_, turn >= fair_share)) {
            return Outcome::later;
        }
    }
    Executable::finish(replay);
    count_launch();
    return Outcome::done;
}

// A launch, a copy, a fill, a call or a host function. On a lost device only host functions still
// run: they may own their user data.
void Stream::execute_step(const Task &step, uint64_t index, By by) {
    if (step.kind == TaskKind::callback) {
        const Scheduler::Blocking blocking(device_.runtime.scheduler);
        step.callback.function(step.callback.user_data);
        return;
    }
    if (device_.error.load(std::memory_order_relaxed) != 0) {
        return;
    }
    switch (step.kind) {
    case TaskKind::launch:
        execute(step.launch, index, by);
        break;
    case TaskKind::copy:
        move(step.copy);
        break;
    case TaskKind::call: {
        const Scheduler::Blocking blocking(device_.runtime.scheduler);
        uhal_host::run(step.call);
        break;
    }
    default:
        uhal_host::run(step.fill);
        break;
    }
}

void Stream::move(const Copy &copy) {
    const Copying told;
    uhal_host::run(copy);
    try {
        require_pages();
    } catch (const std::exception &missing) {
        device_.lose(std::string("copy: ") + missing.what(), nullptr, 0);
    }
}

void Stream::execute(const Launch &launch, uint64_t index, By by) {
    Function &function = *launch.function;
    const uint64_t items = (launch.blocks - launch.first) * launch.threads();
    // If the waiting thread runs a launch, an idle runner may help, and the other way round.
    const bool is_coming = by == By::waiter ? device_.runtime.scheduler.has_idle_runner()
                                            : by == By::runner && will_be_awaited(function);
    if (by != By::graph) {
        note_launch(function);
    }
    const double worth = is_coming ? worth_of_help_nanoseconds : worth_of_wake_nanoseconds;
    const double expected = function.predict_nanoseconds(items);
    const bool is_timed = function.is_timed_now(expected);
    const uint64_t start = is_timed ? ticks() : 0;
    unsigned threads = 1;
    try {
        if (expected < worth) {
            run_blocks(launch, *this, launch.first, launch.blocks - launch.first);
        } else {
            const bool is_short =
                function.predict_nanoseconds(launch.threads()) < longest_wait_nanoseconds;
            threads = device_.runtime.pool.run(launch, *this, is_short && by == By::runner,
                                               is_short && is_coming);
        }
    } catch (...) {
        device_.fail(std::current_exception(), launch, *this, index);
        return;
    }
    if (is_timed) {
        const double spent =
            static_cast<double>(ticks() - start) * device_.runtime.nanoseconds_per_tick;
        function.learn(items, spent * threads);
    }
}

// The kernels whose launches callers wait for; `waited`: whether a caller waited for the last
// launch.
uint64_t Stream::awaited(bool waited) const {
    return waited ? awaited_ | last_launched_ : awaited_ & ~last_launched_;
}

// Callers that waited for the last launch of a kernel are expected to wait for the next one too.
bool Stream::will_be_awaited(const Function &function) const {
    return (awaited(waited_for_.load(std::memory_order_relaxed)) & bit_of(function)) != 0;
}

void Stream::note_launch(const Function &function) {
    awaited_ = awaited(waited_for_.exchange(false, std::memory_order_relaxed));
    last_launched_ = bit_of(function);
}

} // namespace uhal_host
