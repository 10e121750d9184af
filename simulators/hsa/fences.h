// Checks that the memory that a packet reads is visible to the packet: the writer must have
// released the memory, and the reader acquired it, with a scope that includes both.
//
// Hardware that lacks a fence mostly works and sometimes reads an old cache line; here the missing
// fence is the fault. The check covers pointer arguments of kernels, and the ranges of copies and
// fills. It does not cover memory that a kernel reaches in other ways, or reads by the program
// itself. Not thread-safe: callers hold the runtime's lock.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

namespace hsa_sim {

struct Agent;

// A queue's latest acquires. Times come from the ledger's clock.
struct QueueFences {
    uint64_t agent_acquired = 0;
    uint64_t system_acquired = 0;
    // The announcement (doorbell) of the latest packet that acquired from the system. The
    // program's writes before this doorbell are visible to all packets that it announced.
    uint64_t covers_announcement = 0;
};

class Fences {
  public:
    // A packet of a queue begins, or ends.
    void acquire(QueueFences &queue, unsigned scope, uint64_t announcement);
    void release(const Agent &agent, const QueueFences &queue, unsigned scope);

    // Notes that a kernel wrote to the address, and that its packet released to `scope`.
    void kernel_wrote(const Agent &agent, const QueueFences &queue, uint64_t address,
                      unsigned scope);
    // A copy, a fill or the program's own copy wrote to the range.
    void copied_to(uint64_t address, uint64_t bytes);

    // Reason why a packet may not see the latest memory at an address; empty if the packet sees
    // it. `by_program`: the program may have written the memory until it announced the packet.
    std::string kernel_reads(const Agent &agent, const QueueFences &queue, uint64_t address,
                             bool by_program, uint64_t announcement) const;
    // Like kernel_reads(), for a copy, or for the program after a wait.
    std::string copy_reads(uint64_t address, uint64_t bytes) const;

    // The memory was freed.
    void forget(uint64_t address, uint64_t bytes);
    void forget_queue(const QueueFences &queue);

  private:
    struct Write {
        uint64_t bytes;     // 1 for a kernel's write, whose size is unknown
        const Agent *agent; // null: released to the system; the releasing agent does not matter
        const QueueFences *queue;
        unsigned released;
        uint64_t to_agent_at; // time of the release to its own agent
        uint64_t at;          // time of the latest, wider release
    };

    const Write *find(uint64_t address) const;

    uint64_t clock_ = 1;
    std::map<uint64_t, Write> writes_; // by address
    std::set<uint64_t> unreleased_;    // writes of kernels not yet released to the system
};

} // namespace hsa_sim
