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

struct Operation {
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    std::function<sim::Status()> work; // of everything but kernels
    std::shared_ptr<KernelCall> kernel;
    bool calls_back = false;
};

struct GraphNode {
    CUgraphNode handle = nullptr;
    std::weak_ptr<Graph> graph;
    size_t index = 0;
};

struct GraphStep {
    Operation operation;
    std::vector<size_t> after; // indices of earlier steps
    std::shared_ptr<GraphNode> node;
    std::vector<void *> parameter_pointers; // what a query of a kernel node answers
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
    CUgraph handle = nullptr;
    std::vector<GraphStep> steps; // each comes after earlier ones only
    UserReferences user_objects;
    std::weak_ptr<Capture> capture; // that makes it
};

struct GraphExec {
    CUgraphExec handle = nullptr;
    std::shared_ptr<Context> context;
    std::shared_ptr<Graph> source; // the handles of its nodes name the steps
    std::vector<GraphStep> steps;
    UserReferences user_objects;
    cuuint64_t flags = 0;
    sim::Point last_launch; // launches of one executable graph follow each other
};

struct Capture : sim::CaptureState<Stream, Graph> {
    std::vector<CUgraphNode> answered; // the last answer to "after which nodes"
};

} // namespace cuda_sim
