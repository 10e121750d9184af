#include "check.h"

#include <algorithm>
#include <csetjmp>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>

#include "access_order.h"
#include "format.h"
#include "launch_facts.h"
#include "launch_memory.h"
#include "module.h"
#include "platform.h"
#include "shared_arena.h"
#include "source_line.h"

namespace uhal_host {

namespace {

constexpr uint16_t every_thread = 0xFFFF;
constexpr unsigned looks_between_times = 1U << 16;

// Runs the blocks of a launch, one after another, and judges each access before it is made.
class Checker {
  public:
    explicit Checker(const Launch &launch)
        : launch_(launch), state_(*launch.function->module->check()),
          stack_(stack_of_this_thread()), image_(image_of(launch.function->kernel)),
          memory_(launch) {
        environment_number("UHAL_HOST_CHECK_SECONDS", 1, 1U << 30, seconds_);
        deadline_ = monotonic_nanoseconds() + int64_t{seconds_} * 1'000'000'000;
    }

    ~Checker() { state_.thread = UHAL_HOST_CHECK_EVERY_THREAD; }

    // Returns whether every block ran to its end.
    bool run() {
        uhal_block block = launch_.block;
        block.blockIdx = {0, 0, 0};
        const bool goes_on = _setjmp(escape_) == 0;
        if (!goes_on) {
            return false;
        }
        for (block_ = 0; block_ != launch_.blocks; ++block_) {
            const uint64_t row = block_ / block.gridDim.x;
            block.blockIdx = {static_cast<uint32_t>(block_ % block.gridDim.x),
                              static_cast<uint32_t>(row % block.gridDim.y),
                              static_cast<uint32_t>(row / block.gridDim.y)};
            arena_.begin_block();
            order_.begin_block(this_block());
            state_.thread = UHAL_HOST_CHECK_EVERY_THREAD;
            block.dynamic_shared = block.dynamic_shared_bytes != 0
                                       ? shared("dynamic shared memory", block.dynamic_shared_bytes)
                                       : nullptr;
            launch_.function->kernel->run(&block, 1, launch_.parameters);
        }
        return true;
    }

    // The error, if a block did not run to its end.
    const std::string &words() const { return words_; }

    // -- calls by the kernel -----------------------------------------------------------------------

    void access(uintptr_t address, size_t bytes, uint32_t flags, const void *instruction) {
        if (++looks_ % looks_between_times == 0 && monotonic_nanoseconds() > deadline_) {
            words_ = format("it has run for %u s (UHAL_HOST_CHECK_SECONDS): is this loop endless? ",
                            seconds_) +
                     here(instruction);
            _longjmp(escape_, 1);
        }
        if (stack_.holds(address)) {
            return;
        }
        const bool right = arena_.holds(address) ? judge_shared(address, bytes, flags, instruction)
                                                 : judge_memory(address, bytes, flags, instruction);
        if (!right) {
            _longjmp(escape_, 1);
        }
    }

    void barrier() { order_.barrier(); }

    void fence() { order_.fence(); }

    void *shared(const char *name, size_t bytes) {
        void *const found = arena_.place(name, bytes);
        if (found == nullptr) {
            words_ = format("%s: the block has more than 48 KiB of shared memory", name);
            _longjmp(escape_, 1);
        }
        return found;
    }

  private:
    // -- judging ---------------------------------------------------------------------------------

    bool judge_memory(uintptr_t address, size_t bytes, uint32_t flags, const void *instruction) {
        // 8 bytes are the strictest alignment: compilers also mark pairs of f64 as aligned.
        const size_t unit = std::min<size_t>(bytes, 8);
        if ((flags & UHAL_HOST_CHECK_ALIGNED) != 0 && address % unit != 0) {
            return wrong(
                flags, bytes,
                " at " + memory_.element(address) +
                    format(", whose address %#zx is no multiple of %zu", size_t{address}, unit),
                instruction);
        }
        const Span *const allocation = memory_.allocation(address);
        if (allocation != nullptr) {
            if (bytes > allocation->end - address) {
                return wrong(flags, bytes, memory_.outside(address), instruction);
            }
        } else if (image_.whole.holds(address)) {
            if ((flags & UHAL_HOST_CHECK_WRITE) != 0 && is_constant(address)) {
                return wrong(flags, bytes, " to a constant", instruction);
            }
        } else if (memory_.was_freed(address)) {
            return wrong(flags, bytes,
                         " at " + memory_.element(address) + ", whose memory was freed",
                         instruction);
        } else if (!memory_.has_strangers() || address < LaunchMemory::null_bytes) {
            return wrong(flags, bytes, memory_.outside(address), instruction);
        }
        return judge_order(address, bytes, flags, instruction, false);
    }

    bool is_constant(uintptr_t address) const {
        return std::any_of(image_.constant.begin(), image_.constant.end(),
                           [&](const Span &part) { return part.holds(address); });
    }

    bool judge_shared(uintptr_t address, size_t bytes, uint32_t flags, const void *instruction) {
        if (!arena_.has(address, bytes)) {
            return wrong(flags, bytes, arena_.outside(address, bytes), instruction);
        }
        const bool writes = (flags & UHAL_HOST_CHECK_WRITE) != 0;
        const bool reads = !writes || (flags & UHAL_HOST_CHECK_ATOMIC) != 0;
        if (!arena_.note(address, bytes, reads, writes)) {
            words_ = verb(flags, bytes) + " of " + arena_.element(address, bytes) + ", " +
                     here(instruction) + ": no work-item of the block has written it before";
            return false;
        }
        return judge_order(address, bytes, flags, instruction, true);
    }

    bool judge_order(uintptr_t address, size_t bytes, uint32_t flags, const void *instruction,
                     bool in_shared) {
        const uint32_t place =
            static_cast<uint32_t>(reinterpret_cast<uintptr_t>(instruction) - image_.whole.start);
        const Access *const before =
            order_.conflict(address, bytes, flags, thread(), place, in_shared);
        if (before == nullptr) {
            return true;
        }
        const std::string where =
            in_shared ? arena_.element(address, bytes) : memory_.element(address);
        words_ = "race on " + where + ": " + verb(before->flags, bytes) + " by " +
                 who(before->block, before->thread) + ", at " + line_of(*before) + ", and " +
                 verb(flags, bytes) + " by " + here(instruction) + ". " +
                 (before->block == this_block()
                      ? "No BARRIER() is between them"
                      : "Nothing orders blocks of a launch but atomics and fences");
        return false;
    }

    // -- words -----------------------------------------------------------------------------------

    bool wrong(uint32_t flags, size_t bytes, const std::string &what, const void *instruction) {
        words_ = verb(flags, bytes) + what + ": " + here(instruction);
        return false;
    }

    static std::string verb(uint32_t flags, size_t bytes) {
        const char *const kind = (flags & UHAL_HOST_CHECK_ATOMIC) != 0  ? "atomic operation"
                                 : (flags & UHAL_HOST_CHECK_WRITE) != 0 ? "write"
                                                                        : "read";
        return format("%s of %zu bytes", kind, bytes);
    }

    uint32_t this_block() const { return static_cast<uint32_t>(block_); }

    uint16_t thread() const {
        // In a block of one work-item, code outside of regions is named after this work-item.
        const bool all = state_.thread == UHAL_HOST_CHECK_EVERY_THREAD;
        return all ? (launch_.threads() == 1 ? 0 : every_thread)
                   : static_cast<uint16_t>(state_.thread);
    }

    std::string who(uint32_t block, uint16_t thread) const {
        const uhal_dim3 &grid = launch_.block.gridDim;
        const uhal_dim3 &shape = launch_.block.blockDim;
        std::string told = format("block (%u, %u, %u)", block % grid.x, block / grid.x % grid.y,
                                  block / grid.x / grid.y);
        if (thread == every_thread) {
            return told + ", every thread";
        }
        return told + format(", thread (%u, %u, %u)", thread % shape.x, thread / shape.x % shape.y,
                             thread / shape.x / shape.y);
    }

    std::string here(const void *instruction) const {
        // The return address lies behind the access.
        const void *const before = static_cast<const char *>(instruction) - 1;
        return who(this_block(), thread()) + ", at " + source_line(before);
    }

    std::string line_of(const Access &access) const {
        return source_line(reinterpret_cast<const void *>(image_.whole.start + access.place - 1));
    }

    const Launch &launch_;
    struct uhal_host_check &state_;
    const Span stack_;
    const Image image_;
    LaunchMemory memory_;
    SharedArena arena_;
    AccessOrder order_;
    uint64_t block_ = 0;
    unsigned looks_ = 0;
    unsigned seconds_ = 60;
    int64_t deadline_ = 0;
    jmp_buf escape_;
    std::string words_;
};

thread_local Checker *checker = nullptr;

} // namespace

const uhal_host_check_services check_services = {
    [](const void *address, size_t bytes, uint32_t flags, const void *instruction) {
        if (checker != nullptr) {
            checker->access(reinterpret_cast<uintptr_t>(address), bytes, flags, instruction);
        }
    },
    [] {
        if (checker != nullptr) {
            checker->barrier();
        }
    },
    [] {
        if (checker != nullptr) {
            checker->fence();
        }
    },
    [](const char *name, size_t bytes) { return checker->shared(name, bytes); },
};

void run_checked(const Launch &launch) {
    static std::mutex one_at_a_time;
    const std::lock_guard<std::mutex> guard(one_at_a_time);
    // On the heap, because some threads that launch have too small a stack.
    const auto judge = std::make_unique<Checker>(launch);
    struct Current {
        explicit Current(Checker &one) { checker = &one; }
        ~Current() { checker = nullptr; }
    } const current(*judge);
    if (!judge->run()) {
        throw std::runtime_error(judge->words());
    }
}

} // namespace uhal_host
