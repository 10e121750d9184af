// Operations that streams run and graphs record, and the graphs themselves.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "../engine/capture.h"
#include "objects.h"

namespace cuda_sim {

// A launch with its parameters copied.
struct KernelCall {
    std::shared_ptr<Function> function;
    sim::LaunchShape shape;
    std::vector<unsigned char> parameters;
};

// Parameters that a query of a node returns; not for kernels and graphs.
struct NodeDetails {
    CUgraphNodeParams parameters = {};
    std::vector<CUstreamBatchMemOpParams> memory_operations;
};

// An operation of a stream or a graph. The type decides which member describes the operation:
// `kernel`, `event`, `child` or `work`.
struct Operation {
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    std::shared_ptr<KernelCall> kernel;
    std::shared_ptr<Event> event;
    std::shared_ptr<Graph> child;
    std::function<sim::Status()> work;
    std::shared_ptr<NodeDetails> details; // only with `work`
    bool calls_back = false;
};

struct GraphNode {
    CUgraphNode handle = nullptr;
    std::weak_ptr<Graph> graph;
    size_t index = 0;
};

struct GraphStep {
    Operation operation;
    std::vector<size_t> after; // indices of the steps it waits for
    std::shared_ptr<GraphNode> node;
    std::vector<void *> parameter_pointers; // the result of a query of a kernel node
    bool removed = false;                   // its node was destroyed
    bool enabled = true;                    // in an executable graph
};

// An object of the program that a graph keeps alive.
struct UserObject {
    CUuserObject handle = nullptr;
    void *data = nullptr;
    CUhostFn destroy = nullptr;
    unsigned references = 0;
};

using UserReferences = std::map<std::shared_ptr<UserObject>, unsigned>;

struct Graph {
    CUgraph handle = nullptr; // null: part of an executable graph
    unsigned id = 0;
    std::vector<GraphStep> steps;
    UserReferences user_objects;
    std::weak_ptr<Capture> capture;      // capture that adds to it
    std::weak_ptr<const Graph> original; // graph that it was cloned from
    bool embedded = false;               // belongs to a node
};

struct GraphExec {
    CUgraphExec handle = nullptr;
    unsigned id = 0;
    std::shared_ptr<Context> context;
    std::shared_ptr<Graph> source; // its nodes' handles name the steps
    std::vector<GraphStep> steps;
    UserReferences user_objects;
    cuuint64_t flags = 0;
    sim::Point last_launch; // orders launches of one executable graph
};

struct Capture : sim::CaptureState<Stream, Graph> {
    bool into_given = false;           // the program owns the graph, which stays valid
    std::vector<CUgraphNode> answered; // result of the last query of dependencies
    std::vector<CUgraphEdgeData> answered_edges;
};

} // namespace cuda_sim
