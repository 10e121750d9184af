// Executors of kernels: the interface between drivers, which know images and queues, and code that
// runs a kernel. An executor is the host build of the same source (host_kernels.h), or for PTX its
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

// A kernel as described by its image.
struct KernelDescription {
    std::string entry;
    std::vector<ParameterLayout> parameters;
    uint32_t parameter_bytes = 0;
    bool any_order = false; // offsets of parameters do not follow C's rules
};

struct LaunchShape {
    std::array<uint32_t, 3> grid;
    std::array<uint32_t, 3> block;
    uint32_t shared_bytes;    // dynamic
    bool cooperative = false; // its blocks may wait for each other

    uint64_t blocks() const { return uint64_t{grid[0]} * grid[1] * grid[2]; }
};

// Translates addresses given to a kernel for its device.
class AddressMap {
  public:
    virtual ~AddressMap() = default;
    // Never null: a forbidden address becomes an address whose access faults.
    virtual void *translate(uint64_t address) const = 0;
    // All memory that the device may access; null if the device has no list of this memory.
    virtual std::shared_ptr<const Reach> reach() const { return nullptr; }
};

// A kernel ready to run. Launches may overlap.
class Executable {
  public:
    virtual ~Executable() = default;
    // The largest block that the kernel takes.
    virtual uint32_t max_threads() const = 0;
    // Whether a parameter is known to be an address, and whether the kernel may write to it.
    virtual bool is_pointer(size_t) const { return false; }
    virtual bool may_write(size_t) const { return false; }
    // Prepares a launch; called with the scheduler's lock. The returned function runs all blocks,
    // and is called without the lock.
    virtual std::function<Outcome()> prepare(const LaunchShape &shape,
                                             const std::vector<unsigned char> &parameters,
                                             const AddressMap &map) const = 0;
};

struct ExecutableVariable {
    void *address;
    uint64_t bytes;
};

// Executors of one loaded module. Modules share nothing, as on a device.
class ExecutableModule {
  public:
    virtual ~ExecutableModule() = default;
    // Returns null, with the reason in `why`, if this kernel cannot be run.
    virtual std::unique_ptr<Executable> kernel(const KernelDescription &description,
                                               std::string &why) = 0;
    // Returns null if there is no such variable.
    virtual const ExecutableVariable *variable(const std::string &name) = 0;
};

} // namespace sim
