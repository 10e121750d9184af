// A translated kernel and what becomes of its launches.
#pragma once

#include <string>

#include "../../engine/executor.h"
#include "../runtime/ptx.h"

namespace sim {

struct PtxSettings;

class PtxExecutable : public Executable {
  public:
    // Closes `library` at its end. `area` is the address of the module's variables.
    PtxExecutable(void *library, const uptx_kernel &kernel, std::string entry,
                  std::string text_file, uint64_t area, const PtxSettings &settings);
    ~PtxExecutable() override;
    PtxExecutable(const PtxExecutable &) = delete;
    PtxExecutable &operator=(const PtxExecutable &) = delete;

    uint32_t max_threads() const override { return 1024; }

    std::function<Outcome()> prepare(const LaunchShape &shape,
                                     const std::vector<unsigned char> &parameters,
                                     const AddressMap &map) const override;

  private:
    Outcome run(const LaunchShape &shape, const std::vector<unsigned char> &parameters,
                const Reach *reach) const;
    Outcome explain(int outcome, const uptx_launch &launch, const Reach *reach) const;

    void *const library_;
    const uptx_kernel &kernel_;
    const std::string entry_;
    const std::string text_file_;
    const uint64_t area_;
    const PtxSettings &settings_;
};

// Lines of a report that show a line of a text; empty for line 0.
std::string text_line_report(const std::string &text_file, unsigned line);

} // namespace sim
