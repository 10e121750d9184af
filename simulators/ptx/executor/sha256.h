// SHA-256 (FIPS 180-4), for names of cached files.
#pragma once

#include <string>
#include <string_view>

namespace sim {

// Lower-case hexadecimal.
std::string sha256(std::string_view bytes);

} // namespace sim
