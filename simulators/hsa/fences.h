// Checks that memory a packet reads was made visible to it: that the writer released it far enough
// and that the reader acquired it from as far.
//
// Hardware that lacks a fence mostly works and sometimes reads an old cache line; here the lack
// itself is the fault. The check covers pointer arguments of kernels, and the ranges of copies and
// fills. It does not cover memory that a kernel reaches in other ways, or reads by the program
// itself. Not thread-safe: callers hold the runtime's lock.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

namespace hsa_sim {

struct Agent;

// Acquires of a queue's packets so far. Times come from the ledger's clock.
struct QueueFences {
    uint64_t agent_acquired = 0;
    uint64_t system_acquired = 0;
    // The announcement of the latest packet that acquired from the system. Memory that the program
    // wrote before it rang is visible to the packets announced with it.
    uint64_t covers_announcement = 0;
};

class Fences {
  public:
    // A packet of a queue begins, or ends.
    void acquire(QueueFences &queue, unsigned scope, uint64_t announcement);
    void release(const Agent &agent, const QueueFences &queue, unsigned scope);

    // What a kernel wrote to, when its packet released to `scope`.
    void kernel_wrote(const Agent &agent, const QueueFences &queue, uint64_t address,
                      unsigned scope);
    // What a copy, a fill or the program's own copy wrote.
    void copied_to(uint64_t address, uint64_t bytes);

    // Why a packet may not see memory at an address; empty when it does. `by_program` says that
    // the program itself may have written there, until it announced the packet.
    std::string kernel_reads(const Agent &agent, const QueueFences &queue, uint64_t address,
                             bool by_program, uint64_t announcement) const;
    // The same for a copy, or for the program after it has waited.
    std::string copy_reads(uint64_t address, uint64_t bytes) const;

    // The memory was freed.
    void forget(uint64_t address, uint64_t bytes);
    void forget_queue(const QueueFences &queue);

  private:
    struct Write {
        uint64_t bytes;     // of a kernel's write, of which only the address is known, 1
        const Agent *agent; // null: released to the system, by whom does not matter
        const QueueFences *queue;
        unsigned released;
        uint64_t to_agent_at; // when it was released to its own agent
        uint64_t at;          // and as far as it is now
    };

    const Write *find(uint64_t address) const;

    uint64_t clock_ = 1;
    std::map<uint64_t, Write> writes_; // by address
    std::set<uint64_t> unreleased_;    // of kernels, not yet to the system
};

} // namespace hsa_sim
