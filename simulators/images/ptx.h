// Reads PTX text for the driver: version, target, entries with their parameters, variables. It
// skips the instructions.
#pragma once

#include <string>
#include <string_view>

#include "image.h"

namespace sim {

// Returns false, with the reason and line number in `why`, when the text is not PTX.
bool read_ptx(std::string_view text, Image &image, std::string &why);

} // namespace sim
