// The objects behind HSA's handles. The runtime's mutex guards all of them.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "../engine/device.h"
#include "../engine/executor.h"
#include "../images/hsaco.h"
#include "profile.h"

// The library exports the declarations of the ABI headers.
#pragma GCC visibility push(default)
#include "wider_abi.h"
#pragma GCC visibility pop

namespace hsa_sim {

// AMD's codes belong to another enum; functions return them like HSA's codes.
constexpr auto invalid_memory_pool =
    static_cast<hsa_status_t>(HSA_STATUS_ERROR_INVALID_MEMORY_POOL);
constexpr auto memory_fault = static_cast<hsa_status_t>(HSA_STATUS_ERROR_MEMORY_FAULT);
constexpr auto not_supported = static_cast<hsa_status_t>(HSA_STATUS_ERROR_NOT_SUPPORTED);

struct Agent;
struct Queue;
struct Copy;

struct Pool {
    hsa_amd_memory_pool_t handle = {};
    Agent *agent = nullptr;
    hsa_amd_segment_t segment = HSA_AMD_SEGMENT_GLOBAL;
    uint32_t flags = 0;
    uint64_t bytes = 0;
};

struct Isa {
    hsa_isa_t handle = {};
    sim::AmdTarget target;
};

struct Agent {
    Agent(uint32_t agent_node, uint64_t bytes)
        : node(agent_node), device(static_cast<int>(agent_node), bytes) {}

    bool gpu() const { return profile != nullptr; }

    hsa_agent_t handle = {};
    const uint32_t node;
    const Profile *profile = nullptr; // null: a CPU
    sim::Device device;               // of a CPU it has no memory
    std::vector<std::shared_ptr<Pool>> pools;
    std::vector<std::shared_ptr<Isa>> isas;
    bool lost = false; // a memory fault stopped all its queues
};

// A producer will count a signal down: a packet of a queue, or a copy.
struct Producer {
    std::weak_ptr<Queue> queue;
    uint64_t packet = 0;
    std::weak_ptr<Copy> copy;
};

struct SignalHandler {
    hsa_signal_condition_t condition;
    hsa_signal_value_t compared;
    hsa_amd_signal_handler function;
    void *data;
};

struct Signal {
    hsa_signal_t handle = {};
    hsa_signal_value_t value = 0;
    std::weak_ptr<Queue> rings;      // the queue whose doorbell it is
    std::condition_variable changed; // for the program's waits
    unsigned waits = 0;              // count of the program's waits and handlers
    bool demanded = false;           // something due waits for it
    std::vector<Producer> producers; // known so far, oldest first
    std::vector<SignalHandler> handlers;
    bool timed = false; // the times below belong to its latest packet
    bool timed_copy = false;
    uint64_t start = 0; // ticks
    uint64_t end = 0;
};

struct CodeObjectReader {
    hsa_code_object_reader_t handle = {};
    const void *data = nullptr;
    uint64_t bytes = 0;
    std::vector<unsigned char> file; // content, if read from a file
};

struct Executable;

// A kernel of a loaded code object, or one of its variables.
struct Symbol {
    hsa_executable_symbol_t handle = {};
    std::string name;
    std::weak_ptr<Executable> executable;
    Agent *agent = nullptr;
    const sim::HsacoKernel *kernel = nullptr; // null: a variable
    std::vector<size_t> explicit_arguments;   // indices in the kernel's arguments, in order
    std::shared_ptr<sim::ExecutableModule> module;
    std::shared_ptr<sim::Executable> code; // null until asked for; `refusal` says why not
    std::string refusal;
    uint64_t address = 0; // of the descriptor or variable, on the device
    uint64_t bytes = 0;
};

struct LoadedObject {
    Agent *agent = nullptr;
    sim::HsacoImage image;
    std::shared_ptr<sim::ExecutableModule> module;
    std::vector<uint64_t> addresses; // device memory it takes up
};

struct Executable {
    hsa_executable_t handle = {};
    bool frozen = false;
    std::vector<std::unique_ptr<LoadedObject>> objects;
    std::vector<std::shared_ptr<Symbol>> symbols;
};

} // namespace hsa_sim
