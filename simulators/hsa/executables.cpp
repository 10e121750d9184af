#include "executables.h"

#include <algorithm>
#include <cstring>

namespace hsa_sim {

namespace {

constexpr uint64_t descriptor_bytes = 64;

hsa_status_t check_target(const Agent &agent, const sim::HsacoImage &image) {
    std::string reason;
    for (const auto &isa : agent.isas) {
        const std::string conflict = sim::amd_conflict(image.target, isa->target);
        if (conflict.empty()) {
            return HSA_STATUS_SUCCESS;
        }
        reason += (reason.empty() ? "" : "; ") + conflict;
    }
    return refuse(HSA_STATUS_ERROR_INCOMPATIBLE_ARGUMENTS, reason);
}

sim::KernelDescription describe(const sim::HsacoKernel &kernel,
                                const std::vector<size_t> &explicit_arguments) {
    sim::KernelDescription description;
    description.entry = kernel.name;
    description.parameter_bytes = kernel.kernarg_bytes;
    description.any_order = true;
    for (const size_t index : explicit_arguments) {
        const sim::HsacoArgument &argument = kernel.arguments[index];
        description.parameters.push_back({argument.offset, argument.size});
    }
    return description;
}

std::shared_ptr<Symbol> add_symbol(Runtime &runtime, const std::shared_ptr<Executable> &executable,
                                   Agent &agent, const std::string &name) {
    const auto symbol = std::make_shared<Symbol>();
    symbol->name = name;
    symbol->executable = executable;
    symbol->agent = &agent;
    runtime.symbols.add(symbol);
    executable->symbols.push_back(symbol);
    return symbol;
}

// Puts the kernels' descriptors into device memory; a descriptor's address names its kernel.
hsa_status_t add_kernels(Runtime &runtime, const std::shared_ptr<Executable> &executable,
                         LoadedObject &object) {
    const auto &kernels = object.image.kernels;
    const auto exported = static_cast<uint64_t>(std::count_if(
        kernels.begin(), kernels.end(), [](const auto &kernel) { return kernel.exported; }));
    if (exported == 0) {
        return HSA_STATUS_SUCCESS;
    }
    sim::DeviceMemory &memory = object.agent->device.memory;
    uint64_t address = 0;
    if (memory.allocate(exported * descriptor_bytes, address) != sim::Status::ok) {
        return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
    }
    object.addresses.push_back(address);
    for (const sim::HsacoKernel &kernel : kernels) {
        if (!kernel.exported) {
            continue;
        }
        const auto symbol = add_symbol(runtime, executable, *object.agent, kernel.symbol);
        symbol->kernel = &kernel;
        symbol->module = object.module;
        symbol->address = address;
        for (size_t index = 0; index < kernel.arguments.size(); ++index) {
            if (!kernel.arguments[index].hidden()) {
                symbol->explicit_arguments.push_back(index);
            }
        }
        std::memcpy(memory.view(address), kernel.descriptor.data(), descriptor_bytes);
        runtime.kernels.emplace(address, symbol);
        address += descriptor_bytes;
    }
    return HSA_STATUS_SUCCESS;
}

// A variable has the address of the host build's variable. Variables that the host build lacks are
// omitted, because no kernel here can use them.
hsa_status_t add_variables(Runtime &runtime, const std::shared_ptr<Executable> &executable,
                           LoadedObject &object) {
    for (const sim::HsacoVariable &variable : object.image.variables) {
        const sim::ExecutableVariable *host = object.module->variable(variable.name);
        if (host == nullptr || host->bytes != variable.bytes) {
            continue;
        }
        uint64_t address = 0;
        char *memory = static_cast<char *>(host->address);
        if (object.agent->device.memory.borrow(memory, host->bytes, address) != sim::Status::ok) {
            return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
        }
        object.addresses.push_back(address);
        const auto symbol = add_symbol(runtime, executable, *object.agent, variable.name);
        symbol->address = address;
        symbol->bytes = variable.bytes;
        runtime.ranges.add_variable(*object.agent, address, variable.bytes);
    }
    return HSA_STATUS_SUCCESS;
}

} // namespace

hsa_status_t load_code_object(Runtime &runtime, const std::shared_ptr<Executable> &executable,
                              Agent &agent, const CodeObjectReader &reader) {
    auto object = std::make_unique<LoadedObject>();
    object->agent = &agent;
    std::string why;
    switch (sim::read_hsaco(sim::Bytes(reader.data, reader.bytes), object->image, why)) {
    case sim::HsacoImage::Problem::none:
        break;
    case sim::HsacoImage::Problem::no_code_object:
        return refuse(HSA_STATUS_ERROR_INVALID_CODE_OBJECT, why);
    case sim::HsacoImage::Problem::impossible_target:
        return refuse(HSA_STATUS_ERROR_INVALID_ISA_NAME, why);
    case sim::HsacoImage::Problem::defined_twice:
        return refuse(HSA_STATUS_ERROR_VARIABLE_ALREADY_DEFINED, why);
    }
    hsa_status_t status = check_target(agent, object->image);
    if (status != HSA_STATUS_SUCCESS) {
        return status;
    }
    std::vector<std::string> entries;
    for (const sim::HsacoKernel &kernel : object->image.kernels) {
        entries.push_back(kernel.name);
    }
    object->module = runtime.host_kernels.load(entries);
    executable->objects.push_back(std::move(object));
    LoadedObject &loaded = *executable->objects.back();
    status = add_kernels(runtime, executable, loaded);
    return status == HSA_STATUS_SUCCESS ? add_variables(runtime, executable, loaded) : status;
}

bool find_code(Symbol &symbol) {
    if (symbol.code == nullptr && symbol.refusal.empty()) {
        std::string why;
        symbol.code =
            symbol.module->kernel(describe(*symbol.kernel, symbol.explicit_arguments), why);
        if (symbol.code == nullptr) {
            symbol.refusal = "kernel " + symbol.kernel->name + " cannot be simulated: " + why;
        }
    }
    return symbol.code != nullptr;
}

} // namespace hsa_sim
