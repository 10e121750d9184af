// All memory a kernel may touch, in the form that the PTX run time reads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "../ptx/runtime/ptx.h"
#include "host_memory.h"
#include "memory.h"

namespace sim {

struct Reach {
    // Sorted by address; a range's tag is the index of its name.
    std::vector<uptx_range> ranges;
    std::vector<std::string> names;
    Window window;
};

// Gathers ranges in any order.
class ReachBuilder {
  public:
    // Adds all memory of a device that kernels may touch now, and its recently freed memory.
    void add(const DeviceMemory &memory);
    void add(const Allocation &allocation);
    void add(const HostMemory &memory);

    // Returns the ranges, for kernels of a device with this window.
    Reach finish(const Window &window);

  private:
    void add(uint64_t address, uint64_t bytes, uint32_t state, uint64_t name);
    uint64_t name(const std::string &text);

    Reach reach_;
};

} // namespace sim
