// The memory of one simulated device.
//
// It is mapped twice. Device addresses lie in the first mapping, which is inaccessible: a host
// read of a device address faults as it does on hardware. The engine uses the second mapping, the
// view. Only the pages of live allocations are mapped in the view, so a kernel that leaves the
// pages faults. Devices made before the first allocation share one window: for all of them, the
// same distance leads from an address to its view.
//
// Not thread-safe: callers hold the scheduler's lock, except for `view` of a live allocation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "status.h"

namespace sim {

enum class AllocationState {
    reserved, // has an address, but no memory until its stream allocates it
    live,
    leaving, // a release is queued: no new work may use it
};

struct Allocation {
    uint64_t address;
    uint64_t bytes;
    AllocationState state;
    bool stream_ordered;
    bool borrowed; // other code owns the memory behind it, at `view`
    bool imported; // borrowed from another process
    char *view;
    uint64_t serial; // never reused, unlike addresses
    const void *pool;
    bool mapped;      // memory lies behind the address
    bool read_only;   // for kernels
    std::string name; // of a variable, for messages
};

// Freed memory, kept so that messages about stale addresses can name it.
struct FreedRange {
    uint64_t address;
    uint64_t bytes;
};

// A variable of a module, at its offset in the module's area.
struct AreaPart {
    std::string name;
    uint64_t offset;
    uint64_t bytes;
    bool read_only;
};

// A range of device addresses, and the distance from it to the view.
struct Window {
    uint64_t base;
    uint64_t bytes;
    uint64_t delta;
};

// Place of an allocation's memory, for other processes.
struct SharedRange {
    int32_t process;
    int32_t descriptor;
    uint64_t offset;
    uint64_t bytes;
    uint64_t serial;
};

class DeviceMemory {
  public:
    explicit DeviceMemory(uint64_t capacity);
    DeviceMemory(const DeviceMemory &) = delete;
    DeviceMemory &operator=(const DeviceMemory &) = delete;

    uint64_t capacity() const { return capacity_; }
    uint64_t used() const { return used_; }

    // Number of live allocations; borrowed memory and areas' variables are not counted.
    size_t allocations() const;

    // Reserves an address without memory; `commit` adds memory, filled with a pattern.
    Status reserve(uint64_t bytes, uint64_t &address);
    Status commit(uint64_t address);
    Status allocate(uint64_t bytes, uint64_t &address);

    // Gives a device address to host memory that outlives the address: the variables of a kernel
    // library.
    Status borrow(char *memory, uint64_t bytes, uint64_t &address);

    // Allocates zeroed memory for the variables of a module. Each variable becomes an allocation of
    // its own; the rest of the area belongs to no allocation.
    Status allocate_area(uint64_t bytes, const std::vector<AreaPart> &parts, uint64_t &area);
    void release_area(uint64_t area);

    Status share(uint64_t address, SharedRange &range) const;
    Status import(const SharedRange &range, uint64_t &address);

    // Returns the memory to the system; the address faults from now on.
    void release(uint64_t address);

    // The allocation that holds all of address … address + bytes - 1; null when there is no such
    // allocation.
    Allocation *find(uint64_t address, uint64_t bytes = 1);
    const Allocation *find(uint64_t address, uint64_t bytes = 1) const;

    // True for every address that this device may ever allocate.
    bool covers(uint64_t address) const { return base_ != 0 && address - base_ < span_; }

    // Host address of a device address. Its page is mapped only while the address is allocated.
    char *view(uint64_t address) const;

    const std::map<uint64_t, Allocation> &all() const { return allocations_; }
    const std::deque<FreedRange> &freed() const { return freed_; }

    // Changes whenever `all` or `freed` change.
    uint64_t generation() const { return generation_; }

    // The window that this device shares with others; zeros before the first allocation.
    Window window() const;

    // The device address of an address in the view, for messages about faults; 0 for other
    // addresses.
    uint64_t address_of(uint64_t viewed) const;

  private:
    struct Reservation;

    bool open();
    bool find_room(uint64_t bytes, uint64_t &offset) const;
    Status insert(uint64_t bytes, Allocation &allocation);
    Status map(uint64_t address, uint64_t bytes);
    void unmap(uint64_t address, uint64_t bytes);
    void forget_freed(uint64_t address, uint64_t bytes);

    const uint64_t capacity_;
    const uint64_t span_; // of addresses
    uint64_t used_ = 0;
    const Reservation *reservation_ = nullptr;
    uint64_t base_ = 0; // 0 before the first allocation
    char *view_ = nullptr;
    int descriptor_ = -1;
    uint64_t next_ = 0;
    uint64_t serial_ = 0;
    uint64_t generation_ = 0;
    std::map<uint64_t, Allocation> allocations_; // by address
    std::map<uint64_t, uint64_t> areas_;         // bytes by address
    std::deque<FreedRange> freed_;               // the latest ones, oldest first
};

} // namespace sim
