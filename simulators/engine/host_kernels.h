// Runs kernels through the host build of the same source: shared libraries made with
// <uhal/kernel.h>, searched by entry name.
//
// Libraries are looked for in UHAL_SIM_KERNELS (files and folders, separated by colons, first one
// wins) and then where a checkout and a wheel keep the shipped kernels' host builds.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <uhal/host_module.h>

#include "executor.h"

namespace sim {

class HostKernels {
  public:
    // The library that has most of these entries.
    std::unique_ptr<ExecutableModule> load(const std::vector<std::string> &entries);

  private:
    struct Library {
        std::string path;
        const uhal_host_module *module;
    };

    const std::vector<Library> &libraries();

    std::once_flag searched_;
    std::vector<Library> libraries_;
};

} // namespace sim
