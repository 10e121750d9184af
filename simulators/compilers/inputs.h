// What PTX a linker's input holds, of every kind of file that nvJitLink takes.
#pragma once

#include <string>

#include "../images/attached_ptx.h"

namespace compilers {

// Adds the input's texts to `found`, or a reason why there are none.
void add_ptx_of(const sim::Bytes &input, const std::string &name, sim::AttachedPtx &found);

} // namespace compilers
