// What PTX a linker's input holds, of every kind of file that nvJitLink takes.
#pragma once

#include <string>

#include "../images/attached_ptx.h"

namespace compilers {

// Adds the input's texts to `found`, those for the newest device up to `target` (86 for sm_86) where
// there are several; the input's name goes to the problem where there is none.
void add_ptx_of(const sim::Bytes &input, const std::string &name, unsigned target,
                sim::AttachedPtx &found);

} // namespace compilers
