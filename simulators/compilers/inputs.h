// Finds the PTX in a linker's input, in every kind of file that nvJitLink takes.
#pragma once

#include <string>

#include "../images/attached_ptx.h"

namespace compilers {

// Adds the input's PTX texts to `found`. If a fatbin has several texts, adds the text for the
// newest target up to `target` (86 for sm_86). An input without PTX adds its name to the problem.
void add_ptx_of(const sim::Bytes &input, const std::string &name, unsigned target,
                sim::AttachedPtx &found);

} // namespace compilers
