// A translated kernel and its launches.
#pragma once

#include <string>
#include <utility>

#include "../../engine/executor.h"
#include "../runtime/count.h"

namespace sim {

struct PtxSettings;

// The library of a translated kernel, closed by the destructor.
struct TranslatedKernel {
    TranslatedKernel() = default;
    explicit TranslatedKernel(void *opened);
    TranslatedKernel(TranslatedKernel &&other) noexcept { *this = std::move(other); }
    TranslatedKernel &operator=(TranslatedKernel &&other) noexcept;
    ~TranslatedKernel();

    const uptx_kernel *code = nullptr;
    const uptx_counted *counted = nullptr; // of a kernel that counts

  private:
    void *library_ = nullptr;
};

class PtxExecutable : public Executable {
  public:
    // `counting` is the same kernel for counted blocks, or empty. `area` is the address of the
    // module's variables.
    PtxExecutable(TranslatedKernel kernel, TranslatedKernel counting, std::string entry,
                  std::string text_file, uint64_t area, const PtxSettings &settings);
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

    const TranslatedKernel kernel_;
    const TranslatedKernel counting_;
    const std::string entry_;
    const std::string text_file_;
    const uint64_t area_;
    const PtxSettings &settings_;
};

// Lines of a report that show a line of a text; empty for line 0.
std::string text_line_report(const std::string &text_file, unsigned line);

} // namespace sim
