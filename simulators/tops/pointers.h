// Kinds of pointers: memory of the current device, page-locked host memory, or the program's own.
//
// topsMalloc returns handles. Kernels work with the device's own addresses, which launches pass
// instead of handles.
#pragma once

#include "call.h"

namespace tops_sim {

struct AddressInfo {
    enum class Kind {
        device,
        pinned,
        pageable,
        invalid, // a pointer of another device, or to no allocation
    };

    Kind kind;
};

// Describes the range pointer … pointer + bytes - 1 for the current device. Host memory that is
// pinned only in part is pageable.
AddressInfo info_of(Call &call, uint64_t pointer, uint64_t bytes);

// Host address of memory that info_of described; null if the memory has been freed.
char *view_of(Runtime &runtime, DeviceState &device, uint64_t pointer, uint64_t bytes,
              AddressInfo::Kind expected);

// Converts a handle to the device's own address, and back.
uint64_t address_of(const Runtime &runtime, uint64_t pointer);
uint64_t pointer_of(const Runtime &runtime, uint64_t address);

} // namespace tops_sim
