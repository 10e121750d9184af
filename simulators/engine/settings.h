// The UHAL_SIM_* environment variables, read once. An invalid value makes the driver refuse to
// start. With a silent default, a test could pass with settings other than the intended settings.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace sim {

class Settings {
  public:
    // The text of UHAL_SIM_<name>, empty when unset.
    static std::string text(const std::string &name);

    // A list separated by `separator`; empty items are dropped.
    static std::vector<std::string> list(const std::string &name, char separator);

    // A decimal number within bounds, `otherwise` when unset. Errors go to `complaint`.
    static uint64_t number(const std::string &name, uint64_t least, uint64_t most,
                           uint64_t otherwise, std::string &complaint);
};

std::vector<std::string> split(const std::string &text, char separator);

// The whole of `text` as a decimal number.
std::optional<uint64_t> to_number(const std::string &text);

} // namespace sim
