#include "fences.h"

#include <iterator>
#include <sstream>
#include <vector>

#include "objects.h"

namespace hsa_sim {

namespace {

const char *scope_name(unsigned scope) {
    return scope == HSA_FENCE_SCOPE_SYSTEM ? "system" : "agent";
}

std::string unreleased_words(uint64_t address, unsigned needed) {
    std::ostringstream words;
    words << "what a kernel wrote at 0x" << std::hex << address << " was not released to the "
          << scope_name(needed) << " before it is read";
    return words.str();
}

std::string unacquired_words(uint64_t address, unsigned needed) {
    std::ostringstream words;
    words << "what lies at 0x" << std::hex << address << " was not acquired from the "
          << scope_name(needed) << " before it is read";
    return words.str();
}

} // namespace

void Fences::acquire(QueueFences &queue, unsigned scope, uint64_t announcement) {
    if (scope >= HSA_FENCE_SCOPE_AGENT) {
        queue.agent_acquired = ++clock_;
    }
    if (scope >= HSA_FENCE_SCOPE_SYSTEM) {
        queue.system_acquired = clock_;
        queue.covers_announcement = announcement;
    }
}

void Fences::release(const Agent &agent, const QueueFences &queue, unsigned scope) {
    if (scope == HSA_FENCE_SCOPE_NONE) {
        return;
    }
    std::vector<uint64_t> done;
    for (const uint64_t address : unreleased_) {
        Write &write = writes_.at(address);
        const bool own = write.queue == &queue;
        // A queue also releases the writes that it has acquired from another queue.
        const bool taken_over = write.agent == &agent && write.released >= HSA_FENCE_SCOPE_AGENT &&
                                queue.agent_acquired > write.to_agent_at;
        if ((own || taken_over) && write.released < scope) {
            // The writer's own agent saw the write at the first release; later releases only widen
            // the scope.
            const bool first = write.released < HSA_FENCE_SCOPE_AGENT;
            write.released = scope;
            write.at = ++clock_;
            write.to_agent_at = first ? write.at : write.to_agent_at;
        }
        if (write.released >= HSA_FENCE_SCOPE_SYSTEM) {
            done.push_back(address);
        }
    }
    for (const uint64_t address : done) {
        unreleased_.erase(address);
    }
}

void Fences::kernel_wrote(const Agent &agent, const QueueFences &queue, uint64_t address,
                          unsigned scope) {
    ++clock_;
    writes_[address] = {1, &agent, &queue, scope, clock_, clock_};
    if (scope < HSA_FENCE_SCOPE_SYSTEM) {
        unreleased_.insert(address);
    } else {
        unreleased_.erase(address);
    }
}

void Fences::copied_to(uint64_t address, uint64_t bytes) {
    forget(address, bytes);
    ++clock_;
    writes_[address] = {bytes, nullptr, nullptr, HSA_FENCE_SCOPE_SYSTEM, clock_, clock_};
}

std::string Fences::kernel_reads(const Agent &agent, const QueueFences &queue, uint64_t address,
                                 bool by_program, uint64_t announcement) const {
    const Write *write = find(address);
    if (write == nullptr) {
        const bool covered = !by_program || queue.covers_announcement == announcement;
        return covered ? "" : unacquired_words(address, HSA_FENCE_SCOPE_SYSTEM);
    }
    const bool near = write->agent == &agent;
    const unsigned needed = near ? HSA_FENCE_SCOPE_AGENT : HSA_FENCE_SCOPE_SYSTEM;
    if (write->released < needed) {
        return unreleased_words(address, needed);
    }
    const bool acquired =
        near ? queue.agent_acquired > write->to_agent_at : queue.system_acquired > write->at;
    return acquired ? "" : unacquired_words(address, needed);
}

std::string Fences::copy_reads(uint64_t address, uint64_t bytes) const {
    for (auto write = writes_.lower_bound(address);
         write != writes_.end() && write->first - address < bytes; ++write) {
        if (write->second.released < HSA_FENCE_SCOPE_SYSTEM) {
            return unreleased_words(write->first, HSA_FENCE_SCOPE_SYSTEM);
        }
    }
    return "";
}

void Fences::forget(uint64_t address, uint64_t bytes) {
    auto write = writes_.lower_bound(address);
    while (write != writes_.end() && write->first - address < bytes) {
        unreleased_.erase(write->first);
        write = writes_.erase(write);
    }
}

void Fences::forget_queue(const QueueFences &queue) {
    // A destroyed queue is idle, and the device writes its caches back when it drops a queue.
    for (auto &[address, write] : writes_) {
        if (write.queue == &queue) {
            ++clock_;
            write = {write.bytes, nullptr, nullptr, HSA_FENCE_SCOPE_SYSTEM, clock_, clock_};
            unreleased_.erase(address);
        }
    }
}

const Fences::Write *Fences::find(uint64_t address) const {
    const auto after = writes_.upper_bound(address);
    if (after == writes_.begin()) {
        return nullptr;
    }
    const auto before = std::prev(after);
    return address - before->first < before->second.bytes ? &before->second : nullptr;
}

} // namespace hsa_sim
