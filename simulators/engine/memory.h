// The memory of one simulated device.
//
// It is mapped at two places. Device addresses lie in the first, which nobody may touch: a host
// read of a device address faults as it does on hardware. The engine works through the second,
// its view, where only the pages of live allocations are mapped: a kernel that leaves them faults.
//
// Not thread-safe: callers hold the scheduler's lock, except for `view` of a live allocation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "status.h"

namespace sim {

enum class AllocationState {
    reserved, // has an address, no memory yet: a stream-ordered allocation not reached
    live,
    leaving, // its release is on the way: no new work may use it
};

struct Allocation {
    uint64_t address;
    uint64_t bytes;
    AllocationState state;
    bool stream_ordered;
    bool borrowed;        // the memory behind it is somebody else's, at `view`
    uint64_t unmap_bytes; // of an imported range: what to unmap around `view` at the end
    char *view;
    uint64_t serial; // never reused, unlike the address
    const void *pool;
};

// Where another process finds an allocation.
struct SharedRange {
    int32_t process;
    int32_t descriptor;
    uint64_t offset;
    uint64_t bytes;
    uint64_t serial;
};

class DeviceMemory {
  public:
    explicit DeviceMemory(uint64_t capacity) : capacity_(capacity) {}
    DeviceMemory(const DeviceMemory &) = delete;
    DeviceMemory &operator=(const DeviceMemory &) = delete;

    uint64_t capacity() const { return capacity_; }
    uint64_t used() const { return used_; }

    // Live ones that were asked for; borrowed memory is not counted.
    size_t allocations() const;

    // Gives an address without memory, and later memory to it, filled with a pattern.
    Status reserve(uint64_t bytes, uint64_t &address);
    Status commit(uint64_t address);
    Status allocate(uint64_t bytes, uint64_t &address);

    // A device address for host memory that outlives it: the variables of a kernel library.
    Status borrow(char *memory, uint64_t bytes, uint64_t &address);

    Status share(uint64_t address, SharedRange &range) const;
    Status import(const SharedRange &range, uint64_t &address);

    // The memory returns to the system and the address faults from now on.
    void release(uint64_t address);

    // The allocation that holds all of address … address + bytes - 1; null when there is none.
    Allocation *find(uint64_t address, uint64_t bytes = 1);
    const Allocation *find(uint64_t address, uint64_t bytes = 1) const;

    // True for every address this device ever hands out, allocated or not.
    bool covers(uint64_t address) const { return address - base_ < span_; }

    // Where the engine finds an address; mapped there only while it is allocated.
    char *view(uint64_t address) const;

    // The device address of a place in the view, for naming a fault there; 0 for any other.
    uint64_t address_of(uint64_t place) const;

  private:
    bool open();
    bool place(uint64_t bytes, uint64_t &offset) const;
    Status insert(uint64_t bytes, Allocation &allocation);

    const uint64_t capacity_;
    uint64_t used_ = 0;
    uint64_t base_ = 0;
    uint64_t span_ = 0;
    char *view_ = nullptr;
    int descriptor_ = -1;
    uint64_t next_ = 0;
    uint64_t serial_ = 0;
    std::map<uint64_t, Allocation> allocations_; // by address
};

} // namespace sim
