#include "pool.h"

#include <algorithm>

#include "linger.h"
#include "platform.h"

namespace uhal_host {

namespace {

// Long enough to bridge the gap between two launches, short enough to be no burden.
constexpr int64_t spin_nanoseconds = 20'000;
// Longer than most gaps between two launches of a graph that use workers.
constexpr int64_t graph_nanoseconds = 1'000'000;
// Between two attempts to start a worker that the system refused.
constexpr int64_t retry_nanoseconds = 100'000'000;

} // namespace

unsigned Pool::run(const Launch &launch, const Stream &stream, bool is_open, bool is_coming) {
    if (workers_.load(std::memory_order_relaxed) + 1 < threads_) {
        start_workers();
    }
    const uint64_t blocks = launch.blocks - launch.first;
    const bool shares = threads_ > 1 && blocks > 1 && !launch.function->checked;
    Slot *slot = shares ? take_slot() : nullptr;
    if (slot == nullptr) {
        run_blocks(launch, stream, launch.first, blocks);
        return 1;
    }
    const auto useful = static_cast<unsigned>(std::min<uint64_t>(blocks - 1, threads_ - 1));
    const void *const owner = is_open ? &stream : nullptr;
    Job job(launch, stream, owner, useful);
    slot->owner.store(owner, std::memory_order_relaxed);
    slot->processor.store(this_processor(), std::memory_order_relaxed);
    slot->job.store(&job);
    seats_.fetch_add(useful, std::memory_order_relaxed);
    call(useful - is_coming);
    bool more = work(job);
    if (is_coming && more && job.helpers.load(std::memory_order_relaxed) < useful) {
        call(1);
    }
    while (more) {
        more = work(job);
    }
    free_slot(*slot);
    const unsigned helpers = job.helpers.load(std::memory_order_relaxed);
    seats_.fetch_sub(int64_t{useful} - helpers, std::memory_order_relaxed);
    if (job.failure) {
        std::rethrow_exception(job.failure);
    }
    return 1 + helpers;
}

void Pool::call(uint64_t workers) {
    if (workers == 0) {
        return;
    }
    generation_.fetch_add(1);
    if (sleepers_.load() != 0) {
        wake(generation_, static_cast<int>(workers));
    }
}

// A thread takes a quarter of its share of the remaining blocks: large runs at first, single blocks
// at the end, so that all threads finish together. Returns whether blocks may remain.
bool Pool::work(Job &job) {
    const uint64_t end = job.launch.blocks;
    const uint64_t seen = std::min(job.next.load(std::memory_order_relaxed), end);
    const uint64_t chunk = std::max<uint64_t>(1, (end - seen) / (uint64_t{4} * (job.seats + 1)));
    const uint64_t first = job.next.fetch_add(chunk, std::memory_order_relaxed);
    if (first >= end) {
        return false;
    }
    try {
        run_blocks(job.launch, job.stream, first, std::min(chunk, end - first));
    } catch (...) {
        if (!job.failed.test_and_set()) {
            job.failure = std::current_exception();
        }
        job.next.store(end, std::memory_order_relaxed);
        return false;
    }
    return true;
}

// Returns a slot's job if the caller may run blocks of the job, else null. The caller calls
// leave() in both cases. A helper first increments `joined` and then reads the job; free_slot()
// first clears the job and then reads `joined`. These four accesses have one total order. So
// either the helper sees no job, or free_slot() sees the helper.
Pool::Job *Pool::join(Slot &slot, const void *owner) {
    slot.joined.fetch_add(1);
    Job *const job = slot.job.load();
    if (job == nullptr || (owner != nullptr && job->owner != owner) ||
        job->next.load(std::memory_order_relaxed) >= job->launch.blocks) {
        return nullptr;
    }
    unsigned helpers = job->helpers.load(std::memory_order_relaxed);
    do {
        if (helpers == job->seats) {
            return nullptr;
        }
    } while (!job->helpers.compare_exchange_weak(helpers, helpers + 1, std::memory_order_relaxed));
    seats_.fetch_sub(1, std::memory_order_relaxed);
    return job;
}

void Pool::leave(Slot &slot) {
    slot.joined.fetch_sub(1);
    if (slot.awaited.load()) {
        wake(slot.joined, 1);
    }
}

bool Pool::help() {
    bool helped = false;
    for (Slot &slot : slots_) {
        if (slot.job.load(std::memory_order_relaxed) == nullptr) {
            continue;
        }
        leave_processor(
            slot.processor.load(std::memory_order_relaxed)); // before others wait for it
        if (Job *const job = join(slot, nullptr)) {
            while (work(*job)) {
            }
            helped = true;
        }
        leave(slot);
    }
    return helped;
}

void Pool::free_slot(Slot &slot) {
    slot.owner.store(nullptr, std::memory_order_relaxed);
    slot.job.store(nullptr);
    for (Linger linger; slot.joined.load() != 0 && linger.turn();) {
    }
    if (slot.joined.load() != 0) {
        slot.awaited.store(true);
        for (;;) {
            const uint32_t joined = slot.joined.load();
            if (joined == 0) {
                break;
            }
            wait_on(slot.joined, joined);
        }
        slot.awaited.store(false);
    }
    slot.taken.store(false, std::memory_order_release);
}

Pool::Slot *Pool::take_slot() {
    for (Slot &slot : slots_) {
        if (!slot.taken.load(std::memory_order_relaxed) &&
            !slot.taken.exchange(true, std::memory_order_acquire)) {
            return &slot;
        }
    }
    return nullptr;
}

void Pool::start_workers() {
    const std::unique_lock<std::mutex> alone(starting_, std::try_to_lock);
    if (!alone.owns_lock() || monotonic_nanoseconds() < next_start_) {
        return;
    }
    while (workers_.load(std::memory_order_relaxed) + 1 < threads_) {
        // Fewer threads only make the work slower.
        if (!start_thread(work_forever, this, "uhal-worker")) {
            next_start_ = monotonic_nanoseconds() + retry_nanoseconds;
            return;
        }
        workers_.fetch_add(1, std::memory_order_relaxed);
    }
}

int64_t Pool::patience() const { return keeps_awake() ? graph_nanoseconds : spin_nanoseconds; }

void Pool::work_forever(void *pointer) {
    Pool &pool = *static_cast<Pool *>(pointer);
    for (;;) {
        const uint32_t seen = pool.generation_.load();
        if (pool.help()) {
            continue;
        }
        const int64_t begin = monotonic_nanoseconds();
        while (spinning_pays() && pool.generation_.load() == seen &&
               monotonic_nanoseconds() - begin < pool.patience()) {
            relax();
        }
        if (pool.generation_.load() == seen) {
            pool.sleepers_.fetch_add(1);
            wait_on(pool.generation_, seen);
            pool.sleepers_.fetch_sub(1);
        }
    }
}

} // namespace uhal_host
