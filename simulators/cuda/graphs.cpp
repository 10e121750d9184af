// Graphs as wholes: instantiated, updated, launched. Their nodes are in graph_nodes.cpp.
#include <algorithm>
#include <cstdio>

#include "graph_calls.h"

using namespace cuda_sim;

namespace {

constexpr cuuint64_t instantiate_flags =
    CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD | 8;

constexpr cuuint64_t instantiate_for_device = 4;

bool is_ready(const GraphStep &step, const std::vector<bool> &done) {
    return std::all_of(step.after.begin(), step.after.end(),
                       [&](size_t earlier) { return done[earlier]; });
}

// Whether the steps have an order: no steps wait for each other in a circle.
bool has_order(const Graph &graph) {
    const std::vector<GraphStep> &steps = graph.steps;
    std::vector<bool> done(steps.size(), false);
    for (bool more = true; more;) {
        more = false;
        for (size_t index = 0; index < steps.size(); ++index) {
            if (!done[index] && is_ready(steps[index], done)) {
                more = done[index] = true;
            }
        }
    }
    return std::all_of(done.begin(), done.end(), [](bool yes) { return yes; }) &&
           std::all_of(steps.begin(), steps.end(), [](const GraphStep &step) {
               return step.operation.child == nullptr || has_order(*step.operation.child);
           });
}

CUresult instantiate(Call &call, CUgraphExec *handle, const std::shared_ptr<Graph> &graph,
                     cuuint64_t flags) {
    if ((flags & instantiate_for_device) != 0) {
        return refuse(CUDA_ERROR_NOT_SUPPORTED, "a simulated device cannot launch graphs itself");
    }
    if (handle == nullptr || (flags & ~instantiate_flags) != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const auto capture = graph->capture.lock();
    if (capture != nullptr && !capture->streams.empty()) {
        return refuse(CUDA_ERROR_INVALID_VALUE, "a stream is still capturing into this graph");
    }
    const std::shared_ptr<Graph> copy = copy_of(graph);
    if (!has_order(*copy)) {
        return refuse(CUDA_ERROR_INVALID_VALUE,
                      "nodes of this graph wait for each other in a circle");
    }
    const auto exec = std::make_shared<GraphExec>();
    exec->id = next_graph_id();
    exec->context = call.context;
    exec->source = graph;
    exec->steps = std::move(copy->steps);
    exec->user_objects = graph->user_objects;
    exec->flags = flags;
    for (const auto &[object, count] : exec->user_objects) {
        object->references += count;
    }
    *handle = call.driver.graph_execs.add(exec);
    return CUDA_SUCCESS;
}

// Finds the copy of a graph, or of a graph embedded in it, inside a clone; null if there is none.
const Graph *find_copy(const Graph &clone, const Graph *original) {
    if (clone.original.lock().get() == original) {
        return &clone;
    }
    for (const GraphStep &step : clone.steps) {
        const Graph *const found =
            step.operation.child == nullptr ? nullptr : find_copy(*step.operation.child, original);
        if (found != nullptr) {
            return found;
        }
    }
    return nullptr;
}

CUresult launch_steps(Call &call, GraphExec &exec, const std::vector<GraphStep> &steps,
                      Stream &stream);

CUresult launch_step(Call &call, GraphExec &exec, const GraphStep &step, Stream &stream) {
    const Operation &operation = step.operation;
    if (step.removed || !step.enabled) {
        return CUDA_SUCCESS;
    }
    if (operation.child != nullptr) {
        return launch_steps(call, exec, operation.child->steps, stream);
    }
    if (operation.event == nullptr || stream.capture != nullptr) {
        return enqueue(call, stream, operation, {exec.last_launch});
    }
    if (operation.type == CU_GRAPH_NODE_TYPE_EVENT_RECORD) {
        return record_event(call, stream, *operation.event);
    }
    wait_for_event(call, stream, *operation.event);
    return CUDA_SUCCESS;
}

CUresult launch_steps(Call &call, GraphExec &exec, const std::vector<GraphStep> &steps,
                      Stream &stream) {
    std::vector<bool> done(steps.size(), false);
    for (size_t left = steps.size(); left != 0; --left) {
        // Steps that wait for nothing may run in any order; the schedule chooses the order.
        std::vector<size_t> ready;
        for (size_t index = 0; index < steps.size(); ++index) {
            if (!done[index] && is_ready(steps[index], done)) {
                ready.push_back(index);
            }
        }
        const size_t next = ready[call.driver.scheduler.choose(ready.size())];
        done[next] = true;
        const CUresult result = launch_step(call, exec, steps[next], stream);
        if (result != CUDA_SUCCESS) {
            return result;
        }
    }
    return CUDA_SUCCESS;
}

bool may_be_disabled(const GraphStep &step) {
    const CUgraphNodeType type = step.operation.type;
    return type == CU_GRAPH_NODE_TYPE_KERNEL || type == CU_GRAPH_NODE_TYPE_MEMCPY ||
           type == CU_GRAPH_NODE_TYPE_MEMSET;
}

CUresult launch(Call &call, GraphExec &exec, Stream &stream) {
    const CUresult result = launch_steps(call, exec, exec.steps, stream);
    if (result == CUDA_SUCCESS && stream.capture == nullptr) {
        exec.last_launch = {stream.queue, stream.queue->submitted};
    }
    return result;
}

CUresult update(const char *name, CUgraphExec handle, CUgraph graph_handle,
                CUgraphExecUpdateResult *answer) {
    return with_exec(name, handle, [&](Call &call, GraphExec &exec) {
        const std::shared_ptr<Graph> graph = call.driver.graphs.find(graph_handle);
        if (graph == nullptr || answer == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        if (!same_shape(exec.steps, graph->steps)) {
            *answer = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
            return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
        }
        *answer = CU_GRAPH_EXEC_UPDATE_SUCCESS;
        const std::shared_ptr<Graph> copy = copy_of(graph);
        for (size_t index = 0; index < exec.steps.size(); ++index) {
            exec.steps[index].operation = copy->steps[index].operation;
        }
        return CUDA_SUCCESS;
    });
}

} // namespace

unsigned cuda_sim::next_graph_id() {
    static unsigned last = 0; // under the scheduler's lock, as all callers are
    return ++last;
}

std::shared_ptr<Graph> cuda_sim::copy_of(const std::shared_ptr<Graph> &graph) {
    const auto copy = std::make_shared<Graph>();
    copy->original = graph;
    copy->steps = graph->steps;
    for (GraphStep &step : copy->steps) {
        step.node = nullptr;
        if (step.operation.kernel != nullptr) {
            step.operation.kernel = std::make_shared<KernelCall>(*step.operation.kernel);
        }
        if (step.operation.child != nullptr) {
            step.operation.child = copy_of(step.operation.child);
        }
    }
    return copy;
}

bool cuda_sim::same_shape(const std::vector<GraphStep> &left, const std::vector<GraphStep> &right) {
    return std::equal(left.begin(), left.end(), right.begin(), right.end(),
                      [](const GraphStep &one, const GraphStep &other) {
                          const auto &child = one.operation.child;
                          return one.operation.type == other.operation.type &&
                                 one.after == other.after && one.removed == other.removed &&
                                 (child == nullptr ||
                                  same_shape(child->steps, other.operation.child->steps));
                      });
}

CUresult cuGraphCreate(CUgraph *phGraph, unsigned int flags) {
    return initialized(__func__, [&](Call &call) {
        if (phGraph == nullptr || flags != 0) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        const auto graph = std::make_shared<Graph>();
        graph->id = next_graph_id();
        *phGraph = call.driver.graphs.add(graph);
        return CUDA_SUCCESS;
    });
}

CUresult cuGraphClone(CUgraph *phGraphClone, CUgraph originalGraph) {
    return with_graph(__func__, originalGraph,
                      [&](Call &call, const std::shared_ptr<Graph> &graph) {
                          if (phGraphClone == nullptr) {
                              return CUDA_ERROR_INVALID_VALUE;
                          }
                          const std::shared_ptr<Graph> clone = copy_of(graph);
                          clone->user_objects = graph->user_objects;
                          for (const auto &[object, count] : clone->user_objects) {
                              object->references += count;
                          }
                          name_embedded(call.driver, clone);
                          clone->embedded = false;
                          *phGraphClone = clone->handle;
                          return CUDA_SUCCESS;
                      });
}

CUresult cuGraphNodeFindInClone(CUgraphNode *phNode, CUgraphNode hOriginalNode,
                                CUgraph hClonedGraph) {
    return with_node(
        __func__, hOriginalNode,
        [&](Call &call, const std::shared_ptr<Graph> &graph, size_t index, const GraphStep &) {
            const std::shared_ptr<Graph> clone = call.driver.graphs.find(hClonedGraph);
            const Graph *const part = clone == nullptr ? nullptr : find_copy(*clone, graph.get());
            if (phNode == nullptr || part == nullptr || index >= part->steps.size() ||
                part->steps[index].removed) {
                return CUDA_ERROR_INVALID_VALUE;
            }
            *phNode = part->steps[index].node->handle;
            return CUDA_SUCCESS;
        });
}

CUresult cuGraphGetId(CUgraph hGraph, unsigned int *graphId) {
    return with_graph(__func__, hGraph, [&](Call &, const std::shared_ptr<Graph> &graph) {
        if (graphId == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        *graphId = graph->id;
        return CUDA_SUCCESS;
    });
}

CUresult cuGraphDestroy(CUgraph hGraph) {
    return with_graph(__func__, hGraph, [&](Call &call, const std::shared_ptr<Graph> &graph) {
        if (graph->embedded) {
            return refuse(CUDA_ERROR_INVALID_VALUE, "the graph belongs to a node");
        }
        forget_graph(call.driver, *graph);
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
            if (step.removed) {
                continue;
            }
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

CUresult cuGraphInstantiate(CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode,
                            char *logBuffer, size_t bufferSize) {
    return cuGraphInstantiate_v2(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
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
            // Objects that launches still use are destroyed after these launches.
            call.driver.scheduler.wait(call.lock, {last});
        }
        destroy_unlocked(call, drop(call.driver, references));
        return CUDA_SUCCESS;
    });
}

CUresult cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph,
                              CUgraphExecUpdateResultInfo *resultInfo) {
    if (resultInfo != nullptr) {
        *resultInfo = {CU_GRAPH_EXEC_UPDATE_ERROR, nullptr, nullptr};
    }
    return update(__func__, hGraphExec, hGraph,
                  resultInfo == nullptr ? nullptr : &resultInfo->result);
}

CUresult cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode *hErrorNode_out,
                           CUgraphExecUpdateResult *updateResult_out) {
    if (hErrorNode_out != nullptr) {
        *hErrorNode_out = nullptr;
    }
    return update(__func__, hGraphExec, hGraph, updateResult_out);
}

CUresult cuGraphExecGetId(CUgraphExec hGraphExec, unsigned int *graphId) {
    return with_exec(__func__, hGraphExec, [&](Call &, GraphExec &exec) {
        if (graphId == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        *graphId = exec.id;
        return CUDA_SUCCESS;
    });
}

CUresult cuGraphNodeSetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int isEnabled) {
    return with_exec_step(__func__, hGraphExec, hNode, [&](Call &, GraphStep &step) {
        if (!may_be_disabled(step)) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        step.enabled = isEnabled != 0;
        return CUDA_SUCCESS;
    });
}

CUresult cuGraphNodeGetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int *isEnabled) {
    return with_exec_step(__func__, hGraphExec, hNode, [&](Call &, const GraphStep &step) {
        if (isEnabled == nullptr || !may_be_disabled(step)) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        *isEnabled = step.enabled;
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
