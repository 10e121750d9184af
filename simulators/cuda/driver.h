// The simulated CUDA driver as a whole: its devices, its tables of handles and its settings.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "../engine/handles.h"
#include "../engine/host_kernels.h"
#include "../engine/host_memory.h"
#include "../engine/instruments.h"
#include "../engine/scheduler.h"
#include "../ptx/executor/kernels.h"
#include "graph.h"
#include "objects.h"

namespace cuda_sim {

using sim::Handles;

class Driver {
  public:
    // The driver is made at the first call and never destroyed: its threads may outlive static
    // objects.
    static Driver &get();

    // Describes an invalid environment variable; empty if all are valid.
    const std::string &complaint() const { return complaint_; }

    // CUDA version, 1000 * major + 10 * minor.
    unsigned version() const { return version_; }

    DeviceState *device(int ordinal);

    std::shared_ptr<Context> make_context(DeviceState &device, unsigned flags, bool primary);
    // Waits for the context's work, then removes all its objects.
    void destroy_context(sim::Lock &lock, const std::shared_ptr<Context> &context);

    std::shared_ptr<Stream> make_stream(const std::shared_ptr<Context> &context, Stream::Kind kind);
    std::shared_ptr<Pool> make_pool(int device, bool managed = false);

    // The allocation that holds the range, on any device; null when there is none.
    sim::Allocation *find_allocation(uint64_t address, uint64_t bytes, DeviceState **owner);

    // Whether this process was forked after cuInit. Such a process has neither the threads nor the
    // devices.
    bool left_in_parent() const;

    // Number of live objects of a kind; -1 for an unknown kind.
    long live(const std::string &kind);

    pid_t initialized_in = 0; // the process that called cuInit
    std::string complaint_;
    unsigned version_ = UHAL_CUDA_NEWEST_DRIVER;
    sim::Instruments instruments;
    sim::Scheduler scheduler;
    sim::HostMemory host_memory;
    std::map<uint64_t, Managed> managed; // by its address in host memory
    // Pools of managed memory, by preferred device; each pool is made on first use.
    std::map<CUdevice, std::shared_ptr<Pool>> default_managed_pools;
    std::map<CUdevice, std::shared_ptr<Pool>> managed_pools;
    sim::HostKernels host_kernels;
    sim::PtxKernels ptx_kernels;
    // First address and serial number of memory on which synchronous operations always wait.
    std::set<std::pair<uint64_t, uint64_t>> synchronous;
    uint64_t access_changes = 0; // count of changes to peer access
    std::vector<std::unique_ptr<DeviceState>> devices;

    Handles<CUcontext, Context> contexts{0x10};
    Handles<CUstream, Stream> streams{0x11};
    Handles<CUevent, Event> events{0x12};
    Handles<CUmodule, Module> modules{0x13};
    Handles<CUfunction, Function> functions{0x14};
    Handles<CUlibrary, Library> libraries{0x15};
    Handles<CUkernel, Kernel> kernels{0x16};
    Handles<CUmemoryPool, Pool> pools{0x17};
    Handles<CUgraph, Graph> graphs{0x18};
    Handles<CUgraphNode, GraphNode> nodes{0x19};
    Handles<CUgraphExec, GraphExec> graph_execs{0x1A};
    Handles<CUuserObject, UserObject> user_objects{0x1B};
    Handles<CUlinkState, LinkState> link_states{0x1C};

  private:
    Driver();
    void add_devices();

    uint64_t last_stream_id_ = 2;
    uint64_t last_context_id_ = 0;
};

} // namespace cuda_sim
