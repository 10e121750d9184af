#include "check.h"

#include <algorithm>
#include <csetjmp>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#include <uhal/dtype_bytes.h>

#include "launch_facts.h"
#include "module.h"
#include "platform.h"
#include "runtime.h"
#include "shadow.h"
#include "source_line.h"

namespace uhal_host {

namespace {

constexpr uint16_t every_thread = 0xFFFF;
constexpr size_t gap_bytes = 256; // between shared variables
constexpr size_t arena_bytes = UHAL_HOST_MAX_SHARED_BYTES + 64 * gap_bytes;
constexpr uintptr_t near_bytes = uintptr_t{1} << 24; // farther away an address is called wild
constexpr unsigned looks_between_times = 1U << 16;

struct Variable {
    const char *name;
    Span memory;
};

std::string format(const char *text, ...) __attribute__((format(printf, 1, 2)));
std::string format(const char *text, ...) {
    char made[512];
    va_list values;
    va_start(values, text);
    vsnprintf(made, sizeof made, text, values);
    va_end(values);
    return made;
}

class Checker {
  public:
    explicit Checker(const Launch &launch)
        : launch_(launch), state_(*launch.function->module->check()),
          stack_(stack_of_this_thread()), image_(image_of(launch.function->kernel)),
          arena_(new unsigned char[arena_bytes + 64]), written_(arena_bytes / 8) {
        const uintptr_t raw = reinterpret_cast<uintptr_t>(arena_.get());
        arena_start_ = (raw + 63) & ~uintptr_t{63};
        launch.function->module->device().runtime.memory.list(memory_);
        launch.function->module->device().runtime.memory.list_freed(freed_);
        std::sort(memory_.begin(), memory_.end());
        std::sort(freed_.begin(), freed_.end());
        read_arguments();
        unsigned seconds = 60;
        environment_number("UHAL_HOST_CHECK_SECONDS", 1, 1U << 30, seconds);
        seconds_ = seconds;
        deadline_ = monotonic_nanoseconds() + int64_t{seconds} * 1'000'000'000;
    }

    ~Checker() { state_.thread = UHAL_HOST_CHECK_EVERY_THREAD; }

    // Whether every block ran to its end.
    bool run() {
        uhal_block block = launch_.block;
        block.blockIdx = {0, 0, 0};
        const bool goes_on = _setjmp(escape_) == 0;
        if (!goes_on) {
            return false;
        }
        for (block_ = 0; block_ != launch_.blocks; ++block_) {
            const uint64_t row = block_ / block.gridDim.x;
            block_index_ = {static_cast<uint32_t>(block_ % block.gridDim.x),
                            static_cast<uint32_t>(row % block.gridDim.y),
                            static_cast<uint32_t>(row / block.gridDim.y)};
            block.blockIdx = block_index_;
            begin_block();
            block.dynamic_shared = block.dynamic_shared_bytes != 0
                                       ? shared("dynamic shared memory", block.dynamic_shared_bytes)
                                       : nullptr;
            launch_.function->kernel->run(&block, 1, launch_.parameters);
        }
        return true;
    }

    const std::string &words() const { return words_; }

    void access(uintptr_t address, size_t bytes, uint32_t flags, const void *instruction) {
        if (++looks_ % looks_between_times == 0 && monotonic_nanoseconds() > deadline_) {
            say_endless(instruction);
            _longjmp(escape_, 1);
        }
        if (stack_.holds(address)) {
            return;
        }
        const bool right = address - arena_start_ < arena_bytes
                               ? judge_shared(address, bytes, flags, instruction)
                               : judge_memory(address, bytes, flags, instruction);
        if (!right) {
            _longjmp(escape_, 1);
        }
    }

    void barrier() { phase_ = ++clock_; }

    void fence() { fences_[static_cast<uint32_t>(block_)] = ++clock_; }

    void *shared(const char *name, size_t bytes) {
        for (const Variable &known : variables_) {
            if (known.name == name) {
                return reinterpret_cast<void *>(known.memory.start);
            }
        }
        uintptr_t start =
            variables_.empty() ? arena_start_ : variables_.back().memory.end + gap_bytes;
        start = (start + 63) & ~uintptr_t{63};
        if (start + bytes > arena_start_ + arena_bytes) {
            words_ = format("%s: the block has more than 48 KiB of shared memory", name);
            _longjmp(escape_, 1);
        }
        variables_.push_back({name, {start, start + bytes}});
        return reinterpret_cast<void *>(start);
    }

  private:
    void begin_block() {
        variables_.clear();
        std::fill(written_.begin(), written_.end(), uint8_t{0});
        acquired_ = 0;
        phase_ = ++clock_;
        state_.thread = UHAL_HOST_CHECK_EVERY_THREAD;
    }

    uint16_t thread() const {
        // In a block of one, what all do is what that one does.
        const bool all = state_.thread == UHAL_HOST_CHECK_EVERY_THREAD;
        return all ? (launch_.threads() == 1 ? 0 : every_thread)
                   : static_cast<uint16_t>(state_.thread);
    }

    void read_arguments() {
        const uhal_host_kernel &kernel = *launch_.function->kernel;
        const auto names = parameter_names(kernel.parameter_text, kernel.parameter_count);
        for (uint32_t index = 0; index < kernel.parameter_count; ++index) {
            const uhal_host_parameter &parameter = kernel.parameters[index];
            if ((parameter.flags & UHAL_HOST_PARAMETER_POINTER) == 0) {
                continue;
            }
            uintptr_t value;
            memcpy(&value, launch_.parameters[index], sizeof value);
            const Span *const memory = memory_with(value);
            const Span freed = memory == nullptr ? span_with(freed_, value) : Span{};
            arguments_.push_back({index, names[index], value, uhal_dtype_bytes(parameter.dtype),
                                  memory != nullptr ? *memory : freed});
            unknown_memory_ =
                unknown_memory_ || (memory == nullptr && freed.end == 0 && value != 0);
        }
    }

    using Ranges = std::vector<std::pair<uintptr_t, size_t>>; // address and bytes, by address

    // The range that holds an address; empty if none does.
    static Span span_with(const Ranges &ranges, uintptr_t address) {
        const auto after = std::upper_bound(
            ranges.begin(), ranges.end(), address,
            [](uintptr_t wanted, const auto &range) { return wanted < range.first; });
        if (after == ranges.begin()) {
            return {};
        }
        const auto &range = *std::prev(after);
        const Span found = {range.first, range.first + range.second};
        return found.holds(address) ? found : Span{};
    }

    const Span *memory_with(uintptr_t address) {
        const Span found = span_with(memory_, address);
        if (found.end == 0) {
            return nullptr;
        }
        last_memory_ = found;
        return &last_memory_;
    }

    // -- judging ---------------------------------------------------------------------------------

    bool judge_memory(uintptr_t address, size_t bytes, uint32_t flags, const void *instruction) {
        // Compilers call it aligned from 8 bytes on: pairs of f64 are.
        const size_t unit = std::min<size_t>(bytes, 8);
        if ((flags & UHAL_HOST_CHECK_ALIGNED) != 0 && address % unit != 0) {
            words_ = format("%s at %s, whose address %#zx is no multiple of %zu: %s",
                            verb(flags, bytes).c_str(), element_of_memory(address).c_str(),
                            size_t{address}, unit, here(instruction).c_str());
            return false;
        }
        if (!last_memory_.holds(address) && memory_with(address) == nullptr) {
            if (image_.whole.holds(address)) {
                if ((flags & UHAL_HOST_CHECK_WRITE) != 0 && is_constant(address)) {
                    words_ = verb(flags, bytes) + " to a constant: " + here(instruction);
                    return false;
                }
            } else if (span_with(freed_, address).end != 0) {
                words_ = verb(flags, bytes) + " at " + element_of_memory(address) +
                         ", whose memory was freed: " + here(instruction);
                return false;
            } else if (!unknown_memory_ || address < 4096) {
                say_outside(address, bytes, flags, instruction);
                return false;
            }
        } else if (bytes > last_memory_.end - address) {
            say_outside(address, bytes, flags, instruction);
            return false;
        }
        return judge_order(address, bytes, flags, instruction, false);
    }

    bool is_constant(uintptr_t address) const {
        return std::any_of(image_.constant.begin(), image_.constant.end(),
                           [&](const Span &part) { return part.holds(address); });
    }

    bool judge_shared(uintptr_t address, size_t bytes, uint32_t flags, const void *instruction) {
        const auto found = std::find_if(variables_.begin(), variables_.end(), [&](const auto &one) {
            return one.memory.holds(address) && bytes <= one.memory.end - address;
        });
        if (found == variables_.end()) {
            say_outside_shared(address, bytes, flags, instruction);
            return false;
        }
        const size_t offset = address - arena_start_;
        const bool writes = (flags & UHAL_HOST_CHECK_WRITE) != 0;
        for (size_t byte = offset; byte < offset + bytes; ++byte) {
            const uint8_t bit = static_cast<uint8_t>(1U << byte % 8);
            if ((written_[byte / 8] & bit) == 0 &&
                (!writes || (flags & UHAL_HOST_CHECK_ATOMIC) != 0)) {
                words_ = format("%s of %s, %s: no work-item of the block has written it before",
                                verb(flags, bytes).c_str(), shared_element(address, bytes).c_str(),
                                here(instruction).c_str());
                return false;
            }
            written_[byte / 8] = static_cast<uint8_t>(written_[byte / 8] | (writes ? bit : 0));
        }
        return judge_order(address, bytes, flags, instruction, true);
    }

    bool judge_order(uintptr_t address, size_t bytes, uint32_t flags, const void *instruction,
                     bool in_shared) {
        if ((flags & UHAL_HOST_CHECK_ATOMIC) != 0) {
            acquired_ = clock_;
        }
        const uint32_t place =
            static_cast<uint32_t>(reinterpret_cast<uintptr_t>(instruction) - image_.whole.start);
        for (uintptr_t word = address & ~(Shadow::word_bytes - 1); word < address + bytes;
             word += Shadow::word_bytes) {
            uint8_t mask = 0;
            for (size_t byte = 0; byte < Shadow::word_bytes; ++byte) {
                if (word + byte >= address && word + byte < address + bytes) {
                    mask = static_cast<uint8_t>(mask | 1U << byte);
                }
            }
            const Access now = {static_cast<uint32_t>(block_), clock_, place, thread(), mask,
                                static_cast<uint8_t>(flags)};
            Cell &cell = shadow_.cell(word);
            for (const Access *before : {&cell.write, &cell.read, &cell.other_read}) {
                if (conflict(*before, now, in_shared)) {
                    say_race(*before, now, address, bytes, in_shared);
                    return false;
                }
            }
            note(cell, now, in_shared);
        }
        return true;
    }

    // Whether something made `before` be over when the work-item that runs now goes on.
    bool ordered(const Access &before, const Access &now, bool in_shared) const {
        if (before.block != now.block) {
            if (in_shared) {
                return true; // another block's memory was there
            }
            const auto fence = fences_.find(before.block);
            return fence != fences_.end() && before.clock < fence->second &&
                   acquired_ >= fence->second;
        }
        return before.thread == now.thread || before.clock < phase_;
    }

    bool conflict(const Access &before, const Access &now, bool in_shared) const {
        const uint32_t either = before.flags | now.flags;
        const uint32_t both = before.flags & now.flags;
        return before.clock != 0 && (before.bytes & now.bytes) != 0 &&
               (either & UHAL_HOST_CHECK_WRITE) != 0 && (both & UHAL_HOST_CHECK_ATOMIC) == 0 &&
               !ordered(before, now, in_shared);
    }

    void note(Cell &cell, const Access &now, bool in_shared) {
        if ((now.flags & UHAL_HOST_CHECK_WRITE) != 0) {
            cell.write = now;
            return;
        }
        for (Access *kept : {&cell.read, &cell.other_read}) {
            if (kept->clock == 0 || ordered(*kept, now, in_shared)) {
                *kept = now;
                return;
            }
        }
    }

    // -- words -----------------------------------------------------------------------------------

    static std::string verb(uint32_t flags, size_t bytes) {
        const char *const kind = (flags & UHAL_HOST_CHECK_ATOMIC) != 0  ? "atomic operation"
                                 : (flags & UHAL_HOST_CHECK_WRITE) != 0 ? "write"
                                                                        : "read";
        return format("%s of %zu bytes", kind, bytes);
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
        // The call returns behind the access.
        const void *const before = static_cast<const char *>(instruction) - 1;
        return who(static_cast<uint32_t>(block_), thread()) + ", at " + source_line(before);
    }

    std::string line_of(const Access &access) const {
        return source_line(reinterpret_cast<const void *>(image_.whole.start + access.place - 1));
    }

    std::string shared_element(uintptr_t address, size_t bytes) const {
        for (const Variable &one : variables_) {
            if (one.memory.holds(address)) {
                const size_t offset = address - one.memory.start;
                return offset % bytes == 0
                           ? format("%s[%zu]", one.name, offset / bytes)
                           : format("%s, %zu bytes behind its start", one.name, offset);
            }
        }
        return "shared memory";
    }

    static std::string element(const Argument &argument, uintptr_t address) {
        const intptr_t offset = static_cast<intptr_t>(address - argument.value);
        return format("%s[%td]", argument.name.c_str(),
                      offset / static_cast<intptr_t>(argument.element));
    }

    // The argument whose memory is nearest.
    const Argument *nearest(uintptr_t address, uintptr_t &distance) const {
        const Argument *found = nullptr;
        distance = ~uintptr_t{0};
        for (const Argument &one : arguments_) {
            const Span span = one.memory.end != 0 ? one.memory : Span{one.value, one.value};
            const uintptr_t away = address < span.start ? span.start - address
                                   : address < span.end ? 0
                                                        : address - span.end;
            // Of several that lie in one piece of memory, the one that begins last before it.
            const bool closer = away == distance && found != nullptr && one.value <= address &&
                                one.value > found->value;
            if (one.value != 0 && (away < distance || closer)) {
                distance = away;
                found = &one;
            }
        }
        return found;
    }

    std::string element_of_memory(uintptr_t address) const {
        uintptr_t distance;
        const Argument *const argument = nearest(address, distance);
        return argument != nullptr && distance == 0 ? element(*argument, address)
                                                    : format("address %#zx", size_t{address});
    }

    void say_outside(uintptr_t address, size_t bytes, uint32_t flags, const void *instruction) {
        uintptr_t distance;
        const Argument *const argument = nearest(address, distance);
        std::string what = verb(flags, bytes);
        if (address < 4096) {
            what += format(" at a null pointer (%#zx)", size_t{address});
            for (const Argument &one : arguments_) {
                what += one.value == 0
                            ? format(", as argument %u '%s' is", one.index, one.name.c_str())
                            : "";
            }
        } else if (argument == nullptr || distance > near_bytes) {
            what += format(" at %#zx, which is no memory of the device", size_t{address});
        } else {
            const size_t size = argument->memory.end - argument->value;
            what +=
                format(" at %s, outside of argument %u '%s', whose memory has %zu elements of %zu "
                       "bytes from there",
                       element(*argument, address).c_str(), argument->index, argument->name.c_str(),
                       size / argument->element, argument->element);
        }
        words_ = what + ": " + here(instruction);
    }

    void say_outside_shared(uintptr_t address, size_t bytes, uint32_t flags,
                            const void *instruction) {
        const Variable *nearest = nullptr;
        uintptr_t closest = ~uintptr_t{0};
        for (const Variable &one : variables_) {
            const uintptr_t away = address < one.memory.start ? one.memory.start - address
                                                              : address + bytes - one.memory.end;
            if (away < closest) {
                closest = away;
                nearest = &one;
            }
        }
        std::string what = verb(flags, bytes);
        if (nearest != nullptr) {
            const intptr_t offset = static_cast<intptr_t>(address - nearest->memory.start);
            const size_t size = nearest->memory.end - nearest->memory.start;
            what += format(" at %s[%td], outside of its %zu bytes of shared memory", nearest->name,
                           offset / static_cast<intptr_t>(bytes), size);
        }
        words_ = what + ": " + here(instruction);
    }

    void say_race(const Access &before, const Access &now, uintptr_t address, size_t bytes,
                  bool in_shared) {
        const std::string where =
            in_shared ? shared_element(address, bytes) : element_of_memory(address);
        const bool one_block = before.block == now.block;
        words_ = format("race on %s: %s by %s, at %s, and %s by %s, at %s. %s", where.c_str(),
                        verb(before.flags, bytes).c_str(), who(before.block, before.thread).c_str(),
                        line_of(before).c_str(), verb(now.flags, bytes).c_str(),
                        who(now.block, now.thread).c_str(), line_of(now).c_str(),
                        one_block ? "No BARRIER() is between them"
                                  : "Nothing orders blocks of a launch but atomics and fences");
    }

    void say_endless(const void *instruction) {
        words_ = format("it has run for %u s (UHAL_HOST_CHECK_SECONDS): is this loop endless? %s",
                        seconds_, here(instruction).c_str());
    }

    const Launch &launch_;
    struct uhal_host_check &state_;
    const Span stack_;
    const Image image_;
    const std::unique_ptr<unsigned char[]> arena_; // of a block's shared memory
    uintptr_t arena_start_;
    std::vector<uint8_t> written_; // a bit for each byte of the arena
    std::vector<Variable> variables_;
    Ranges memory_; // of the device
    Ranges freed_;  // of it, earlier
    Span last_memory_;
    std::vector<Argument> arguments_;
    bool unknown_memory_ = false; // an argument points to what was not allocated here
    Shadow shadow_;
    std::unordered_map<uint32_t, uint32_t> fences_; // the clock of each block's last one
    uint64_t block_ = 0;
    uhal_dim3 block_index_ = {0, 0, 0};
    uint32_t clock_ = 0;
    uint32_t phase_ = 0;    // the clock when this block passed its last barrier
    uint32_t acquired_ = 0; // the clock of this block's last atomic operation
    unsigned looks_ = 0;
    unsigned seconds_ = 0;
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
    // Too large for the stack of every thread that may launch.
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
