// Graphs: made by captures, instantiated and launched as wholes.
#include <algorithm>

#include "operations.h"

using namespace tops_sim;

namespace {

constexpr unsigned long long auto_free_on_launch = 1;

topsError_t instantiate(const char *name, topsGraphExec_t *handle, topsGraph_t graph_handle) {
    return on_device(name, [&](Call &call) {
        const std::shared_ptr<Graph> graph = call.runtime.graphs.find(graph_handle);
        if (graph == nullptr || handle == nullptr) {
            return topsErrorInvalidValue;
        }
        const auto exec = std::make_shared<GraphExec>();
        exec->device = call.device;
        exec->steps = graph->steps;
        *handle = call.runtime.graph_execs.add(exec);
        return topsSuccess;
    });
}

topsError_t launch(Call &call, GraphExec &exec, Stream &stream) {
    std::vector<bool> done(exec.steps.size(), false);
    for (size_t left = exec.steps.size(); left != 0; --left) {
        // Steps that wait for nothing may run in any order; the schedule chooses the order.
        std::vector<size_t> ready;
        for (size_t index = 0; index < exec.steps.size(); ++index) {
            const auto &after = exec.steps[index].after;
            const bool free = std::all_of(after.begin(), after.end(),
                                          [&](size_t earlier) { return done[earlier]; });
            if (free && !done[index]) {
                ready.push_back(index);
            }
        }
        const size_t next = ready[call.runtime.scheduler.choose(ready.size())];
        done[next] = true;
        const topsError_t result =
            enqueue(call, stream, exec.steps[next].operation, {exec.last_launch});
        if (result != topsSuccess) {
            return result;
        }
    }
    if (stream.capture == nullptr) {
        exec.last_launch = {stream.queue, stream.queue->submitted};
    }
    return topsSuccess;
}

} // namespace

topsError_t topsGraphInstantiate(topsGraphExec_t *exec, topsGraph_t graph,
                                 topsGraphNode_t *errorNode, char *logBuffer, size_t bufferSize) {
    if (errorNode != nullptr) {
        *errorNode = nullptr;
    }
    if (logBuffer != nullptr && bufferSize != 0) {
        *logBuffer = 0;
    }
    return instantiate(__func__, exec, graph);
}

topsError_t topsGraphInstantiateWithFlags(topsGraphExec_t *exec, topsGraph_t graph,
                                          unsigned long long flags) {
    return (flags & ~auto_free_on_launch) != 0 ? remember(topsErrorInvalidValue)
                                               : instantiate(__func__, exec, graph);
}

topsError_t topsGraphLaunch(topsGraphExec_t handle, topsStream_t stream_handle) {
    return on_device(__func__, [&](Call &call) {
        const std::shared_ptr<GraphExec> exec = call.runtime.graph_execs.find(handle);
        const std::shared_ptr<Stream> stream = own_stream_of(call, stream_handle);
        if (exec == nullptr || stream == nullptr || exec->device != call.device) {
            return topsErrorInvalidHandle;
        }
        return launch(call, *exec, *stream);
    });
}

topsError_t topsGraphGetNodes(topsGraph_t handle, topsGraphNode_t *nodes, size_t *numNodes) {
    return in_process(__func__, [&](Call &call) {
        const std::shared_ptr<Graph> graph = call.runtime.graphs.find(handle);
        if (graph == nullptr || numNodes == nullptr) {
            return topsErrorInvalidValue;
        }
        if (nodes != nullptr) {
            return refuse(topsErrorNotSupported, "nodes can be counted, not listed");
        }
        *numNodes = graph->steps.size();
        return topsSuccess;
    });
}

topsError_t topsGraphDestroy(topsGraph_t handle) {
    return in_process(__func__, [&](Call &call) {
        const bool known = call.runtime.graphs.find(handle) != nullptr;
        call.runtime.graphs.remove(handle);
        return known ? topsSuccess : topsErrorInvalidValue;
    });
}

topsError_t topsGraphExecDestroy(topsGraphExec_t handle) {
    return in_process(__func__, [&](Call &call) {
        const bool known = call.runtime.graph_execs.find(handle) != nullptr;
        call.runtime.graph_execs.remove(handle);
        return known ? topsSuccess : topsErrorInvalidValue;
    });
}
