// Stands in for what runs kernels: every one is found, and does nothing.
#include "../engine/host_kernels.h"
#include "../ptx/executor/kernels.h"

namespace sim {

namespace {

class Nothing : public Executable {
  public:
    uint32_t max_threads() const override { return 1024; }
    std::function<Outcome()> prepare(const LaunchShape &, const std::vector<unsigned char> &,
                                     const AddressMap &) const override {
        return [] { return Outcome{Status::ok, 0, ""}; };
    }
};

class EmptyModule : public ExecutableModule {
  public:
    std::unique_ptr<Executable> kernel(const KernelDescription &, std::string &) override {
        return std::make_unique<Nothing>();
    }
    const ExecutableVariable *variable(const std::string &) override { return nullptr; }
};

} // namespace

std::unique_ptr<ExecutableModule> HostKernels::load(const std::vector<std::string> &) {
    return std::make_unique<EmptyModule>();
}

std::unique_ptr<PtxModule> PtxKernels::load(std::string_view, DeviceMemory &memory,
                                            TranslatorAnswer &) {
    return std::make_unique<PtxModule>("", "", memory, settings_, translator_);
}

std::unique_ptr<Executable> PtxModule::kernel(const KernelDescription &, TranslatorAnswer &) {
    return std::make_unique<Nothing>();
}

} // namespace sim
