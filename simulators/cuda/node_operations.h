// Makes the operations of graph nodes from a program's parameters, with an overload per node type.
#pragma once

#include "graph_calls.h"

namespace cuda_sim {

CUresult make_event_operation(Call &call, CUgraphNodeType type, CUevent handle,
                              Operation &operation);
CUresult make_operation(Call &call, const CUDA_CHILD_GRAPH_NODE_PARAMS &what, Operation &operation);
CUresult make_operation(Call &call, const CUDA_KERNEL_NODE_PARAMS_v1 &what, Operation &operation);
CUresult make_operation(Call &call, const CUDA_KERNEL_NODE_PARAMS &what, Operation &operation);
CUresult make_operation(Call &call, const CUDA_MEMCPY3D &what, Operation &operation);
CUresult make_operation(Call &call, const CUDA_MEMSET_NODE_PARAMS &what, Operation &operation);
CUresult make_operation(Call &, const CUDA_HOST_NODE_PARAMS &what, Operation &operation);
CUresult make_operation(Call &call, const CUDA_BATCH_MEM_OP_NODE_PARAMS &what,
                        Operation &operation);
CUresult make_operation(Call &call, const CUgraphNodeParams &what, Operation &operation);

// For parameters that the program passes by pointer.
template <class Parameters>
CUresult make_operation_of(Call &call, const Parameters *what, Operation &operation) {
    return what == nullptr ? CUDA_ERROR_INVALID_VALUE : make_operation(call, *what, operation);
}

// Whether the context exists. Copies and fills take their own context from their addresses.
bool is_context(CUcontext context);

} // namespace cuda_sim
