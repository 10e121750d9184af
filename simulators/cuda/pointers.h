// What an address is: device memory of which device, page-locked host memory, or the program's own.
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

// Facts of all of address … address + bytes - 1; memory pinned only in part is pageable.
AddressInfo info_of(Driver &driver, uint64_t address, uint64_t bytes);

// Where the engine finds memory that info_of knows. Null when it is gone by now.
char *view_of(Driver &driver, uint64_t address, uint64_t bytes, AddressInfo::Kind expected);

// Whether an allocation of managed memory holds the address.
bool is_managed(Driver &driver, uint64_t address);

// Whether a program asked that synchronous operations on this memory always wait.
bool is_synchronous(Driver &driver, uint64_t address);

// Takes a stream-ordered allocation off its pool's books.
void release_from_pool(Driver &driver, const sim::Allocation &allocation);

} // namespace cuda_sim
