// Executors of kernels: the interface between the drivers, which know images and queues, and code
// that runs a kernel. This is the host build of the same source (host_kernels.h), or for PTX its
// own instructions (../ptx/executor).
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "guard.h"

namespace sim {

struct Reach;

struct ParameterLayout {
    uint32_t offset; // bytes, in the parameter block
    uint32_t size;
};

// A kernel as its image describes it.
struct KernelDescription {
    std::string entry;
    std::vector<ParameterLayout> parameters;
    uint32_t parameter_bytes = 0;
    bool any_order = false; // the image lays parameters out as it likes, not as C does
};

struct LaunchShape {
    std::array<uint32_t, 3> grid;
    std::array<uint32_t, 3> block;
    uint32_t shared_bytes;    // dynamic
    bool cooperative = false; // its blocks may wait for each other

    uint64_t blocks() const { return uint64_t{grid[0]} * grid[1] * grid[2]; }
};

// How a kernel's device finds the addresses it is given.
class AddressMap {
  public:
    virtual ~AddressMap() = default;
    // Never null: an address the device may not touch becomes one whose access faults.
    virtual void *translate(uint64_t address) const = 0;
    // All that the device may touch; null when this device does not tell.
    virtual std::shared_ptr<const Reach> reach() const { return nullptr; }
};

// A kernel ready to run. Launches may overlap.
class Executable {
  public:
    virtual ~Executable() = default;
    // The largest block it takes.
    virtual uint32_t max_threads() const = 0;
    // Whether a parameter is known to be an address, and one the kernel may write to.
    virtual bool is_pointer(size_t) const { return false; }
    virtual bool may_write(size_t) const { return false; }
    // Makes a launch ready; called with the scheduler's lock. What it returns runs all blocks and
    // is called without the lock.
    virtual std::function<Outcome()> prepare(const LaunchShape &shape,
                                             const std::vector<unsigned char> &parameters,
                                             const AddressMap &map) const = 0;
};

struct ExecutableVariable {
    void *address;
    uint64_t bytes;
};

// What stands behind one loaded module. Modules share nothing, as on a device.
class ExecutableModule {
  public:
    virtual ~ExecutableModule() = default;
    // Null with words in `why` when this kernel cannot be run.
    virtual std::unique_ptr<Executable> kernel(const KernelDescription &description,
                                               std::string &why) = 0;
    // Null when there is no such variable.
    virtual const ExecutableVariable *variable(const std::string &name) = 0;
};

} // namespace sim
