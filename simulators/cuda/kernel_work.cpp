#include "kernel_work.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "../engine/reach.h"
#include "modules.h"

namespace cuda_sim {

namespace {

// An inaccessible range replaces forbidden addresses. The range is wide, so indexing from its
// start faults too.
void *forbidden() {
    static void *const range = mmap(nullptr, uint64_t{1} << 36, PROT_NONE,
                                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return range == MAP_FAILED ? nullptr : range;
}

class ContextAddresses : public sim::AddressMap {
  public:
    ContextAddresses(Driver &driver, Context &context) : driver_(driver), context_(context) {}

    void *translate(uint64_t address) const override {
        for (const auto &device : driver_.devices) {
            sim::DeviceMemory &memory = device->device.memory;
            if (memory.covers(address)) {
                return reachable(*device, address) ? memory.view(address) : forbidden();
            }
        }
        const bool pinned = driver_.host_memory.find(address) != nullptr;
        return pinned ? reinterpret_cast<void *>(address) : forbidden();
    }

    std::shared_ptr<const sim::Reach> reach() const override {
        const uint64_t state = state_now();
        if (context_.reach == nullptr || context_.reach_state != state) {
            sim::ReachBuilder builder;
            for (const auto &device : driver_.devices) {
                gather(*device, builder);
            }
            builder.add(driver_.host_memory);
            context_.reach = std::make_shared<const sim::Reach>(
                builder.finish(context_.device->device.memory.window()));
            context_.reach_state = state;
        }
        return context_.reach;
    }

  private:
    // This sum changes with everything that `reach` depends on, because each term only grows.
    uint64_t state_now() const {
        uint64_t state = driver_.access_changes + driver_.host_memory.generation();
        for (const auto &device : driver_.devices) {
            state += device->device.memory.generation();
        }
        return state;
    }

    void gather(const DeviceState &device, sim::ReachBuilder &builder) const {
        if (&device == context_.device) {
            builder.add(device.device.memory);
            return;
        }
        for (const auto &[address, allocation] : device.device.memory.all()) {
            if (reachable(device, address)) {
                builder.add(allocation);
            }
        }
    }

    bool reachable(const DeviceState &device, uint64_t address) const {
        if (&device == context_.device) {
            return true;
        }
        const sim::Allocation *allocation = device.device.memory.find(address);
        const int own = context_.device->device.ordinal;
        if (allocation != nullptr && allocation->pool != nullptr) {
            return static_cast<const Pool *>(allocation->pool)->readers.count(own) != 0;
        }
        return std::any_of(context_.peers.begin(), context_.peers.end(),
                           [&](const Context *peer) { return peer->device == &device; });
    }

    Driver &driver_;
    Context &context_;
};

CUresult check_shape(const Function &function, const sim::LaunchShape &shape) {
    for (size_t axis = 0; axis < 3; ++axis) {
        if (shape.grid[axis] == 0 || shape.grid[axis] > max_grid[axis] || shape.block[axis] == 0 ||
            shape.block[axis] > max_block[axis]) {
            return refuse(CUDA_ERROR_INVALID_VALUE, "the grid or block is empty or too long");
        }
    }
    const uint64_t threads = uint64_t{shape.block[0]} * shape.block[1] * shape.block[2];
    if (threads > max_threads(function)) {
        return refuse(CUDA_ERROR_INVALID_VALUE, "the block has " + std::to_string(threads) +
                                                    " threads, the function takes " +
                                                    std::to_string(max_threads(function)));
    }
    if (shape.shared_bytes > function.max_dynamic_shared) {
        return refuse(CUDA_ERROR_INVALID_VALUE,
                      std::to_string(shape.shared_bytes) +
                          " bytes of dynamic shared memory, the function is set to at most " +
                          std::to_string(function.max_dynamic_shared));
    }
    const uint64_t registers = uint64_t{function.entry->registers} * threads;
    if (registers > registers_per_processor) {
        return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    }
    return CUDA_SUCCESS;
}

CUresult copy_parameters(const Function &function, void **parameters, void **extra,
                         std::vector<unsigned char> &block) {
    const sim::KernelDescription &kernel = function.entry->kernel;
    block.assign(kernel.parameter_bytes, 0);
    if (parameters != nullptr && extra != nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (parameters != nullptr || kernel.parameters.empty()) {
        for (size_t index = 0; index < kernel.parameters.size(); ++index) {
            const sim::ParameterLayout &parameter = kernel.parameters[index];
            if (parameters[index] == nullptr) {
                return refuse(CUDA_ERROR_INVALID_VALUE,
                              "parameter " + std::to_string(index) + " is a null pointer");
            }
            std::memcpy(block.data() + parameter.offset, parameters[index], parameter.size);
        }
        return CUDA_SUCCESS;
    }
    const void *buffer = nullptr;
    size_t bytes = 0;
    for (; extra != nullptr && *extra != nullptr; extra += 2) {
        const uint64_t tag = reinterpret_cast<uint64_t>(extra[0]);
        if (tag == CU_LAUNCH_PARAM_BUFFER_POINTER_AS_INT) {
            buffer = extra[1];
        } else if (tag == CU_LAUNCH_PARAM_BUFFER_SIZE_AS_INT) {
            bytes = *static_cast<const size_t *>(extra[1]);
        } else {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    if (buffer == nullptr || bytes < kernel.parameter_bytes) {
        return refuse(CUDA_ERROR_INVALID_VALUE, "the launch gives no or too few parameters");
    }
    std::memcpy(block.data(), buffer, kernel.parameter_bytes);
    return CUDA_SUCCESS;
}

} // namespace

unsigned max_threads(const Function &function) {
    unsigned most = max_threads_per_block;
    if (function.entry->max_threads != 0) {
        most = std::min(most, function.entry->max_threads);
    }
    if (function.entry->registers != 0) {
        most = std::min(most, registers_per_processor / function.entry->registers);
    }
    return std::min(most, function.executable->max_threads());
}

unsigned resident_blocks(const Function &function, unsigned threads, size_t dynamic_shared) {
    const Profile &profile = function.module->context->device->profile;
    if (threads == 0 || threads > max_threads(function)) {
        return 0;
    }
    const unsigned in_warps = (threads + warp - 1) / warp * warp;
    const size_t shared =
        function.entry->static_shared_bytes + dynamic_shared + profile.shared_reserved_per_block;
    unsigned blocks =
        std::min(profile.blocks_per_processor, profile.threads_per_processor / in_warps);
    if (shared != 0) {
        blocks = std::min(blocks, static_cast<unsigned>(profile.shared_per_processor / shared));
    }
    if (function.entry->registers != 0) {
        blocks = std::min(blocks, registers_per_processor / (function.entry->registers * in_warps));
    }
    return blocks;
}

CUresult make_kernel_call(const std::shared_ptr<Function> &function, const sim::LaunchShape &shape,
                          void **parameters, void **extra, std::shared_ptr<KernelCall> &call) {
    CUresult result = check_shape(*function, shape);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    call = std::make_shared<KernelCall>(KernelCall{function, shape, {}});
    return copy_parameters(*function, parameters, extra, call->parameters);
}

std::function<sim::Status()> kernel_work(std::shared_ptr<KernelCall> call) {
    return [call = std::move(call)] {
        Driver &driver = Driver::get();
        const Function &function = *call->function;
        Context &context = *function.module->context;
        std::function<sim::Outcome()> run;
        {
            const sim::Lock lock(driver.scheduler.mutex);
            run = function.executable->prepare(call->shape, call->parameters,
                                               ContextAddresses(driver, context));
        }
        const sim::Outcome outcome = run();
        if (outcome.status != sim::Status::ok) {
            const sim::Lock lock(driver.scheduler.mutex);
            context.device->device.fault_text =
                "kernel " + function.entry->kernel.entry + " " + outcome.words;
        }
        return outcome.status;
    };
}

CUresult function_of(Call &call, CUfunction handle, std::shared_ptr<Function> &function) {
    function = call.driver.functions.find(handle);
    if (function != nullptr) {
        return CUDA_SUCCESS;
    }
    const auto kernel = call.driver.kernels.find(reinterpret_cast<CUkernel>(handle));
    return kernel == nullptr ? CUDA_ERROR_INVALID_HANDLE
                             : function_of_kernel(call, *kernel, function);
}

} // namespace cuda_sim
