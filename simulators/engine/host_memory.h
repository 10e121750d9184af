// Host memory the simulated devices may reach: page-locked by the driver, or registered by the
// program. Everything else is pageable. Not thread-safe: callers hold the scheduler's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

namespace sim {

struct HostRange {
    uint64_t address;
    uint64_t bytes;
    unsigned flags;
    bool registered; // the program's memory: never freed here
    uint64_t mapped_bytes;
    uint64_t serial;
};

class HostMemory {
  public:
    // Returns page-locked memory with an inaccessible page behind it. Null if the system has no
    // more memory.
    void *allocate(uint64_t bytes, unsigned flags);
    void release(uint64_t address);

    // Registers a range; false if part of the range is registered already.
    bool add(uint64_t address, uint64_t bytes, unsigned flags);
    bool remove(uint64_t address);

    // The range that holds all of address … address + bytes - 1; null if a part is pageable.
    const HostRange *find(uint64_t address, uint64_t bytes = 1) const;

    size_t size() const { return ranges_.size(); }
    const std::map<uint64_t, HostRange> &all() const { return ranges_; }

    // Changes whenever `all` does.
    uint64_t generation() const { return generation_; }

  private:
    std::map<uint64_t, HostRange> ranges_; // by address
    uint64_t serial_ = 0;
    uint64_t generation_ = 0;
};

} // namespace sim
