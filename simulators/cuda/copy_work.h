// The parts of a copy: two sides and an extent.
#pragma once

#include "operations.h"
#include "pointers.h"

namespace cuda_sim {

// One side of a copy: rows, and slices of them.
struct Side {
    uint64_t address = 0;
    uint64_t pitch = 0; // bytes from one row to the next
    uint64_t slice = 0; // and from one slice to the next
    AddressInfo info = {AddressInfo::Kind::invalid, nullptr};
    std::shared_ptr<std::vector<char>> staged; // packed rows, if already read
};

struct Extent {
    uint64_t width; // bytes
    uint64_t height = 1;
    uint64_t depth = 1;

    bool empty() const { return width == 0 || height == 0 || depth == 0; }
};

Side device_side(uint64_t address);
Side host_side(const void *pointer);

// Finds the memory of a side; returns false if there is none, or if its rows overlap.
bool locate(Driver &driver, Side &side, const Extent &extent);

// Reads a host-readable source now, so that the copy does not read it again.
void read_now(Side &side, const Extent &extent);

std::function<sim::Status()> copy_work(Side destination, Side source, Extent extent,
                                       DeviceState &device);

inline bool is_host(const Side &side) {
    return side.info.kind != AddressInfo::Kind::device;
}

} // namespace cuda_sim
