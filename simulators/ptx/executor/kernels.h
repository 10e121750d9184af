// Runs kernels of PTX modules: their instructions are translated to this processor's instructions.
//
// A module's text is checked when it is loaded; a kernel is translated at its first use
// (translator.h), or comes from the cache (cache.h). Callers hold the scheduler's lock, except
// where a prepared launch runs.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "../../engine/executor.h"
#include "../../engine/memory.h"
#include "launch.h"
#include "trace.h"
#include "translator.h"

namespace sim {

// UHAL_SIM_CHECK, UHAL_SIM_SEED, UHAL_SIM_LAUNCH_SECONDS, UHAL_SIM_TRACE, UHAL_SIM_COUNTS and
// UHAL_SIM_COUNT_EVERY.
struct PtxSettings {
    explicit PtxSettings(std::string &complaint);

    std::string check = "on";  // off, on, strict, trace: enum uptx_check
    std::string counts_file;   // of a driver that counts; else empty
    uint64_t counts_every = 0; // struct uptx_counting
    TracedThread traced;
    uint64_t seed = 0; // of the order in which threads run
    uint64_t milliseconds = 0;
};

// A loaded module: its text and its variables in device memory.
class PtxModule {
  public:
    PtxModule(std::string text_file, std::string digest, DeviceMemory &memory,
              const PtxSettings &settings, Translator &translator);
    PtxModule(const PtxModule &) = delete;
    PtxModule &operator=(const PtxModule &) = delete;

    // Lays out the variables that a description file lists.
    Status lay_out(const std::string &description_file);

    // Returns null, with the reason in `problem`, if this kernel cannot be run.
    std::unique_ptr<Executable> kernel(const KernelDescription &description,
                                       TranslatorAnswer &problem);

    // Returns false if there is no such variable.
    bool variable(const std::string &name, uint64_t &address, uint64_t &bytes) const;

    // Gives the variables' memory back; nothing may use this memory any more.
    void release();

  private:
    void fill(const std::vector<std::vector<std::string>> &lines);
    TranslatedKernel open(const KernelDescription &description, const std::string &check,
                          TranslatorAnswer &problem);
    void *open_library(const KernelDescription &description, const std::string &check,
                       TranslatorAnswer &problem);

    const std::string text_file_;
    const std::string digest_;
    DeviceMemory &memory_;
    const PtxSettings &settings_;
    Translator &translator_;
    std::vector<AreaPart> variables_;
    uint64_t area_ = 0;
};

class PtxKernels {
  public:
    explicit PtxKernels(std::string &complaint) : settings_(complaint) {}

    // Returns null, with the reason in `problem`, if the text is not PTX or cannot be checked. The
    // text may be the beginning of longer memory.
    std::unique_ptr<PtxModule> load(std::string_view text, DeviceMemory &memory,
                                    TranslatorAnswer &problem);

    // Whether kernels of PTX texts are counted.
    bool counts() const { return !settings_.counts_file.empty(); }

    // Time limit of a kernel; 0: no limit.
    uint64_t milliseconds_of_launch() const { return settings_.milliseconds; }

  private:
    const PtxSettings settings_;
    Translator translator_;
};

} // namespace sim
