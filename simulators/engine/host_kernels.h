// Runs kernels through the host build of the same source: shared libraries made with
// <uhal/kernel.h>, searched by entry name.
//
// Libraries come from UHAL_SIM_KERNELS (files and folders, separated by colons, the first match
// wins), then from the driver's folder. Last come the host builds of the shipped kernels in a
// checkout or a wheel.
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
    // `beside`: a folder in the driver's folder, searched instead of the shipped kernels.
    explicit HostKernels(std::string beside = "") : beside_(std::move(beside)) {}

    // The library that has most of these entries.
    std::unique_ptr<ExecutableModule> load(const std::vector<std::string> &entries);

    // Whether some library has one of these entries.
    bool has_any(const std::vector<std::string> &entries);

  private:
    struct Library {
        std::string path;
        const uhal_host_module *module;
    };

    const std::vector<Library> &libraries();

    const std::string beside_;
    std::once_flag searched_;
    std::vector<Library> libraries_;
};

} // namespace sim
