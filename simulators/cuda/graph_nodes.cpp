// The nodes of graphs and their dependencies. node_parameters.cpp has the nodes' parameters.
#include <algorithm>

#include "graph_calls.h"

using namespace cuda_sim;

namespace {

// Copies as much of a list of handles as fits: `*count` is the capacity, then the number copied.
CUresult list_nodes(const std::vector<CUgraphNode> &found, CUgraphNode *nodes, size_t *count) {
    if (count == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (nodes == nullptr) {
        *count = found.size();
        return CUDA_SUCCESS;
    }
    for (size_t index = 0; index < *count; ++index) {
        nodes[index] = index < found.size() ? found[index] : nullptr;
    }
    *count = std::min(*count, found.size());
    return CUDA_SUCCESS;
}

// Copies the first `*count` nodes of a list, and the data of their dependencies.
CUresult list_nodes(const std::vector<CUgraphNode> &found, CUgraphNode *nodes,
                    CUgraphEdgeData *edges, size_t *count) {
    if (nodes == nullptr && edges != nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const CUresult result = list_nodes(found, nodes, count);
    if (result == CUDA_SUCCESS && edges != nullptr) {
        std::fill_n(edges, *count, CUgraphEdgeData{});
    }
    return result;
}

bool waits_for(const GraphStep &step, size_t earlier) {
    return std::find(step.after.begin(), step.after.end(), earlier) != step.after.end();
}

std::vector<CUgraphNode> dependencies_of(const Graph &graph, const GraphStep &step) {
    std::vector<CUgraphNode> found;
    for (const size_t earlier : step.after) {
        found.push_back(graph.steps[earlier].node->handle);
    }
    return found;
}

std::vector<CUgraphNode> dependents_of(const Graph &graph, size_t index) {
    std::vector<CUgraphNode> found;
    for (const GraphStep &step : graph.steps) {
        if (!step.removed && waits_for(step, index)) {
            found.push_back(step.node->handle);
        }
    }
    return found;
}

CUresult list_edges(const char *name, CUgraph handle, CUgraphNode *from, CUgraphNode *to,
                    CUgraphEdgeData *data, size_t *count) {
    return with_graph(name, handle, [&](Call &, const std::shared_ptr<Graph> &graph) {
        std::vector<CUgraphNode> sources;
        std::vector<CUgraphNode> targets;
        for (const GraphStep &step : graph->steps) {
            for (const size_t earlier : step.after) {
                sources.push_back(graph->steps[earlier].node->handle);
                targets.push_back(step.node->handle);
            }
        }
        if (count == nullptr || (from == nullptr) != (to == nullptr)) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        size_t room = *count;
        list_nodes(targets, to, &room);
        return list_nodes(sources, from, data, count);
    });
}

CUresult change_dependencies(const char *name, CUgraph handle, const CUgraphNode *from,
                             const CUgraphNode *to, const CUgraphEdgeData *data, size_t count,
                             bool add) {
    return with_graph(name, handle, [&](Call &call, const std::shared_ptr<Graph> &graph) {
        std::vector<size_t> sources;
        std::vector<size_t> targets;
        const CUresult plain = check_edges(data, count);
        if (plain != CUDA_SUCCESS) {
            return plain;
        }
        if (!find_steps(call.driver, graph, from, count, sources) ||
            !find_steps(call.driver, graph, to, count, targets)) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        std::vector<GraphStep> changed = graph->steps;
        for (size_t index = 0; index < count; ++index) {
            auto &after = changed[targets[index]].after;
            const auto known = std::find(after.begin(), after.end(), sources[index]);
            if ((known == after.end()) != add || sources[index] == targets[index]) {
                return refuse(CUDA_ERROR_INVALID_VALUE,
                              add ? "a dependency is there already, or of a node on itself"
                                  : "there is no such dependency");
            }
            if (add) {
                after.push_back(sources[index]);
            } else {
                after.erase(known);
            }
        }
        graph->steps = std::move(changed);
        return CUDA_SUCCESS;
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

bool cuda_sim::find_steps(Driver &driver, const std::shared_ptr<Graph> &graph,
                          const CUgraphNode *nodes, size_t count, std::vector<size_t> &found) {
    if (nodes == nullptr && count != 0) {
        return false;
    }
    for (size_t position = 0; position < count; ++position) {
        std::shared_ptr<Graph> owner;
        size_t index = 0;
        if (step_of(driver, nodes[position], owner, index) == nullptr || owner != graph) {
            return false;
        }
        found.push_back(index);
    }
    return true;
}

CUresult cuda_sim::check_edges(const CUgraphEdgeData *edges, size_t count) {
    for (size_t index = 0; edges != nullptr && index < count; ++index) {
        if (edges[index].from_port != 0 || edges[index].to_port != 0 || edges[index].type != 0) {
            return refuse(CUDA_ERROR_NOT_SUPPORTED,
                          "dependencies between parts of kernels are not simulated");
        }
    }
    return CUDA_SUCCESS;
}

CUresult cuda_sim::add_step(Call &call, const std::shared_ptr<Graph> &graph, CUgraphNode *handle,
                            const CUgraphNode *dependencies, size_t count, Operation operation) {
    GraphStep step;
    step.operation = std::move(operation);
    if (handle == nullptr || !find_steps(call.driver, graph, dependencies, count, step.after)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    std::vector<size_t> once = step.after;
    std::sort(once.begin(), once.end());
    if (std::adjacent_find(once.begin(), once.end()) != once.end()) {
        return refuse(CUDA_ERROR_INVALID_VALUE, "a dependency is named twice");
    }
    if (step.operation.child != nullptr) {
        name_embedded(call.driver, step.operation.child);
    }
    graph->steps.push_back(std::move(step));
    name_nodes(call.driver, graph);
    *handle = graph->steps.back().node->handle;
    return CUDA_SUCCESS;
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

void cuda_sim::name_embedded(Driver &driver, const std::shared_ptr<Graph> &graph) {
    if (graph->handle == nullptr) {
        graph->id = next_graph_id();
        driver.graphs.add(graph);
    }
    graph->embedded = true;
    name_nodes(driver, graph);
    for (const GraphStep &step : graph->steps) {
        if (step.operation.child != nullptr) {
            name_embedded(driver, step.operation.child);
        }
    }
}

void cuda_sim::forget_step(Driver &driver, GraphStep &step) {
    if (step.node != nullptr) {
        driver.nodes.remove(step.node->handle);
    }
    if (step.operation.child != nullptr) {
        forget_graph(driver, *step.operation.child);
    }
}

void cuda_sim::forget_graph(Driver &driver, Graph &graph) {
    for (GraphStep &step : graph.steps) {
        forget_step(driver, step);
    }
    driver.graphs.remove(graph.handle);
}

CUresult cuGraphDestroyNode(CUgraphNode hNode) {
    return with_node(
        __func__, hNode,
        [&](Call &call, const std::shared_ptr<Graph> &graph, size_t index, GraphStep &step) {
            const auto capture = graph->capture.lock();
            if (capture != nullptr && !capture->streams.empty()) {
                return refuse(CUDA_ERROR_INVALID_VALUE, "a stream is capturing into this graph");
            }
            forget_step(call.driver, step);
            // The step keeps its index, because nodes and executable graphs refer to the step by
            // this index.
            step.operation = {};
            step.after.clear();
            step.removed = true;
            for (GraphStep &other : graph->steps) {
                auto &after = other.after;
                after.erase(std::remove(after.begin(), after.end(), index), after.end());
            }
            return CUDA_SUCCESS;
        });
}

CUresult cuGraphGetNodes(CUgraph hGraph, CUgraphNode *nodes, size_t *numNodes) {
    return with_graph(__func__, hGraph, [&](Call &, const std::shared_ptr<Graph> &graph) {
        std::vector<CUgraphNode> found;
        for (const GraphStep &step : graph->steps) {
            if (!step.removed) {
                found.push_back(step.node->handle);
            }
        }
        return list_nodes(found, nodes, numNodes);
    });
}

CUresult cuGraphGetRootNodes(CUgraph hGraph, CUgraphNode *rootNodes, size_t *numRootNodes) {
    return with_graph(__func__, hGraph, [&](Call &, const std::shared_ptr<Graph> &graph) {
        std::vector<CUgraphNode> found;
        for (const GraphStep &step : graph->steps) {
            if (!step.removed && step.after.empty()) {
                found.push_back(step.node->handle);
            }
        }
        return list_nodes(found, rootNodes, numRootNodes);
    });
}

CUresult cuGraphGetEdges(CUgraph hGraph, CUgraphNode *from, CUgraphNode *to, size_t *numEdges) {
    return list_edges(__func__, hGraph, from, to, nullptr, numEdges);
}

CUresult cuGraphGetEdges_v2(CUgraph hGraph, CUgraphNode *from, CUgraphNode *to,
                            CUgraphEdgeData *edgeData, size_t *numEdges) {
    return list_edges(__func__, hGraph, from, to, edgeData, numEdges);
}

CUresult cuGraphAddDependencies(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
                                size_t numDependencies) {
    return change_dependencies(__func__, hGraph, from, to, nullptr, numDependencies, true);
}

CUresult cuGraphAddDependencies_v2(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
                                   const CUgraphEdgeData *edgeData, size_t numDependencies) {
    return change_dependencies(__func__, hGraph, from, to, edgeData, numDependencies, true);
}

CUresult cuGraphRemoveDependencies(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
                                   size_t numDependencies) {
    return change_dependencies(__func__, hGraph, from, to, nullptr, numDependencies, false);
}

CUresult cuGraphRemoveDependencies_v2(CUgraph hGraph, const CUgraphNode *from,
                                      const CUgraphNode *to, const CUgraphEdgeData *edgeData,
                                      size_t numDependencies) {
    return change_dependencies(__func__, hGraph, from, to, edgeData, numDependencies, false);
}

CUresult cuGraphNodeGetDependencies_v2(CUgraphNode hNode, CUgraphNode *dependencies,
                                       CUgraphEdgeData *edgeData, size_t *numDependencies) {
    return with_node(
        __func__, hNode,
        [&](Call &, const std::shared_ptr<Graph> &graph, size_t, const GraphStep &step) {
            return list_nodes(dependencies_of(*graph, step), dependencies, edgeData,
                              numDependencies);
        });
}

CUresult cuGraphNodeGetDependencies(CUgraphNode hNode, CUgraphNode *dependencies,
                                    size_t *numDependencies) {
    return with_node(
        __func__, hNode,
        [&](Call &, const std::shared_ptr<Graph> &graph, size_t, const GraphStep &step) {
            return list_nodes(dependencies_of(*graph, step), dependencies, numDependencies);
        });
}

CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode hNode, CUgraphNode *dependentNodes,
                                         CUgraphEdgeData *edgeData, size_t *numDependentNodes) {
    return with_node(
        __func__, hNode,
        [&](Call &call, const std::shared_ptr<Graph> &graph, size_t index, const GraphStep &) {
            name_nodes(call.driver, graph);
            return list_nodes(dependents_of(*graph, index), dependentNodes, edgeData,
                              numDependentNodes);
        });
}

CUresult cuGraphNodeGetDependentNodes(CUgraphNode hNode, CUgraphNode *dependentNodes,
                                      size_t *numDependentNodes) {
    return with_node(
        __func__, hNode,
        [&](Call &call, const std::shared_ptr<Graph> &graph, size_t index, const GraphStep &) {
            name_nodes(call.driver, graph);
            return list_nodes(dependents_of(*graph, index), dependentNodes, numDependentNodes);
        });
}

CUresult cuGraphNodeGetType(CUgraphNode hNode, CUgraphNodeType *type) {
    return with_node(__func__, hNode,
                     [&](Call &, const std::shared_ptr<Graph> &, size_t, const GraphStep &step) {
                         if (type == nullptr) {
                             return CUDA_ERROR_INVALID_VALUE;
                         }
                         *type = step.operation.type;
                         return CUDA_SUCCESS;
                     });
}

CUresult cuGraphNodeGetContainingGraph(CUgraphNode hNode, CUgraph *phGraph) {
    return with_node(__func__, hNode,
                     [&](Call &, const std::shared_ptr<Graph> &graph, size_t, const GraphStep &) {
                         if (phGraph == nullptr) {
                             return CUDA_ERROR_INVALID_VALUE;
                         }
                         *phGraph = graph->handle;
                         return CUDA_SUCCESS;
                     });
}

CUresult cuGraphNodeGetLocalId(CUgraphNode hNode, unsigned int *nodeId) {
    return with_node(__func__, hNode,
                     [&](Call &, const std::shared_ptr<Graph> &, size_t index, const GraphStep &) {
                         if (nodeId == nullptr) {
                             return CUDA_ERROR_INVALID_VALUE;
                         }
                         *nodeId = static_cast<unsigned>(index);
                         return CUDA_SUCCESS;
                     });
}

CUresult cuGraphNodeGetToolsId(CUgraphNode hNode, unsigned long long *toolsNodeId) {
    return with_node(
        __func__, hNode,
        [&](Call &, const std::shared_ptr<Graph> &graph, size_t index, const GraphStep &) {
            if (toolsNodeId == nullptr) {
                return CUDA_ERROR_INVALID_VALUE;
            }
            *toolsNodeId = uint64_t{graph->id} << 32 | index;
            return CUDA_SUCCESS;
        });
}
