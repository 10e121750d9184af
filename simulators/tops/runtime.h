// The simulated TopsRuntime as a whole: its devices, its tables of handles and its settings.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "../engine/handles.h"
#include "../engine/host_kernels.h"
#include "../engine/host_memory.h"
#include "../engine/instruments.h"
#include "../engine/scheduler.h"
#include "objects.h"
#include "readings.h"

namespace tops_sim {

using sim::Handles;

class Runtime {
  public:
    // Creates the runtime at the first call. The runtime is never destroyed, because its threads
    // may outlive static objects.
    static Runtime &get();

    // Error in the environment's settings; empty when there is none.
    const std::string &complaint() const { return complaint_; }

    // Returns null if there is no such device.
    DeviceState *device(int ordinal);

    std::shared_ptr<Stream> make_stream(DeviceState &device, Stream::Kind kind);

    // Threads of the largest block, and the SIPs of a cluster.
    unsigned block_threads(const Profile &profile) const;
    unsigned sips(const Profile &profile) const;

    // Number of live objects of a kind; -1 for an unknown kind.
    long live(const std::string &kind);

    std::string complaint_;
    const Readings readings;
    sim::Instruments instruments;
    sim::Scheduler scheduler;
    sim::HostMemory host_memory;
    sim::HostKernels host_kernels{"topsfb"};
    std::vector<std::unique_ptr<DeviceState>> devices;

    Handles<topsStream_t, Stream> streams{0x21};
    Handles<topsEvent_t, Event> events{0x22};
    Handles<topsModule_t, Module> modules{0x23};
    Handles<topsFunction_t, Function> functions{0x24};
    Handles<topsMemPool_t, Pool> pools{0x25};
    Handles<topsGraph_t, Graph> graphs{0x26};
    Handles<topsGraphExec_t, GraphExec> graph_execs{0x27};

  private:
    Runtime();
    void add_devices();
};

} // namespace tops_sim
