// The nodes of graphs: added, listed, and the parameters of kernels changed.
#include "graph_calls.h"
#include "kernel_work.h"

using namespace cuda_sim;

namespace {

// Copies what a list of handles is allowed to hold: `*count` is its length, then what there is.
CUresult list_nodes(const std::vector<CUgraphNode> &found, CUgraphNode *nodes, size_t *count) {
    if (count == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (nodes != nullptr) {
        for (size_t index = 0; index < *count; ++index) {
            nodes[index] = index < found.size() ? found[index] : nullptr;
        }
    }
    *count = found.size();
    return CUDA_SUCCESS;
}

CUresult add_step(Call &call, const std::shared_ptr<Graph> &graph, CUgraphNode *handle,
                  const CUgraphNode *dependencies, size_t count, Operation operation) {
    GraphStep step;
    step.operation = std::move(operation);
    for (size_t index = 0; index < count; ++index) {
        std::shared_ptr<Graph> owner;
        size_t earlier = 0;
        if (step_of(call.driver, dependencies[index], owner, earlier) == nullptr ||
            owner != graph) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        step.after.push_back(earlier);
    }
    if (handle == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    graph->steps.push_back(std::move(step));
    name_nodes(call.driver, graph);
    *handle = graph->steps.back().node->handle;
    return CUDA_SUCCESS;
}

template <class Parameters>
CUresult kernel_call(Call &call, const Parameters &from, CUfunction handle,
                     std::shared_ptr<KernelCall> &made) {
    std::shared_ptr<Function> function;
    const CUresult refusal = function_of(call, handle, function);
    if (refusal != CUDA_SUCCESS) {
        return refusal;
    }
    const sim::LaunchShape shape = {{from.gridDimX, from.gridDimY, from.gridDimZ},
                                    {from.blockDimX, from.blockDimY, from.blockDimZ},
                                    from.sharedMemBytes};
    return make_kernel_call(function, shape, from.kernelParams, from.extra, made);
}

CUfunction function_in(const CUDA_KERNEL_NODE_PARAMS_v1 &parameters) {
    return parameters.func;
}

CUfunction function_in(const CUDA_KERNEL_NODE_PARAMS &parameters) {
    return parameters.func != nullptr ? parameters.func
                                      : reinterpret_cast<CUfunction>(parameters.kern);
}

void fill_rest(CUDA_KERNEL_NODE_PARAMS_v1 &, const Function &) {}

void fill_rest(CUDA_KERNEL_NODE_PARAMS &parameters, const Function &function) {
    parameters.kern = nullptr;
    parameters.ctx = function.module->context->handle;
}

template <class Parameters>
CUresult get_parameters(const char *name, CUgraphNode node, Parameters *parameters) {
    return initialized(name, [&](Call &call) {
        std::shared_ptr<Graph> graph;
        size_t index = 0;
        GraphStep *step = step_of(call.driver, node, graph, index);
        if (step == nullptr || step->operation.kernel == nullptr || parameters == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        KernelCall &kernel = *step->operation.kernel;
        step->parameter_pointers.clear();
        for (const sim::ParameterLayout &one : kernel.function->entry->kernel.parameters) {
            step->parameter_pointers.push_back(kernel.parameters.data() + one.offset);
        }
        const sim::LaunchShape &shape = kernel.shape;
        parameters->func = kernel.function->handle;
        parameters->gridDimX = shape.grid[0];
        parameters->gridDimY = shape.grid[1];
        parameters->gridDimZ = shape.grid[2];
        parameters->blockDimX = shape.block[0];
        parameters->blockDimY = shape.block[1];
        parameters->blockDimZ = shape.block[2];
        parameters->sharedMemBytes = shape.shared_bytes;
        parameters->kernelParams = step->parameter_pointers.data();
        parameters->extra = nullptr;
        fill_rest(*parameters, *kernel.function);
        return CUDA_SUCCESS;
    });
}

template <class Parameters>
CUresult set_parameters(const char *name, CUgraphNode node, const Parameters *parameters) {
    return in_context(name, [&](Call &call) {
        std::shared_ptr<Graph> graph;
        size_t index = 0;
        GraphStep *step = step_of(call.driver, node, graph, index);
        if (step == nullptr || step->operation.kernel == nullptr || parameters == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        return kernel_call(call, *parameters, function_in(*parameters), step->operation.kernel);
    });
}

template <class Parameters>
CUresult set_exec_parameters(const char *name, CUgraphExec handle, CUgraphNode node,
                             const Parameters *parameters) {
    return with_exec(name, handle, [&](Call &call, GraphExec &exec) {
        std::shared_ptr<Graph> graph;
        size_t index = 0;
        const GraphStep *step = step_of(call.driver, node, graph, index);
        if (step == nullptr || graph != exec.source || index >= exec.steps.size() ||
            exec.steps[index].operation.kernel == nullptr || parameters == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        // Launches already queued keep the parameters they were queued with.
        return kernel_call(call, *parameters, function_in(*parameters),
                           exec.steps[index].operation.kernel);
    });
}

template <class Parameters>
CUresult add_kernel(const char *name, CUgraphNode *node, CUgraph handle,
                    const CUgraphNode *dependencies, size_t count, const Parameters *parameters) {
    return in_context(name, [&](Call &call) {
        const std::shared_ptr<Graph> graph = call.driver.graphs.find(handle);
        if (graph == nullptr || parameters == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        Operation operation;
        operation.type = CU_GRAPH_NODE_TYPE_KERNEL;
        const CUresult result =
            kernel_call(call, *parameters, function_in(*parameters), operation.kernel);
        return result != CUDA_SUCCESS
                   ? result
                   : add_step(call, graph, node, dependencies, count, std::move(operation));
    });
}

} // namespace

GraphStep *cuda_sim::step_of(Driver &driver, CUgraphNode handle, std::shared_ptr<Graph> &graph,
                             size_t &index) {
    const std::shared_ptr<GraphNode> node = driver.nodes.find(handle);
    graph = node == nullptr ? nullptr : node->graph.lock();
    if (graph == nullptr) {
        return nullptr;
    }
    index = node->index;
    return &graph->steps[index];
}

void cuda_sim::name_nodes(Driver &driver, const std::shared_ptr<Graph> &graph) {
    for (size_t index = 0; index < graph->steps.size(); ++index) {
        GraphStep &step = graph->steps[index];
        if (step.node == nullptr) {
            step.node = std::make_shared<GraphNode>();
            step.node->graph = graph;
            step.node->index = index;
            driver.nodes.add(step.node);
        }
    }
}

CUresult cuGraphAddEmptyNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                             const CUgraphNode *dependencies, size_t numDependencies) {
    return with_graph(__func__, hGraph, [&](Call &call, const std::shared_ptr<Graph> &graph) {
        return add_step(call, graph, phGraphNode, dependencies, numDependencies, {});
    });
}

CUresult cuGraphAddHostNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                            const CUgraphNode *dependencies, size_t numDependencies,
                            const CUDA_HOST_NODE_PARAMS *nodeParams) {
    return with_graph(__func__, hGraph, [&](Call &call, const std::shared_ptr<Graph> &graph) {
        if (nodeParams == nullptr || nodeParams->fn == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        Operation operation;
        operation.type = CU_GRAPH_NODE_TYPE_HOST;
        operation.calls_back = true;
        operation.work = [what = *nodeParams] {
            what.fn(what.userData);
            return sim::Status::ok;
        };
        return add_step(call, graph, phGraphNode, dependencies, numDependencies,
                        std::move(operation));
    });
}

CUresult cuGraphAddKernelNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                              const CUgraphNode *dependencies, size_t numDependencies,
                              const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams) {
    return add_kernel(__func__, phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
}

CUresult cuGraphAddKernelNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph,
                                 const CUgraphNode *dependencies, size_t numDependencies,
                                 const CUDA_KERNEL_NODE_PARAMS *nodeParams) {
    return add_kernel(__func__, phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
}

CUresult cuGraphGetNodes(CUgraph hGraph, CUgraphNode *nodes, size_t *numNodes) {
    return with_graph(__func__, hGraph, [&](Call &, const std::shared_ptr<Graph> &graph) {
        std::vector<CUgraphNode> found;
        for (const GraphStep &step : graph->steps) {
            found.push_back(step.node->handle);
        }
        return list_nodes(found, nodes, numNodes);
    });
}

CUresult cuGraphGetRootNodes(CUgraph hGraph, CUgraphNode *rootNodes, size_t *numRootNodes) {
    return with_graph(__func__, hGraph, [&](Call &, const std::shared_ptr<Graph> &graph) {
        std::vector<CUgraphNode> found;
        for (const GraphStep &step : graph->steps) {
            if (step.after.empty()) {
                found.push_back(step.node->handle);
            }
        }
        return list_nodes(found, rootNodes, numRootNodes);
    });
}

CUresult cuGraphNodeGetDependencies(CUgraphNode hNode, CUgraphNode *dependencies,
                                    size_t *numDependencies) {
    return initialized(__func__, [&](Call &call) {
        std::shared_ptr<Graph> graph;
        size_t index = 0;
        const GraphStep *step = step_of(call.driver, hNode, graph, index);
        if (step == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        std::vector<CUgraphNode> found;
        for (const size_t earlier : step->after) {
            found.push_back(graph->steps[earlier].node->handle);
        }
        return list_nodes(found, dependencies, numDependencies);
    });
}

CUresult cuGraphNodeGetType(CUgraphNode hNode, CUgraphNodeType *type) {
    return initialized(__func__, [&](Call &call) {
        std::shared_ptr<Graph> graph;
        size_t index = 0;
        const GraphStep *step = step_of(call.driver, hNode, graph, index);
        if (step == nullptr || type == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        *type = step->operation.type;
        return CUDA_SUCCESS;
    });
}

CUresult cuGraphKernelNodeGetParams(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams) {
    return get_parameters(__func__, hNode, nodeParams);
}

CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS *nodeParams) {
    return get_parameters(__func__, hNode, nodeParams);
}

CUresult cuGraphKernelNodeSetParams(CUgraphNode hNode,
                                    const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams) {
    return set_parameters(__func__, hNode, nodeParams);
}

CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode hNode,
                                       const CUDA_KERNEL_NODE_PARAMS *nodeParams) {
    return set_parameters(__func__, hNode, nodeParams);
}

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                        const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams) {
    return set_exec_parameters(__func__, hGraphExec, hNode, nodeParams);
}

CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec hGraphExec, CUgraphNode hNode,
                                           const CUDA_KERNEL_NODE_PARAMS *nodeParams) {
    return set_exec_parameters(__func__, hGraphExec, hNode, nodeParams);
}
