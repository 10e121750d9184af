// Operations of streams and graph nodes that wait for a word of memory or write a word.
#pragma once

#include "operations.h"

namespace cuda_sim {

CUresult make_memory_operations(Call &call, const CUDA_BATCH_MEM_OP_NODE_PARAMS &what,
                                Operation &operation);

} // namespace cuda_sim
