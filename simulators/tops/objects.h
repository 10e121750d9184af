// The objects behind TopsRuntime's handles. The scheduler's mutex guards all of them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "../engine/capture.h"
#include "../engine/device.h"
#include "../engine/executor.h"
#include "../engine/queue.h"
#include "../images/topsfb.h"
#include "profile.h"

// The library exports the declarations of the ABI headers.
#pragma GCC visibility push(default)
#include "wider_abi.h"
#pragma GCC visibility pop

namespace tops_sim {

struct Capture;
struct DeviceState;
struct Module;

struct Stream {
    enum class Kind { null, blocking, non_blocking };

    bool is_default() const { return kind == Kind::null; }
    bool is_blocking() const { return kind == Kind::blocking; }

    Kind kind = Kind::blocking;
    bool implicit = false; // the null stream or a thread's own: never created, never destroyed
    topsStream_t handle = nullptr;
    DeviceState *device = nullptr;
    std::shared_ptr<sim::Queue> queue;
    std::shared_ptr<Capture> capture; // null when the stream is not capturing
    bool capture_origin = false;
    std::vector<size_t> capture_ends; // predecessors of the next captured operation
    size_t limit_clusters = 0;        // for its launches; 0: none set
    size_t limit_sips = 0;
};

// Time at which an event's latest record was reached.
struct Stamp {
    bool reached = false;
    int64_t nanoseconds = 0;
};

struct Event {
    topsEvent_t handle = nullptr;
    unsigned flags = 0;
    DeviceState *device = nullptr;
    std::vector<sim::Point> points; // all of them make up the latest record; none: never recorded
    std::shared_ptr<Stamp> stamp;
    std::shared_ptr<Capture> capture; // the latest record was captured, not queued
    std::vector<size_t> capture_ends;
};

struct Function {
    topsFunction_t handle = nullptr;
    std::shared_ptr<Module> module;
    const sim::GcuEntry *entry = nullptr;
    std::unique_ptr<sim::Executable> executable;
};

struct Module {
    topsModule_t handle = nullptr;
    DeviceState *device = nullptr;
    sim::GcuImage image;
    std::unique_ptr<sim::ExecutableModule> executable;
    std::map<std::string, std::shared_ptr<Function>> functions;
    std::map<std::string, uint64_t> variables; // pointers given out
};

// A launch with its parameters copied.
struct KernelCall {
    std::shared_ptr<Function> function;
    sim::LaunchShape shape;
    std::vector<unsigned char> parameters;
};

struct Operation {
    std::function<sim::Status()> work; // for everything but kernels
    std::shared_ptr<KernelCall> kernel;
    bool calls_back = false;
};

struct GraphStep {
    Operation operation;
    std::vector<size_t> after; // indices of earlier steps
};

struct Graph {
    topsGraph_t handle = nullptr;
    std::vector<GraphStep> steps; // each comes after earlier steps only
    std::weak_ptr<Capture> capture;
};

struct GraphExec {
    topsGraphExec_t handle = nullptr;
    DeviceState *device = nullptr;
    std::vector<GraphStep> steps;
    sim::Point last_launch; // orders launches of one executable graph
};

struct Capture : sim::CaptureState<Stream, Graph> {};

struct Pool {
    topsMemPool_t handle = nullptr;
    DeviceState *device = nullptr;
};

struct DeviceState {
    DeviceState(int ordinal, uint64_t bytes, const Profile &device_profile)
        : device(ordinal, bytes), profile(device_profile) {}

    sim::Device device;
    const Profile &profile;
    std::shared_ptr<Pool> pool;
    std::shared_ptr<Stream> null_stream;
    std::map<std::thread::id, std::shared_ptr<Stream>> per_thread;
    std::vector<std::shared_ptr<sim::Queue>> blocking; // queues that the null stream waits for
};

} // namespace tops_sim
