// The simulated HSA runtime as a whole: its agents, its tables of handles and its settings.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "../engine/host_kernels.h"
#include "../engine/instruments.h"
#include "callbacks.h"
#include "fences.h"
#include "handles.h"
#include "processor.h"
#include "queue.h"
#include "ranges.h"

namespace hsa_sim {

struct EventHandler {
    hsa_amd_system_event_callback_t function;
    void *data;
};

class Runtime {
  public:
    // Creates the runtime at the first call. The runtime is never destroyed, because its threads
    // may outlive static objects.
    static Runtime &get();

    // Error in the environment's settings; empty when there is none.
    const std::string &complaint() const { return complaint_; }

    std::shared_ptr<Queue> find_queue(const hsa_queue_t *queue) const;
    Agent *find_agent(hsa_agent_t handle) const;
    std::shared_ptr<Pool> find_pool(uint64_t handle) const;
    std::shared_ptr<Isa> find_isa(hsa_isa_t handle) const;
    Agent &cpu() const { return *agents.front(); }

    // The kernel whose descriptor is at the address; null when there is none.
    std::shared_ptr<Symbol> find_kernel(uint64_t address) const;

    void destroy_queue(Lock &lock, const std::shared_ptr<Queue> &queue);
    void destroy_executable(const std::shared_ptr<Executable> &executable);
    // Destroys everything the program has made.
    void shut_down(Lock &lock);

    // Frees an allocation of a pool.
    hsa_status_t free_memory(uint64_t address);

    // Number of live objects of a kind; -1 for an unknown kind.
    long live(const std::string &kind);

  private:
    // Declared first, because later members report to it.
    std::string complaint_;

  public:
    std::mutex mutex;
    unsigned references = 0; // hsa_init less hsa_shut_down
    sim::Instruments instruments;
    sim::HostKernels host_kernels;
    std::vector<std::unique_ptr<Agent>> agents; // the CPU first
    Ranges ranges;
    Fences fences;
    Callbacks callbacks;
    Processor processor;
    const bool integrated; // the GPUs have no memory of their own
    std::vector<EventHandler> event_handlers;
    bool copies_profiled = false;
    std::string fault_words; // text of the latest queue error or memory fault

    Handles<Signal> signals{0x21};
    Handles<CodeObjectReader> readers{0x22};
    Handles<Executable> executables{0x23};
    Handles<Symbol> symbols{0x24};
    std::map<const hsa_queue_t *, std::shared_ptr<Queue>> queues;
    std::map<uint64_t, std::shared_ptr<Symbol>> kernels; // by address of their descriptors
    uint64_t last_queue_id = 0;

  private:
    Runtime();
    void add_cpu();
    void add_gpus();
    void add_memory_of(Agent &gpu, uint64_t bytes, bool linked);
    void add_pool(Agent &agent, hsa_amd_segment_t segment, uint32_t flags, uint64_t bytes);
    void add_isa(Agent &agent, const sim::AmdTarget &target);
};

// The system's clock, in ticks.
constexpr uint64_t ticks_per_second = 100000000;
uint64_t now();

} // namespace hsa_sim
