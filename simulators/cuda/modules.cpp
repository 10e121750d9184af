#include "modules.h"

#include <algorithm>
#include <cstdio>

#include "module_images.h"
#include "operations.h"

namespace cuda_sim {

namespace {

CUresult result_of(const sim::TranslatorAnswer &problem) {
    switch (problem.kind) {
    case sim::TranslatorAnswer::Kind::done:
        return CUDA_SUCCESS;
    case sim::TranslatorAnswer::Kind::no_ptx:
    case sim::TranslatorAnswer::Kind::unsupported:
        return CUDA_ERROR_INVALID_PTX;
    case sim::TranslatorAnswer::Kind::unavailable:
        return CUDA_ERROR_JIT_COMPILER_NOT_FOUND;
    case sim::TranslatorAnswer::Kind::failed:
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    return CUDA_ERROR_UNKNOWN;
}

std::string words_of(const sim::TranslatorAnswer &problem) {
    const std::string line = problem.line == 0 ? "" : "line " + std::to_string(problem.line) + ": ";
    return line + problem.words;
}

// Printed once, because the program's counts lack these kernels.
void advise_on_uncounted_cubins() {
    static bool said = false;
    if (!said) {
        std::fprintf(stderr,
                     "uhal simulator: a cubin is machine code, whose kernels are not counted: load "
                     "its PTX, or choose a device that the cubin is not for, as in "
                     "UHAL_SIM_CUDA_PROFILE=sm_86\n");
    }
    said = true;
}

// Makes the executor of the module's kernels: of the PTX text, or of the host build if the image is
// machine code.
CUresult make_executable(Driver &driver, Module &module, JitLog &log) {
    if (module.image.kind == sim::Image::Kind::cubin) {
        std::vector<std::string> entries;
        for (const sim::ImageEntry &entry : module.image.entries) {
            entries.push_back(entry.kernel.entry);
        }
        module.executable = driver.host_kernels.load(entries);
        if (driver.ptx_kernels.counts()) {
            advise_on_uncounted_cubins();
        }
        return CUDA_SUCCESS;
    }
    sim::TranslatorAnswer problem;
    module.ptx =
        driver.ptx_kernels.load(module.image.text, module.context->device->device.memory, problem);
    if (module.ptx == nullptr) {
        log.error(words_of(problem));
        log.finish();
    }
    return module.ptx != nullptr ? CUDA_SUCCESS : refuse(result_of(problem), words_of(problem));
}

} // namespace

CUresult load_module(Call &call, const std::shared_ptr<Context> &context, const void *image,
                     JitLog &log, std::shared_ptr<Module> &module) {
    module = std::make_shared<Module>();
    module->context = context;
    std::string why;
    const CUresult result =
        read_image(call.driver, context->device->profile, image, module->image, why);
    if (result != CUDA_SUCCESS) {
        log.error(why);
        log.finish();
        return refuse(result, why);
    }
    const CUresult unloadable = make_executable(call.driver, *module, log);
    if (unloadable != CUDA_SUCCESS) {
        return unloadable;
    }
    call.driver.modules.add(module);
    log.finish();
    return CUDA_SUCCESS;
}

CUresult unload_module(Call &call, const std::shared_ptr<Module> &module) {
    // NVIDIA's driver 580 waits here too, on an H200.
    const CUresult waited =
        wait_for(call, call.driver.scheduler.pending(module->context->device->device));
    for (const auto &[name, function] : module->functions) {
        call.driver.functions.remove(function->handle);
    }
    module->functions.clear();
    module->loaded = false;
    call.driver.modules.remove(module->handle);
    release_variables(*module);
    return waited;
}

void release_variables(Module &module) {
    for (const auto &[name, address] : module.variables) {
        module.context->device->device.memory.release(address);
    }
    module.variables.clear();
    if (module.ptx != nullptr) {
        module.ptx->release();
    }
}

namespace {

// Printed once, even without a report, because a program that compiles to cubins cannot continue.
void advise_on_cubins(const sim::Image &image) {
    static bool said = false;
    if (said) {
        return;
    }
    said = true;
    const std::string advice =
        !image.missing.empty()
            ? image.missing
            : "run the program by `python -m uhal sim run`, which hands on the PTX of what is "
              "compiled at run time, or compile for compute_" +
                  std::to_string(image.target) + " instead of " + target_name(image);
    std::fprintf(stderr, "uhal simulator: a cubin is machine code, which cannot be executed: %s\n",
                 advice.c_str());
}

CUresult make_kernel(Module &module, const sim::KernelDescription &kernel,
                     std::unique_ptr<sim::Executable> &executable) {
    const std::string refused = "kernel " + kernel.entry + " cannot be simulated: ";
    const std::string &missing = module.image.missing;
    if (module.ptx != nullptr) {
        sim::TranslatorAnswer problem;
        executable = module.ptx->kernel(kernel, problem);
        const std::string words = words_of(problem) + (missing.empty() ? "" : " (" + missing + ")");
        return executable != nullptr ? CUDA_SUCCESS : refuse(result_of(problem), refused + words);
    }
    std::string why;
    executable = module.executable->kernel(kernel, why);
    if (executable != nullptr) {
        return CUDA_SUCCESS;
    }
    advise_on_cubins(module.image);
    return refuse(CUDA_ERROR_NOT_SUPPORTED, refused + why);
}

// Finds a cubin's variable in the host build and gives it a device address.
CUresult borrow_variable(Module &module, const sim::ImageVariable &variable, uint64_t &address) {
    const auto known = module.variables.find(variable.name);
    if (known != module.variables.end()) {
        address = known->second;
        return CUDA_SUCCESS;
    }
    const sim::ExecutableVariable *host = module.executable->variable(variable.name);
    if (host == nullptr || host->bytes != variable.bytes) {
        return refuse(CUDA_ERROR_NOT_SUPPORTED,
                      "variable " + variable.name +
                          " cannot be simulated: the host build has none of " +
                          std::to_string(variable.bytes) + " bytes");
    }
    const sim::Status status = module.context->device->device.memory.borrow(
        static_cast<char *>(host->address), host->bytes, address);
    if (status == sim::Status::ok) {
        module.variables.emplace(variable.name, address);
    }
    return to_result(status);
}

} // namespace

const sim::ImageEntry *find_entry(const Module &module, const std::string &name) {
    const auto &entries = module.image.entries;
    const auto entry = std::find_if(entries.begin(), entries.end(),
                                    [&](const auto &one) { return one.kernel.entry == name; });
    return entry == entries.end() ? nullptr : &*entry;
}

CUresult find_function(Driver &driver, const std::shared_ptr<Module> &module,
                       const std::string &name, std::shared_ptr<Function> &function) {
    const auto known = module->functions.find(name);
    if (known != module->functions.end()) {
        function = known->second;
        return CUDA_SUCCESS;
    }
    const sim::ImageEntry *entry = find_entry(*module, name);
    if (entry == nullptr) {
        return CUDA_ERROR_NOT_FOUND;
    }
    std::unique_ptr<sim::Executable> executable;
    const CUresult refusal = make_kernel(*module, entry->kernel, executable);
    if (refusal != CUDA_SUCCESS) {
        return refusal;
    }
    function = std::make_shared<Function>();
    function->module = module;
    function->entry = entry;
    function->executable = std::move(executable);
    function->max_dynamic_shared =
        shared_per_block - std::min(shared_per_block, entry->static_shared_bytes);
    driver.functions.add(function);
    module->functions.emplace(name, function);
    return CUDA_SUCCESS;
}

CUresult find_variable(Driver &driver, const std::shared_ptr<Module> &module,
                       const std::string &name, CUdeviceptr *address, size_t *bytes) {
    (void)driver;
    const auto &variables = module->image.variables;
    const auto variable = std::find_if(variables.begin(), variables.end(),
                                       [&](const auto &one) { return one.name == name; });
    if (variable == variables.end()) {
        return CUDA_ERROR_NOT_FOUND;
    }
    uint64_t found_address = 0;
    uint64_t found_bytes = variable->bytes;
    if (module->ptx == nullptr) {
        const CUresult refusal = borrow_variable(*module, *variable, found_address);
        if (refusal != CUDA_SUCCESS) {
            return refusal;
        }
    } else if (!module->ptx->variable(name, found_address, found_bytes)) {
        return CUDA_ERROR_NOT_FOUND;
    }
    if (address != nullptr) {
        *address = found_address;
    }
    if (bytes != nullptr) {
        *bytes = found_bytes;
    }
    return CUDA_SUCCESS;
}

CUresult module_of_library(Call &call, Library &library, JitLog &log,
                           std::shared_ptr<Module> &module) {
    const auto known = library.modules.find(call.context.get());
    if (known != library.modules.end() && known->second->loaded) {
        module = known->second;
        return CUDA_SUCCESS;
    }
    const CUresult result = load_module(call, call.context, library.image.data(), log, module);
    if (result == CUDA_SUCCESS) {
        library.modules[call.context.get()] = module;
    }
    return result;
}

CUresult function_of_kernel(Call &call, const Kernel &kernel, std::shared_ptr<Function> &function) {
    const std::shared_ptr<Library> library = kernel.library.lock();
    if (library == nullptr) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    JitLog log;
    std::shared_ptr<Module> module;
    const CUresult result = module_of_library(call, *library, log, module);
    return result == CUDA_SUCCESS ? find_function(call.driver, module, kernel.name, function)
                                  : result;
}

} // namespace cuda_sim
