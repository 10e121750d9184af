// The device's memory for a checked launch: allocated ranges, freed ranges, and the kernel's names
// for them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kernel.h"
#include "launch_facts.h"

namespace uhal_host {

class LaunchMemory {
  public:
    static constexpr uintptr_t null_bytes = 4096; // addresses below are a null pointer's

    explicit LaunchMemory(const Launch &launch);

    // The allocation that holds an address, until the next call; null if none does.
    const Span *allocation(uintptr_t address) {
        return last_.holds(address) ? &last_ : find_allocation(address);
    }

    bool was_freed(uintptr_t address) const { return span_with(freed_, address).end != 0; }

    // Returns whether an argument points to foreign memory, whose borders are unknown.
    bool has_strangers() const { return has_strangers_; }

    // Describes an address, such as `x[3]`.
    std::string element(uintptr_t address) const;

    // Describes an address outside all allocations: near an argument, at null, or far away.
    std::string outside(uintptr_t address) const;

  private:
    using Ranges = std::vector<std::pair<uintptr_t, size_t>>; // address and bytes, by address

    static Span span_with(const Ranges &ranges, uintptr_t address);
    const Span *find_allocation(uintptr_t address);
    void read_arguments(const Launch &launch);
    const Argument *nearest(uintptr_t address, uintptr_t &distance) const;

    Ranges allocated_;
    Ranges freed_; // earlier
    Span last_;    // that was asked for
    std::vector<Argument> arguments_;
    bool has_strangers_ = false;
};

} // namespace uhal_host
