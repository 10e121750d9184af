// Waits for words of memory and writes of them, for streams and graph nodes.
#pragma once

#include "operations.h"

namespace cuda_sim {

CUresult make_memory_operations(Call &call, const CUDA_BATCH_MEM_OP_NODE_PARAMS &what,
                                Operation &operation);

} // namespace cuda_sim
