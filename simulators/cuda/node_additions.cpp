// Adding nodes to graphs.
#include "node_operations.h"

using namespace cuda_sim;

namespace {

template <class Make>
CUresult add(const char *name, CUgraphNode *node, CUgraph handle, const CUgraphNode *dependencies,
             size_t count, Make make_it) {
    return in_context(name, [&](Call &call) {
        const std::shared_ptr<Graph> graph = call.driver.graphs.find(handle);
        if (graph == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        Operation operation;
        const CUresult result = make_it(call, operation);
        return result != CUDA_SUCCESS
                   ? result
                   : add_step(call, graph, node, dependencies, count, std::move(operation));
    });
}

template <class Parameters>
CUresult add_with(const char *name, CUgraphNode *node, CUgraph graph,
                  const CUgraphNode *dependencies, size_t count, const Parameters *parameters) {
    return add(name, node, graph, dependencies, count, [&](Call &call, Operation &operation) {
        return make_operation_of(call, parameters, operation);
    });
}

CUresult add_any(const char *name, CUgraphNode *node, CUgraph graph,
                 const CUgraphNode *dependencies, const CUgraphEdgeData *edges, size_t count,
                 const CUgraphNodeParams *parameters) {
    const CUresult plain = check_edges(edges, count);
    return plain != CUDA_SUCCESS ? plain
                                 : add_with(name, node, graph, dependencies, count, parameters);
}

CUresult add_event(const char *name, CUgraphNode *node, CUgraph graph,
                   const CUgraphNode *dependencies, size_t count, CUgraphNodeType type,
                   CUevent event) {
    return add(name, node, graph, dependencies, count, [&](Call &call, Operation &operation) {
        return make_event_operation(call, type, event, operation);
    });
}

} // namespace

CUresult cuGraphAddEmptyNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                             const CUgraphNode *dependencies, size_t numDependencies) {
    return with_graph(__func__, hGraph, [&](Call &call, const std::shared_ptr<Graph> &graph) {
        return add_step(call, graph, phGraphNode, dependencies, numDependencies, {});
    });
}

CUresult cuGraphAddHostNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                            const CUgraphNode *dependencies, size_t numDependencies,
                            const CUDA_HOST_NODE_PARAMS *nodeParams) {
    return add_with(__func__, phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
}

CUresult cuGraphAddKernelNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                              const CUgraphNode *dependencies, size_t numDependencies,
                              const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams) {
    return add_with(__func__, phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
}

CUresult cuGraphAddKernelNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph,
                                 const CUgraphNode *dependencies, size_t numDependencies,
                                 const CUDA_KERNEL_NODE_PARAMS *nodeParams) {
    return add_with(__func__, phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
}

// Here, the context of a copy or fill comes from its addresses; `ctx` must only be valid.
CUresult cuGraphAddMemcpyNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                              const CUgraphNode *dependencies, size_t numDependencies,
                              const CUDA_MEMCPY3D *copyParams, CUcontext ctx) {
    return is_context(ctx)
               ? add_with(__func__, phGraphNode, hGraph, dependencies, numDependencies, copyParams)
               : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuGraphAddMemsetNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                              const CUgraphNode *dependencies, size_t numDependencies,
                              const CUDA_MEMSET_NODE_PARAMS *memsetParams, CUcontext ctx) {
    return is_context(ctx) ? add_with(__func__, phGraphNode, hGraph, dependencies, numDependencies,
                                      memsetParams)
                           : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuGraphAddChildGraphNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                  const CUgraphNode *dependencies, size_t numDependencies,
                                  CUgraph childGraph) {
    return add(__func__, phGraphNode, hGraph, dependencies, numDependencies,
               [&](Call &call, Operation &operation) {
                   return make_operation(call,
                                         CUDA_CHILD_GRAPH_NODE_PARAMS{
                                             childGraph, CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE},
                                         operation);
               });
}

CUresult cuGraphAddEventRecordNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                   const CUgraphNode *dependencies, size_t numDependencies,
                                   CUevent event) {
    return add_event(__func__, phGraphNode, hGraph, dependencies, numDependencies,
                     CU_GRAPH_NODE_TYPE_EVENT_RECORD, event);
}

CUresult cuGraphAddEventWaitNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                 const CUgraphNode *dependencies, size_t numDependencies,
                                 CUevent event) {
    return add_event(__func__, phGraphNode, hGraph, dependencies, numDependencies,
                     CU_GRAPH_NODE_TYPE_WAIT_EVENT, event);
}

CUresult cuGraphAddBatchMemOpNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                  const CUgraphNode *dependencies, size_t numDependencies,
                                  const CUDA_BATCH_MEM_OP_NODE_PARAMS *nodeParams) {
    return add_with(__func__, phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
}

CUresult cuGraphAddNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                        size_t numDependencies, CUgraphNodeParams *nodeParams) {
    return add_any(__func__, phGraphNode, hGraph, dependencies, nullptr, numDependencies,
                   nodeParams);
}

CUresult cuGraphAddNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph,
                           const CUgraphNode *dependencies, const CUgraphEdgeData *dependencyData,
                           size_t numDependencies, CUgraphNodeParams *nodeParams) {
    return add_any(__func__, phGraphNode, hGraph, dependencies, dependencyData, numDependencies,
                   nodeParams);
}

CUresult cuGraphAddNode_v3(CUgraphNode *phGraphNode, CUgraph hGraph,
                           const CUgraphNode *dependencies, const CUgraphEdgeData *dependencyData,
                           size_t numDependencies, CUgraphNodeParams *nodeParams) {
    return add_any(__func__, phGraphNode, hGraph, dependencies, dependencyData, numDependencies,
                   nodeParams);
}
