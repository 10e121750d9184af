// A kernel that does nothing.
#pragma once

#include "../../engine/host_kernels.h"

namespace sim {

class Nothing : public Executable {
  public:
    uint32_t max_threads() const override { return 1024; }
    std::function<Outcome()> prepare(const LaunchShape &, const std::vector<unsigned char> &,
                                     const AddressMap &) const override {
        return [] { return Outcome{Status::ok, 0, ""}; };
    }
};

} // namespace sim
