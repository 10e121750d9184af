// Reads PTX text for the driver: version, target, entries with their parameters, variables. It
// skips the instructions.
#pragma once

#include <string>
#include <string_view>

#include "image.h"

namespace sim {

// False with words in `why`, line number included, when the text is not PTX.
bool read_ptx(std::string_view text, Image &image, std::string &why);

} // namespace sim
