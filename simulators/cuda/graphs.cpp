// Graphs as wholes: instantiated, updated, launched. Their nodes are in graph_nodes.cpp.
#include <algorithm>
#include <cstdio>

#include "graph_calls.h"

using namespace cuda_sim;

namespace {

constexpr cuuint64_t instantiate_flags =
    CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD | 8;

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

} // namespace

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
        const bool same = std::equal(
            exec.steps.begin(), exec.steps.end(), graph->steps.begin(), graph->steps.end(),
            [](const GraphStep &left, const GraphStep &right) {
                return left.operation.type == right.operation.type && left.after == right.after;
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
