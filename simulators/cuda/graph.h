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

// What made an operation that is neither a kernel nor a graph: a query of its node answers this.
struct NodeDetails {
    CUgraphNodeParams parameters = {};
    std::vector<CUstreamBatchMemOpParams> memory_operations;
};

// An operation of a stream or a graph. Its type decides which member describes it: a kernel, an
// event, a graph; or the work itself.
struct Operation {
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    std::shared_ptr<KernelCall> kernel;
    std::shared_ptr<Event> event;
    std::shared_ptr<Graph> child;
    std::function<sim::Status()> work;
    std::shared_ptr<NodeDetails> details; // of what has work
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
    std::vector<void *> parameter_pointers; // what a query of a kernel node answers
    bool removed = false;                   // its node was destroyed
    bool enabled = true;                    // of an executable graph
};

// A thing of the program that a graph keeps alive.
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
    std::weak_ptr<Capture> capture;      // that adds to it
    std::weak_ptr<const Graph> original; // that it was cloned from
    bool embedded = false;               // in a node, which it belongs to
};

struct GraphExec {
    CUgraphExec handle = nullptr;
    unsigned id = 0;
    std::shared_ptr<Context> context;
    std::shared_ptr<Graph> source; // the handles of its nodes name the steps
    std::vector<GraphStep> steps;
    UserReferences user_objects;
    cuuint64_t flags = 0;
    sim::Point last_launch; // launches of one executable graph follow each other
};

struct Capture : sim::CaptureState<Stream, Graph> {
    bool into_given = false;           // the graph is the program's, and stays
    std::vector<CUgraphNode> answered; // the last answer to "after which nodes"
    std::vector<CUgraphEdgeData> answered_edges;
};

} // namespace cuda_sim
