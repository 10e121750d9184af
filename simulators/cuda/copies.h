// Copies and fills as operations, for the nodes of graphs.
#pragma once

#include "operations.h"

namespace cuda_sim {

CUresult make_copy(Call &call, const CUDA_MEMCPY3D &what, Operation &operation);

CUresult make_fill(Call &call, const CUDA_MEMSET_NODE_PARAMS_v2 &what, Operation &operation);

} // namespace cuda_sim
