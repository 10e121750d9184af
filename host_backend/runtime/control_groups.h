// Limits of this process's control groups, of both versions. Groups are nested, and each limits all
// groups below it: the strictest limit along the path counts.
#pragma once

#include <cstdint>
#include <string>

namespace uhal_host {

class ControlGroups {
  public:
    // `root` is the folder that has /proc and /sys.
    explicit ControlGroups(std::string root = "") : root_(std::move(root)) {}

    // The processor time as a number of cores, rounded up; UINT_MAX without a quota.
    unsigned cores() const;

    // Bytes; UINT64_MAX without a limit.
    uint64_t memory() const;
    uint64_t memory_left() const;

  private:
    // Calls `visit` with the folder of each group from the outermost to this process's own.
    template <class Visit> void each(const char *controller, const Visit &visit) const;

    std::string root_;
};

} // namespace uhal_host
