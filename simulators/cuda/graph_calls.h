// What the entry points for graphs, their nodes and user objects share.
#pragma once

#include "operations.h"

namespace cuda_sim {

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

// The step that a node's handle names, its graph and its place there; null for a stale handle.
GraphStep *step_of(Driver &driver, CUgraphNode handle, std::shared_ptr<Graph> &graph,
                   size_t &index);

// Takes references away and returns what is to be destroyed, which must happen without the lock.
std::vector<std::shared_ptr<UserObject>> drop(Driver &driver, const UserReferences &references);

// Gives up the lock and destroys them; the call may do nothing after it.
void destroy_unlocked(Call &call, const std::vector<std::shared_ptr<UserObject>> &dead);

} // namespace cuda_sim
