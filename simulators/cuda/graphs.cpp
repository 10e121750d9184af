// Graphs: made by capture or node by node, instantiated, updated and launched.
#include <algorithm>
#include <cstdio>

#include "kernel_work.h"
#include "operations.h"

using namespace cuda_sim;

namespace {

constexpr cuuint64_t instantiate_flags =
    CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD | 8;

template <class Body> CUresult with_graph(const char *name, CUgraph handle, Body body) {
    return initialized(name, [&](Call &call) {
        const std::shared_ptr<Graph> graph = call.driver.graphs.find(handle);
        return graph == nullptr ? CUDA_ERROR_INVALID_VALUE : body(call, graph);
    });
}

template <class Body> CUresult with_exec(const char *name, CUgraphExec handle, Body body) {
    return in_context(name, [&](Call &call) {
        const std::shared_ptr<GraphExec> exec = call.driver.graph_execs.find(handle);
        return exec == nullptr ? CUDA_ERROR_INVALID_VALUE : body(call, *exec);
    });
}

GraphStep *step_of(Driver &driver, CUgraphNode handle, std::shared_ptr<Graph> &graph,
                   size_t &index) {
    const std::shared_ptr<GraphNode> node = driver.nodes.find(handle);
    graph = node == nullptr ? nullptr : node->graph.lock();
    if (graph == nullptr) {
        return nullptr;
    }
    index = node->index;
    return &graph->steps[index];
}

// Takes references away and returns what is to be destroyed, which must happen without the lock.
std::vector<std::shared_ptr<UserObject>> drop(Driver &driver, const UserReferences &references) {
    std::vector<std::shared_ptr<UserObject>> dead;
    for (const auto &[object, count] : references) {
        object->references -= std::min(object->references, count);
        if (object->references == 0) {
            driver.user_objects.remove(object->handle);
            dead.push_back(object);
        }
    }
    return dead;
}

void destroy_unlocked(Call &call, const std::vector<std::shared_ptr<UserObject>> &dead) {
    call.lock.unlock();
    for (const auto &object : dead) {
        object->destroy(object->data);
    }
}

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

CUresult instantiate(Call &call, CUgraphExec *handle, const std::shared_ptr<Graph> &graph,
                     cuuint64_t flags) {
    if (handle == nullptr || (flags & ~instantiate_flags) != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const auto exec = std::make_shared<GraphExec>();
    exec->context = call.context;
    exec->source = graph;
    exec->steps = graph->steps;
    exec->user_objects = graph->user_objects;
    exec->flags = flags;
    for (const auto &[object, count] : exec->user_objects) {
        object->references += count;
    }
    *handle = call.driver.graph_execs.add(exec);
    return CUDA_SUCCESS;
}

CUresult launch(Call &call, GraphExec &exec, Stream &stream) {
    std::vector<bool> done(exec.steps.size(), false);
    for (size_t left = exec.steps.size(); left != 0; --left) {
        // Steps that wait for nothing may run in any order; the schedule picks one.
        std::vector<size_t> ready;
        for (size_t index = 0; index < exec.steps.size(); ++index) {
            const auto &after = exec.steps[index].after;
            const bool free = std::all_of(after.begin(), after.end(),
                                          [&](size_t earlier) { return done[earlier]; });
            if (free && !done[index]) {
                ready.push_back(index);
            }
        }
        const size_t next = ready[call.driver.scheduler.choose(ready.size())];
        done[next] = true;
        const CUresult result =
            enqueue(call, stream, exec.steps[next].operation, {exec.last_launch});
        if (result != CUDA_SUCCESS) {
            return result;
        }
    }
    if (stream.capture == nullptr) {
        exec.last_launch = {stream.queue, stream.queue->submitted};
    }
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
    const std::shared_ptr<Function> function = function_of(call, handle);
    if (function == nullptr) {
        return CUDA_ERROR_INVALID_HANDLE;
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

CUresult cuGraphCreate(CUgraph *phGraph, unsigned int flags) {
    return initialized(__func__, [&](Call &call) {
        if (phGraph == nullptr || flags != 0) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        *phGraph = call.driver.graphs.add(std::make_shared<Graph>());
        return CUDA_SUCCESS;
    });
}

CUresult cuGraphDestroy(CUgraph hGraph) {
    return with_graph(__func__, hGraph, [&](Call &call, const std::shared_ptr<Graph> &graph) {
        for (const GraphStep &step : graph->steps) {
            call.driver.nodes.remove(step.node->handle);
        }
        call.driver.graphs.remove(hGraph);
        destroy_unlocked(call, drop(call.driver, graph->user_objects));
        return CUDA_SUCCESS;
    });
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

CUresult cuGraphDebugDotPrint(CUgraph hGraph, const char *path, unsigned int flags) {
    (void)flags;
    return with_graph(__func__, hGraph, [&](Call &, const std::shared_ptr<Graph> &graph) {
        std::FILE *file = path == nullptr ? nullptr : std::fopen(path, "w");
        if (file == nullptr) {
            return CUDA_ERROR_OPERATING_SYSTEM;
        }
        std::fputs("digraph {\n", file);
        for (size_t index = 0; index < graph->steps.size(); ++index) {
            const GraphStep &step = graph->steps[index];
            const char *label = step.operation.kernel == nullptr
                                    ? "operation"
                                    : step.operation.kernel->function->entry->kernel.entry.c_str();
            std::fprintf(file, "  %zu [label=\"%s\"];\n", index, label);
            for (const size_t earlier : step.after) {
                std::fprintf(file, "  %zu -> %zu;\n", earlier, index);
            }
        }
        std::fputs("}\n", file);
        std::fclose(file);
        return CUDA_SUCCESS;
    });
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *phGraphExec, CUgraph hGraph,
                                     unsigned long long flags) {
    return in_context(__func__, [&](Call &call) {
        const std::shared_ptr<Graph> graph = call.driver.graphs.find(hGraph);
        return graph == nullptr ? CUDA_ERROR_INVALID_VALUE
                                : instantiate(call, phGraphExec, graph, flags);
    });
}

CUresult cuGraphInstantiate_v2(CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode,
                               char *logBuffer, size_t bufferSize) {
    if (phErrorNode != nullptr) {
        *phErrorNode = nullptr;
    }
    if (logBuffer != nullptr && bufferSize != 0) {
        *logBuffer = 0;
    }
    return cuGraphInstantiateWithFlags(phGraphExec, hGraph, 0);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *phGraphExec, CUgraph hGraph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams) {
    if (instantiateParams == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const CUresult result =
        cuGraphInstantiateWithFlags(phGraphExec, hGraph, instantiateParams->flags);
    instantiateParams->hErrNode_out = nullptr;
    instantiateParams->result_out =
        result == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
    return result;
}

CUresult cuGraphExecGetFlags(CUgraphExec hGraphExec, cuuint64_t *flags) {
    return with_exec(__func__, hGraphExec, [&](Call &, GraphExec &exec) {
        *flags = exec.flags;
        return CUDA_SUCCESS;
    });
}

CUresult cuGraphExecDestroy(CUgraphExec hGraphExec) {
    return with_exec(__func__, hGraphExec, [&](Call &call, GraphExec &exec) {
        const UserReferences references = std::move(exec.user_objects);
        const sim::Point last = exec.last_launch;
        call.driver.graph_execs.remove(hGraphExec);
        if (!references.empty()) {
            // What launches still use is destroyed after them.
            call.driver.scheduler.wait(call.lock, {last});
        }
        destroy_unlocked(call, drop(call.driver, references));
        return CUDA_SUCCESS;
    });
}

CUresult cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph,
                              CUgraphExecUpdateResultInfo *resultInfo) {
    return with_exec(__func__, hGraphExec, [&](Call &call, GraphExec &exec) {
        const std::shared_ptr<Graph> graph = call.driver.graphs.find(hGraph);
        if (graph == nullptr || resultInfo == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        const bool same =
            std::equal(exec.steps.begin(), exec.steps.end(), graph->steps.begin(),
                       graph->steps.end(), [](const GraphStep &left, const GraphStep &right) {
                           return left.operation.type == right.operation.type &&
                                  left.after == right.after;
                       });
        *resultInfo = {same ? CU_GRAPH_EXEC_UPDATE_SUCCESS
                            : CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED,
                       nullptr, nullptr};
        if (!same) {
            return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
        }
        for (size_t index = 0; index < exec.steps.size(); ++index) {
            exec.steps[index].operation = graph->steps[index].operation;
        }
        return CUDA_SUCCESS;
    });
}

CUresult cuGraphUpload(CUgraphExec hGraph, CUstream hStream) {
    return with_exec(__func__, hGraph, [&](Call &call, GraphExec &) {
        return stream_of(call, hStream) == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
    });
}

CUresult cuGraphLaunch(CUgraphExec hGraph, CUstream hStream) {
    return with_exec(__func__, hGraph, [&](Call &call, GraphExec &exec) {
        const std::shared_ptr<Stream> stream = stream_of(call, hStream);
        return stream == nullptr ? CUDA_ERROR_INVALID_HANDLE : launch(call, exec, *stream);
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

CUresult cuUserObjectCreate(CUuserObject *object_out, void *ptr, CUhostFn destroy,
                            unsigned int initialRefcount, unsigned int flags) {
    (void)flags;
    return initialized(__func__, [&](Call &call) {
        if (object_out == nullptr || destroy == nullptr || initialRefcount == 0) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        const auto object = std::make_shared<UserObject>();
        object->data = ptr;
        object->destroy = destroy;
        object->references = initialRefcount;
        *object_out = call.driver.user_objects.add(object);
        return CUDA_SUCCESS;
    });
}

CUresult cuUserObjectRetain(CUuserObject object, unsigned int count) {
    return initialized(__func__, [&](Call &call) {
        const std::shared_ptr<UserObject> found = call.driver.user_objects.find(object);
        if (found == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        found->references += count;
        return CUDA_SUCCESS;
    });
}

CUresult cuUserObjectRelease(CUuserObject object, unsigned int count) {
    return initialized(__func__, [&](Call &call) {
        const std::shared_ptr<UserObject> found = call.driver.user_objects.find(object);
        if (found == nullptr || count > found->references) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        destroy_unlocked(call, drop(call.driver, {{found, count}}));
        return CUDA_SUCCESS;
    });
}

CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int count,
                                 unsigned int flags) {
    constexpr unsigned move = 1;
    return with_graph(__func__, graph, [&](Call &call, const std::shared_ptr<Graph> &found) {
        const std::shared_ptr<UserObject> user = call.driver.user_objects.find(object);
        if (user == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        user->references += flags == move ? 0 : count;
        found->user_objects[user] += count;
        return CUDA_SUCCESS;
    });
}

CUresult cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned int count) {
    return with_graph(__func__, graph, [&](Call &call, const std::shared_ptr<Graph> &found) {
        const std::shared_ptr<UserObject> user = call.driver.user_objects.find(object);
        const auto held = found->user_objects.find(user);
        if (held == found->user_objects.end() || held->second < count) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        held->second -= count;
        if (held->second == 0) {
            found->user_objects.erase(held);
        }
        destroy_unlocked(call, drop(call.driver, {{user, count}}));
        return CUDA_SUCCESS;
    });
}
