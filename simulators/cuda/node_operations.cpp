#include "node_operations.h"

#include "copies.h"
#include "kernel_work.h"
#include "memory_operations.h"

using namespace cuda_sim;

namespace {

template <class Parameters>
CUresult make_launch(Call &call, const Parameters &from, CUfunction handle, Operation &operation) {
    std::shared_ptr<Function> function;
    const CUresult refusal = function_of(call, handle, function);
    if (refusal != CUDA_SUCCESS) {
        return refusal;
    }
    const sim::LaunchShape shape = {{from.gridDimX, from.gridDimY, from.gridDimZ},
                                    {from.blockDimX, from.blockDimY, from.blockDimZ},
                                    from.sharedMemBytes};
    operation.type = CU_GRAPH_NODE_TYPE_KERNEL;
    return make_kernel_call(function, shape, from.kernelParams, from.extra, operation.kernel);
}

} // namespace

CUresult cuda_sim::make_event_operation(Call &call, CUgraphNodeType type, CUevent handle,
                                        Operation &operation) {
    operation.type = type;
    operation.event = call.driver.events.find(handle);
    return operation.event == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult cuda_sim::make_operation(Call &call, const CUDA_CHILD_GRAPH_NODE_PARAMS &what,
                                  Operation &operation) {
    const std::shared_ptr<Graph> graph = call.driver.graphs.find(what.graph);
    const bool moved = what.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
    if (graph == nullptr || (!moved && what.ownership != CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE) ||
        (moved && graph->embedded)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    operation.type = CU_GRAPH_NODE_TYPE_GRAPH;
    operation.child = moved ? graph : copy_of(graph);
    return CUDA_SUCCESS;
}

CUresult cuda_sim::make_operation(Call &call, const CUDA_KERNEL_NODE_PARAMS_v1 &what,
                                  Operation &operation) {
    return make_launch(call, what, what.func, operation);
}

CUresult cuda_sim::make_operation(Call &call, const CUDA_KERNEL_NODE_PARAMS &what,
                                  Operation &operation) {
    const auto kernel = reinterpret_cast<CUfunction>(what.kern);
    return make_launch(call, what, what.func != nullptr ? what.func : kernel, operation);
}

CUresult cuda_sim::make_operation(Call &call, const CUDA_MEMCPY3D &what, Operation &operation) {
    return make_copy(call, what, operation);
}

CUresult cuda_sim::make_operation(Call &call, const CUDA_MEMSET_NODE_PARAMS &what,
                                  Operation &operation) {
    return make_fill(call,
                     {what.dst, what.pitch, what.value, what.elementSize, what.width, what.height,
                      call.context->handle},
                     operation);
}

CUresult cuda_sim::make_operation(Call &, const CUDA_HOST_NODE_PARAMS &what, Operation &operation) {
    if (what.fn == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    operation = make_host_call({what.fn, what.userData});
    return CUDA_SUCCESS;
}

CUresult cuda_sim::make_operation(Call &call, const CUDA_BATCH_MEM_OP_NODE_PARAMS &what,
                                  Operation &operation) {
    return make_memory_operations(call, what, operation);
}

CUresult cuda_sim::make_operation(Call &call, const CUgraphNodeParams &what, Operation &operation) {
    switch (static_cast<int>(what.type)) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return make_operation(call, what.kernel, operation);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return make_copy(call, what.memcpy.copyParams, operation);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return make_fill(call, what.memset, operation);
    case CU_GRAPH_NODE_TYPE_HOST:
        return make_operation(call, CUDA_HOST_NODE_PARAMS{what.host.fn, what.host.userData},
                              operation);
    case CU_GRAPH_NODE_TYPE_GRAPH:
        return make_operation(call, what.graph, operation);
    case CU_GRAPH_NODE_TYPE_EMPTY:
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        return make_event_operation(call, what.type, what.eventWait.event, operation);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return make_event_operation(call, what.type, what.eventRecord.event, operation);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        return make_memory_operations(call, what.memOp, operation);
    default:
        return refuse(CUDA_ERROR_NOT_SUPPORTED,
                      "nodes of type " + std::to_string(what.type) + " are not simulated");
    }
}

bool cuda_sim::is_context(CUcontext context) {
    Driver &driver = Driver::get();
    const sim::Lock lock(driver.scheduler.mutex);
    return driver.contexts.find(context) != nullptr;
}
