#include "kernel_work.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "pointers.h"

namespace tops_sim {

namespace {

// Inaccessible range that replaces forbidden addresses. The range is wide, so that indexing from
// its start faults, too.
void *forbidden() {
    static void *const range = mmap(nullptr, uint64_t{1} << 36, PROT_NONE,
                                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return range == MAP_FAILED ? nullptr : range;
}

// Kernels get addresses of their own device and of page-locked memory, but no handles.
class DeviceAddresses : public sim::AddressMap {
  public:
    DeviceAddresses(Runtime &runtime, const DeviceState &device)
        : runtime_(runtime), device_(device) {}

    void *translate(uint64_t address) const override {
        const uint64_t pointer = pointer_of(runtime_, address);
        for (const auto &device : runtime_.devices) {
            const bool reachable =
                device.get() == &device_ || device_.device.peers.count(&device->device) != 0;
            if (reachable && device->device.memory.covers(pointer)) {
                return device->device.memory.view(pointer);
            }
        }
        const bool pinned = runtime_.host_memory.find(address) != nullptr;
        return pinned ? reinterpret_cast<void *>(address) : forbidden();
    }

  private:
    Runtime &runtime_;
    const DeviceState &device_;
};

topsError_t check_shape(const Runtime &runtime, const Function &function,
                        const sim::LaunchShape &shape) {
    const Profile &profile = function.module->device->profile;
    for (size_t axis = 0; axis < 3; ++axis) {
        if (shape.grid[axis] == 0 || shape.grid[axis] > profile.max_grid[axis] ||
            shape.block[axis] == 0) {
            return refuse(topsErrorInvalidValue, "the grid or block is empty or too long");
        }
    }
    const uint64_t threads = uint64_t{shape.block[0]} * shape.block[1] * shape.block[2];
    const unsigned most = max_threads(runtime, function);
    if (threads > most) {
        return refuse(topsErrorInvalidValue, "the block has " + std::to_string(threads) +
                                                 " threads, the function takes " +
                                                 std::to_string(most));
    }
    if (shape.shared_bytes > std::min(profile.shared_bytes, usable_shared_bytes)) {
        return refuse(topsErrorLaunchOutOfResources,
                      std::to_string(shape.shared_bytes) + " bytes of a cluster's L2");
    }
    return topsSuccess;
}

topsError_t copy_parameters(const Runtime &runtime, const Function &function, void **parameters,
                            void **extra, std::vector<unsigned char> &block) {
    const sim::KernelDescription &kernel = function.entry->kernel;
    block.assign(kernel.parameter_bytes, 0);
    if (kernel.parameters.empty()) {
        return topsSuccess;
    }
    if (parameters != nullptr) {
        if (!runtime.readings.takes_kernel_parameters || extra != nullptr) {
            return refuse(topsErrorInvalidValue, "kernelParams is not implemented, give extra");
        }
        for (size_t index = 0; index < kernel.parameters.size(); ++index) {
            const sim::ParameterLayout &parameter = kernel.parameters[index];
            if (parameters[index] == nullptr) {
                return refuse(topsErrorInvalidValue,
                              "parameter " + std::to_string(index) + " is a null pointer");
            }
            std::memcpy(block.data() + parameter.offset, parameters[index], parameter.size);
        }
        return topsSuccess;
    }
    const void *buffer = nullptr;
    size_t bytes = 0;
    const auto ends = [](void **word) {
        return word == nullptr || reinterpret_cast<uint64_t>(*word) == UHAL_TOPS_LAUNCH_END;
    };
    for (; !ends(extra); extra += 2) {
        const uint64_t tag = reinterpret_cast<uint64_t>(*extra);
        if (tag == UHAL_TOPS_LAUNCH_BUFFER) {
            buffer = extra[1];
        } else if (tag == UHAL_TOPS_LAUNCH_BUFFER_SIZE) {
            bytes = *static_cast<const size_t *>(extra[1]);
        } else {
            return topsErrorInvalidValue;
        }
    }
    if (buffer == nullptr || bytes < kernel.parameter_bytes) {
        return refuse(topsErrorInvalidValue, "the launch gives no or too few parameters");
    }
    std::memcpy(block.data(), buffer, kernel.parameter_bytes);
    return topsSuccess;
}

// Replaces handles by device addresses, as the runtime does before a kernel starts.
void convert_handles(Call &call, const Function &function, std::vector<unsigned char> &block) {
    const auto &parameters = function.entry->kernel.parameters;
    for (size_t index = 0; index < parameters.size(); ++index) {
        uint64_t pointer = 0;
        const bool wide = parameters[index].size == sizeof pointer;
        const bool buffer = function.entry->buffers[index];
        if (!wide || (!buffer && call.runtime.readings.converts_buffers_only)) {
            continue;
        }
        unsigned char *argument = block.data() + parameters[index].offset;
        std::memcpy(&pointer, argument, sizeof pointer);
        if (call.device->device.memory.covers(pointer)) {
            const uint64_t address = address_of(call.runtime, pointer);
            std::memcpy(argument, &address, sizeof address);
        }
    }
}

} // namespace

unsigned max_threads(const Runtime &runtime, const Function &function) {
    return std::min(runtime.block_threads(function.module->device->profile),
                    function.executable->max_threads());
}

topsError_t make_kernel_call(Call &call, const std::shared_ptr<Function> &function,
                             const sim::LaunchShape &shape, void **parameters, void **extra,
                             std::shared_ptr<KernelCall> &made) {
    const topsError_t result = check_shape(call.runtime, *function, shape);
    if (result != topsSuccess) {
        return result;
    }
    made = std::make_shared<KernelCall>(KernelCall{function, shape, {}});
    const topsError_t copied =
        copy_parameters(call.runtime, *function, parameters, extra, made->parameters);
    if (copied == topsSuccess) {
        convert_handles(call, *function, made->parameters);
    }
    return copied;
}

std::function<sim::Status()> kernel_work(std::shared_ptr<KernelCall> call) {
    return [call = std::move(call)] {
        Runtime &runtime = Runtime::get();
        const Function &function = *call->function;
        DeviceState &device = *function.module->device;
        std::function<sim::Outcome()> run;
        {
            const sim::Lock lock(runtime.scheduler.mutex);
            run = function.executable->prepare(call->shape, call->parameters,
                                               DeviceAddresses(runtime, device));
        }
        const sim::Outcome outcome = run();
        if (outcome.status != sim::Status::ok) {
            const sim::Lock lock(runtime.scheduler.mutex);
            device.device.fault_text = "kernel " + function.entry->kernel.entry +
                                       (outcome.status == sim::Status::launch_failed
                                            ? " failed"
                                            : " touched memory that it may not reach");
        }
        return outcome.status;
    };
}

} // namespace tops_sim
