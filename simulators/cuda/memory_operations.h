// Waits for and writes of words of memory, as streams and the nodes of graphs do them.
#pragma once

#include "operations.h"

namespace cuda_sim {

CUresult make_memory_operations(Call &call, const CUDA_BATCH_MEM_OP_NODE_PARAMS &what,
                                Operation &operation);

} // namespace cuda_sim
