// Prepares a kernel's packet to run. Reads the kernel's arguments from the kernarg segment, at the
// offsets in the code object's metadata, and checks them.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "packets.h"
#include "ranges.h"

namespace hsa_sim {

// Translates addresses for the kernels of an agent.
class AgentAddresses : public sim::AddressMap {
  public:
    AgentAddresses(Ranges &ranges, const Agent &agent) : ranges_(ranges), agent_(agent) {}

    void *translate(uint64_t address) const override;

    // The address that a kernel used, if this process faulted at `viewed`.
    uint64_t address_of(uint64_t viewed) const;

  private:
    Ranges &ranges_;
    const Agent &agent_;
    mutable std::vector<uint64_t> refused_;
};

struct KernelWork {
    KernelWork(Ranges &ranges, const Agent &agent) : addresses(ranges, agent) {}

    std::shared_ptr<sim::Executable> code;
    sim::LaunchShape shape = {};
    std::vector<unsigned char> arguments;
    std::function<sim::Outcome()> run;
    std::vector<uint64_t> written; // addresses the kernel may write to
    uint64_t fault = 0;            // the address behind HSA_STATUS_ERROR_MEMORY_FAULT
    AgentAddresses addresses;
};

Refusal prepare_kernel(Runtime &runtime, const Queue &queue, const Dispatch &dispatch,
                       KernelWork &work);

} // namespace hsa_sim
