// Allocations of managed memory, on their own or from a pool.
#pragma once

#include "operations.h"

namespace cuda_sim {

// At once: `pool` is null, or one of managed memory.
CUresult allocate_managed(Call &call, CUdeviceptr *address, size_t bytes,
                          const std::shared_ptr<Pool> &pool);

// What starts at the address, which is managed: after all work of the devices, or in the order of a
// stream.
CUresult free_managed(Call &call, CUdeviceptr address);
CUresult free_managed(Call &call, CUdeviceptr address, Stream &stream);

} // namespace cuda_sim
