// Allocations of managed memory, on their own or from a pool.
#pragma once

#include "operations.h"

namespace cuda_sim {

// Allocates immediately; `pool` is null or a pool of managed memory.
CUresult allocate_managed(Call &call, CUdeviceptr *address, size_t bytes,
                          const std::shared_ptr<Pool> &pool);

// Frees the managed memory that starts at the address: after all work of the devices, or in stream
// order.
CUresult free_managed(Call &call, CUdeviceptr address);
CUresult free_managed(Call &call, CUdeviceptr address, Stream &stream);

} // namespace cuda_sim
