// Functions shared by the entry points for graphs, their nodes and user objects.
#pragma once

#include "operations.h"

namespace cuda_sim {

template <class Body> CUresult with_graph(const char *name, CUgraph handle, Body body) {
    return initialized(name, [&](Call &call) {
        const std::shared_ptr<Graph> graph = call.driver.graphs.find(handle);
        if (graph == nullptr) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        name_nodes(call.driver, graph); // a capture adds nodes that nobody has seen yet
        return body(call, graph);
    });
}

template <class Body> CUresult with_exec(const char *name, CUgraphExec handle, Body body) {
    return in_context(name, [&](Call &call) {
        const std::shared_ptr<GraphExec> exec = call.driver.graph_execs.find(handle);
        return exec == nullptr ? CUDA_ERROR_INVALID_VALUE : body(call, *exec);
    });
}

// The step that a node's handle names, the step's graph, and its index in the graph; null for a
// stale handle.
GraphStep *step_of(Driver &driver, CUgraphNode handle, std::shared_ptr<Graph> &graph,
                   size_t &index);

template <class Body> CUresult with_node(const char *name, CUgraphNode handle, Body body) {
    return initialized(name, [&](Call &call) {
        std::shared_ptr<Graph> graph;
        size_t index = 0;
        GraphStep *const step = step_of(call.driver, handle, graph, index);
        return step == nullptr ? CUDA_ERROR_INVALID_VALUE : body(call, graph, index, *step);
    });
}

// The step of an executable graph for a node of its source graph.
template <class Body>
CUresult with_exec_step(const char *name, CUgraphExec handle, CUgraphNode node, Body body) {
    return with_exec(name, handle, [&](Call &call, GraphExec &exec) {
        std::shared_ptr<Graph> graph;
        size_t index = 0;
        const GraphStep *const step = step_of(call.driver, node, graph, index);
        const bool known = step != nullptr && graph == exec.source && index < exec.steps.size();
        return known ? body(call, exec.steps[index]) : CUDA_ERROR_INVALID_VALUE;
    });
}

// Finds the steps of this graph's node handles; false when a handle names no step.
bool find_steps(Driver &driver, const std::shared_ptr<Graph> &graph, const CUgraphNode *nodes,
                size_t count, std::vector<size_t> &found);

// Checks that dependencies have only default data; a null pointer also means default data.
CUresult check_edges(const CUgraphEdgeData *edges, size_t count);

CUresult add_step(Call &call, const std::shared_ptr<Graph> &graph, CUgraphNode *handle,
                  const CUgraphNode *dependencies, size_t count, Operation operation);

// Copies a graph; the copy shares only kernels' modules and events with the graph. The copy and
// its nodes have no handles yet.
std::shared_ptr<Graph> copy_of(const std::shared_ptr<Graph> &graph);

// Whether two graphs have the same types of nodes in the same order, embedded graphs included.
bool same_shape(const std::vector<GraphStep> &left, const std::vector<GraphStep> &right);

// Gives handles to an embedded graph and to its nodes and graphs.
void name_embedded(Driver &driver, const std::shared_ptr<Graph> &graph);

// Removes the handles inside a step or a graph.
void forget_step(Driver &driver, GraphStep &step);
void forget_graph(Driver &driver, Graph &graph);

unsigned next_graph_id();

// Drops references and returns the objects to destroy. The caller must destroy them without the
// lock.
std::vector<std::shared_ptr<UserObject>> drop(Driver &driver, const UserReferences &references);

// Releases the lock and destroys the objects; the entry point must then return.
void destroy_unlocked(Call &call, const std::vector<std::shared_ptr<UserObject>> &dead);

} // namespace cuda_sim
