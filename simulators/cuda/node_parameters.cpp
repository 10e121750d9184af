// Parameters of graph nodes: changes, in graphs and in executable graphs, and queries.
#include "node_operations.h"

using namespace cuda_sim;

namespace {

// -- changed --------------------------------------------------------------------------------------

// A node keeps its type. Launches already queued keep their parameters.
CUresult replace(Operation &operation, Operation changed) {
    if (changed.type != operation.type) {
        return refuse(CUDA_ERROR_INVALID_VALUE, "the node is of another type");
    }
    operation = std::move(changed);
    return CUDA_SUCCESS;
}

template <class Make> CUresult set(const char *name, CUgraphNode node, Make make_it) {
    return in_context(name, [&](Call &call) {
        std::shared_ptr<Graph> graph;
        size_t index = 0;
        GraphStep *const step = step_of(call.driver, node, graph, index);
        Operation changed;
        const CUresult result = step == nullptr ? CUDA_ERROR_INVALID_VALUE : make_it(call, changed);
        if (result != CUDA_SUCCESS || changed.child == nullptr) {
            return result != CUDA_SUCCESS ? result : replace(step->operation, std::move(changed));
        }
        return refuse(CUDA_ERROR_INVALID_VALUE, "the graph in a node is changed itself");
    });
}

template <class Parameters>
CUresult set_with(const char *name, CUgraphNode node, const Parameters *parameters) {
    return set(name, node, [&](Call &call, Operation &operation) {
        return make_operation_of(call, parameters, operation);
    });
}

template <class Make>
CUresult set_exec(const char *name, CUgraphExec exec, CUgraphNode node, Make make_it) {
    return with_exec_step(name, exec, node, [&](Call &call, GraphStep &step) {
        Operation changed;
        const CUresult result = make_it(call, changed);
        if (result != CUDA_SUCCESS) {
            return result;
        }
        if (changed.child != nullptr) {
            if (step.operation.child == nullptr ||
                !same_shape(step.operation.child->steps, changed.child->steps)) {
                return refuse(CUDA_ERROR_INVALID_VALUE,
                              "the graph has other nodes or dependencies");
            }
            changed.child = copy_of(changed.child); // the program may still change its own graph
        }
        return replace(step.operation, std::move(changed));
    });
}

template <class Parameters>
CUresult set_exec_with(const char *name, CUgraphExec exec, CUgraphNode node,
                       const Parameters *parameters) {
    return set_exec(name, exec, node, [&](Call &call, Operation &operation) {
        return make_operation_of(call, parameters, operation);
    });
}

// -- queried --------------------------------------------------------------------------------------

template <class Parameters> void describe_launch(GraphStep &step, Parameters &parameters) {
    KernelCall &kernel = *step.operation.kernel;
    step.parameter_pointers.clear();
    for (const sim::ParameterLayout &one : kernel.function->entry->kernel.parameters) {
        step.parameter_pointers.push_back(kernel.parameters.data() + one.offset);
    }
    const sim::LaunchShape &shape = kernel.shape;
    parameters.func = kernel.function->handle;
    parameters.gridDimX = shape.grid[0];
    parameters.gridDimY = shape.grid[1];
    parameters.gridDimZ = shape.grid[2];
    parameters.blockDimX = shape.block[0];
    parameters.blockDimY = shape.block[1];
    parameters.blockDimZ = shape.block[2];
    parameters.sharedMemBytes = shape.shared_bytes;
    parameters.kernelParams = step.parameter_pointers.data();
    parameters.extra = nullptr;
}

void describe(GraphStep &step, CUDA_KERNEL_NODE_PARAMS_v1 &parameters) {
    describe_launch(step, parameters);
}

void describe(GraphStep &step, CUDA_KERNEL_NODE_PARAMS &parameters) {
    describe_launch(step, parameters);
    parameters.kern = nullptr;
    parameters.ctx = step.operation.kernel->function->module->context->handle;
}

void describe(GraphStep &step, CUDA_MEMCPY3D &parameters) {
    parameters = step.operation.details->parameters.memcpy.copyParams;
}

void describe(GraphStep &step, CUDA_MEMSET_NODE_PARAMS &parameters) {
    const CUDA_MEMSET_NODE_PARAMS_v2 &what = step.operation.details->parameters.memset;
    parameters = {what.dst, what.pitch, what.value, what.elementSize, what.width, what.height};
}

void describe(GraphStep &step, CUDA_HOST_NODE_PARAMS &parameters) {
    const CUDA_HOST_NODE_PARAMS_v2 &what = step.operation.details->parameters.host;
    parameters = {what.fn, what.userData};
}

void describe(GraphStep &step, CUDA_BATCH_MEM_OP_NODE_PARAMS &parameters) {
    parameters = step.operation.details->parameters.memOp;
}

void describe(GraphStep &step, CUevent &event) {
    event = step.operation.event->handle;
}

void describe(GraphStep &step, CUgraph &graph) {
    graph = step.operation.child->handle;
}

template <class Answer> CUresult get(const char *name, CUgraphNode node, int type, Answer *answer) {
    return with_node(name, node,
                     [&](Call &, const std::shared_ptr<Graph> &, size_t, GraphStep &step) {
                         if (answer == nullptr || step.operation.type != type) {
                             return CUDA_ERROR_INVALID_VALUE;
                         }
                         describe(step, *answer);
                         return CUDA_SUCCESS;
                     });
}

} // namespace

CUresult cuGraphKernelNodeGetParams(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams) {
    return get(__func__, hNode, CU_GRAPH_NODE_TYPE_KERNEL, nodeParams);
}

CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS *nodeParams) {
    return get(__func__, hNode, CU_GRAPH_NODE_TYPE_KERNEL, nodeParams);
}

CUresult cuGraphMemcpyNodeGetParams(CUgraphNode hNode, CUDA_MEMCPY3D *nodeParams) {
    return get(__func__, hNode, CU_GRAPH_NODE_TYPE_MEMCPY, nodeParams);
}

CUresult cuGraphMemsetNodeGetParams(CUgraphNode hNode, CUDA_MEMSET_NODE_PARAMS *nodeParams) {
    return get(__func__, hNode, CU_GRAPH_NODE_TYPE_MEMSET, nodeParams);
}

CUresult cuGraphHostNodeGetParams(CUgraphNode hNode, CUDA_HOST_NODE_PARAMS *nodeParams) {
    return get(__func__, hNode, CU_GRAPH_NODE_TYPE_HOST, nodeParams);
}

CUresult cuGraphBatchMemOpNodeGetParams(CUgraphNode hNode,
                                        CUDA_BATCH_MEM_OP_NODE_PARAMS *nodeParams_out) {
    return get(__func__, hNode, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, nodeParams_out);
}

CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode hNode, CUgraph *phGraph) {
    return get(__func__, hNode, CU_GRAPH_NODE_TYPE_GRAPH, phGraph);
}

CUresult cuGraphEventRecordNodeGetEvent(CUgraphNode hNode, CUevent *event_out) {
    return get(__func__, hNode, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event_out);
}

CUresult cuGraphEventWaitNodeGetEvent(CUgraphNode hNode, CUevent *event_out) {
    return get(__func__, hNode, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event_out);
}

CUresult cuGraphNodeGetParams(CUgraphNode hNode, CUgraphNodeParams *nodeParams) {
    return with_node(
        __func__, hNode, [&](Call &, const std::shared_ptr<Graph> &, size_t, GraphStep &step) {
            if (nodeParams == nullptr) {
                return CUDA_ERROR_INVALID_VALUE;
            }
            const Operation &operation = step.operation;
            *nodeParams =
                operation.details != nullptr ? operation.details->parameters : CUgraphNodeParams{};
            nodeParams->type = operation.type;
            if (operation.kernel != nullptr) {
                describe(step, nodeParams->kernel);
            } else if (operation.child != nullptr) {
                describe(step, nodeParams->graph.graph);
            } else if (operation.event != nullptr) {
                describe(step, nodeParams->eventRecord.event); // waits have it at the same offset
            }
            return CUDA_SUCCESS;
        });
}

CUresult cuGraphKernelNodeSetParams(CUgraphNode hNode,
                                    const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams) {
    return set_with(__func__, hNode, nodeParams);
}

CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode hNode,
                                       const CUDA_KERNEL_NODE_PARAMS *nodeParams) {
    return set_with(__func__, hNode, nodeParams);
}

CUresult cuGraphMemcpyNodeSetParams(CUgraphNode hNode, const CUDA_MEMCPY3D *nodeParams) {
    return set_with(__func__, hNode, nodeParams);
}

CUresult cuGraphMemsetNodeSetParams(CUgraphNode hNode, const CUDA_MEMSET_NODE_PARAMS *nodeParams) {
    return set_with(__func__, hNode, nodeParams);
}

CUresult cuGraphHostNodeSetParams(CUgraphNode hNode, const CUDA_HOST_NODE_PARAMS *nodeParams) {
    return set_with(__func__, hNode, nodeParams);
}

CUresult cuGraphBatchMemOpNodeSetParams(CUgraphNode hNode,
                                        const CUDA_BATCH_MEM_OP_NODE_PARAMS *nodeParams) {
    return set_with(__func__, hNode, nodeParams);
}

CUresult cuGraphEventRecordNodeSetEvent(CUgraphNode hNode, CUevent event) {
    return set(__func__, hNode, [&](Call &call, Operation &operation) {
        return make_event_operation(call, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event, operation);
    });
}

CUresult cuGraphEventWaitNodeSetEvent(CUgraphNode hNode, CUevent event) {
    return set(__func__, hNode, [&](Call &call, Operation &operation) {
        return make_event_operation(call, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event, operation);
    });
}

CUresult cuGraphNodeSetParams(CUgraphNode hNode, CUgraphNodeParams *nodeParams) {
    return set_with(__func__, hNode, nodeParams);
}

CUresult cuGraphNodeSetParams_v2(CUgraphNode hNode, CUgraphNodeParams *nodeParams) {
    return set_with(__func__, hNode, nodeParams);
}

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams) {
    return set_exec_with(__func__, hGraphExec, hNode, nodeParams);
}

CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec hGraphExec, CUgraphNode hNode,
                                           const CUDA_KERNEL_NODE_PARAMS *nodeParams) {
    return set_exec_with(__func__, hGraphExec, hNode, nodeParams);
}

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        const CUDA_MEMCPY3D *copyParams, CUcontext ctx) {
    return is_context(ctx) ? set_exec_with(__func__, hGraphExec, hNode, copyParams)
                           : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        const CUDA_MEMSET_NODE_PARAMS *memsetParams,
                                        CUcontext ctx) {
    return is_context(ctx) ? set_exec_with(__func__, hGraphExec, hNode, memsetParams)
                           : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuGraphExecHostNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                      const CUDA_HOST_NODE_PARAMS *nodeParams) {
    return set_exec_with(__func__, hGraphExec, hNode, nodeParams);
}

CUresult cuGraphExecBatchMemOpNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                            const CUDA_BATCH_MEM_OP_NODE_PARAMS *nodeParams) {
    return set_exec_with(__func__, hGraphExec, hNode, nodeParams);
}

CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                            CUgraph childGraph) {
    return set_exec(__func__, hGraphExec, hNode, [&](Call &call, Operation &operation) {
        return make_operation(
            call, CUDA_CHILD_GRAPH_NODE_PARAMS{childGraph, CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE},
            operation);
    });
}

CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec hGraphExec, CUgraphNode hNode,
                                            CUevent event) {
    return set_exec(__func__, hGraphExec, hNode, [&](Call &call, Operation &operation) {
        return make_event_operation(call, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event, operation);
    });
}

CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec hGraphExec, CUgraphNode hNode,
                                          CUevent event) {
    return set_exec(__func__, hGraphExec, hNode, [&](Call &call, Operation &operation) {
        return make_event_operation(call, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event, operation);
    });
}

CUresult cuGraphExecNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                  CUgraphNodeParams *nodeParams) {
    return set_exec_with(__func__, hGraphExec, hNode, nodeParams);
}
