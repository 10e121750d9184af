#include "settings.h"

#include <charconv>
#include <cstdlib>

namespace sim {

std::string Settings::text(const std::string &name) {
    const char *value = std::getenv(("UHAL_SIM_" + name).c_str());
    return value == nullptr ? "" : value;
}

std::vector<std::string> Settings::list(const std::string &name, char separator) {
    return split(text(name), separator);
}

uint64_t Settings::number(const std::string &name, uint64_t least, uint64_t most,
                          uint64_t otherwise, std::string &complaint) {
    const std::string value = text(name);
    if (value.empty()) {
        return otherwise;
    }
    const std::optional<uint64_t> parsed = to_number(value);
    if (!parsed || *parsed < least || *parsed > most) {
        complaint = "UHAL_SIM_" + name + "=" + value + ": expected a number in " +
                    std::to_string(least) + "..." + std::to_string(most);
        return otherwise;
    }
    return *parsed;
}

std::vector<std::string> split(const std::string &text, char separator) {
    std::vector<std::string> items;
    size_t start = 0;
    while (start <= text.size()) {
        const size_t end = std::min(text.find(separator, start), text.size());
        if (end > start) {
            items.push_back(text.substr(start, end - start));
        }
        start = end + 1;
    }
    return items;
}

std::optional<uint64_t> to_number(const std::string &text) {
    uint64_t value = 0;
    const char *end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc() || stop != end) {
        return std::nullopt;
    }
    return value;
}

} // namespace sim
