// Facts about addresses: memory of a device, page-locked host memory, or the program's own.
#pragma once

#include "call.h"

namespace cuda_sim {

struct AddressInfo {
    enum class Kind {
        device,
        pinned,
        pageable,
        invalid, // a device address at which nothing is allocated
    };

    Kind kind;
    DeviceState *device; // of device memory
};

// Describes the range address … address + bytes - 1. A range that is only partly pinned is
// pageable.
AddressInfo info_of(Driver &driver, uint64_t address, uint64_t bytes);

// Host address of memory that info_of described. Null if the memory was freed meanwhile.
char *view_of(Driver &driver, uint64_t address, uint64_t bytes, AddressInfo::Kind expected);

// Whether an allocation of managed memory holds the address.
bool is_managed(Driver &driver, uint64_t address);

// Whether a program asked that synchronous operations on this memory always wait.
bool is_synchronous(Driver &driver, uint64_t address);

// Subtracts a stream-ordered allocation from its pool's counts.
void release_from_pool(Driver &driver, const sim::Allocation &allocation);

} // namespace cuda_sim
