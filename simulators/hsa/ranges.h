// The memory that a program got from the runtime, and the agents that may touch it.
//
// Only devices can use the addresses of a GPU pool's memory. The program and the devices share the
// addresses of a host pool's memory. Locked memory of the program has a second address, for
// devices. Not thread-safe: callers hold the runtime's lock, except for accesses to live memory.
#pragma once

#include <map>
#include <set>

#include "../engine/host_memory.h"
#include "objects.h"

namespace hsa_sim {

struct Range {
    enum class Kind { device, host, locked, variable };

    Kind kind;
    uint64_t address; // as devices know it
    uint64_t bytes;   // as requested
    uint64_t program; // the program's address; 0 where it has none
    Agent *owner;
    uint32_t flags;
    std::set<const Agent *> allowed;

    // Whether the program can write to the range without asking the runtime.
    bool by_program() const { return program != 0; }
    bool allows(const Agent &agent) const { return allowed.count(&agent) != 0; }
};

constexpr uint64_t memory_granule = 4096;

class Ranges {
  public:
    hsa_status_t allocate(const Pool &pool, uint64_t bytes, void **pointer);
    hsa_status_t free(uint64_t address);
    hsa_status_t lock(uint64_t program, uint64_t bytes, Agent &owner,
                      const std::set<const Agent *> &agents, void **pointer);
    hsa_status_t unlock(uint64_t program);

    // A variable of a loaded code object. The caller owns its memory and removes the variable.
    void add_variable(Agent &owner, uint64_t address, uint64_t bytes);
    void remove_variable(uint64_t address) { variables_ -= ranges_.erase(address); }

    // The range that contains all `bytes` from a device address; null when there is none.
    Range *find(uint64_t address, uint64_t bytes = 1);

    // The locked range at an address of the program; null when there is none.
    const Range *find_locked(uint64_t program) const;

    // True for device addresses, allocated or not. The program cannot use device addresses.
    bool device_only(uint64_t address) const;

    // Address of a range's memory in this process.
    void *view(const Range &range, uint64_t address) const;

    size_t allocations() const { return ranges_.size() - locked_.size() - variables_; }
    size_t locked() const { return locked_.size(); }
    void clear();

    // The device memories whose addresses `device_only` checks.
    std::vector<const sim::DeviceMemory *> devices;

  private:
    std::map<uint64_t, Range> ranges_;         // by address
    std::multimap<uint64_t, uint64_t> locked_; // devices' addresses by the program's address
    size_t variables_ = 0;
    sim::HostMemory host_;
    sim::DeviceMemory window_{UINT64_MAX}; // addresses of locked memory, for devices
};

} // namespace hsa_sim
