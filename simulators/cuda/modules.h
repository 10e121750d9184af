// Loads images into a context and finds functions and variables in them.
#pragma once

#include "call.h"
#include "jit_log.h"

namespace cuda_sim {

CUresult load_module(Call &call, const std::shared_ptr<Context> &context, const void *image,
                     JitLog &log, std::shared_ptr<Module> &module);

// Waits for the device's pending work, then unloads the module.
CUresult unload_module(Call &call, const std::shared_ptr<Module> &module);

// Releases a module's variables; nothing may use them any more.
void release_variables(Module &module);

// Returns the entry of that name; null when the image has none.
const sim::ImageEntry *find_entry(const Module &module, const std::string &name);

// Makes the function at its first use; for PTX, this translates the kernel.
CUresult find_function(Driver &driver, const std::shared_ptr<Module> &module,
                       const std::string &name, std::shared_ptr<Function> &function);
CUresult find_variable(Driver &driver, const std::shared_ptr<Module> &module,
                       const std::string &name, CUdeviceptr *address, size_t *bytes);

// The module of a library in the current context, loaded at the library's first use in this
// context.
CUresult module_of_library(Call &call, Library &library, JitLog &log,
                           std::shared_ptr<Module> &module);
CUresult function_of_kernel(Call &call, const Kernel &kernel, std::shared_ptr<Function> &function);

} // namespace cuda_sim
