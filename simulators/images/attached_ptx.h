// PTX that travels inside a cubin. A compiler was asked for machine code, which nothing here can
// execute; the text it was made from goes along in a section of its own, and the rest of the
// file stays the compiler's.
#pragma once

#include <string>
#include <vector>

#include "image.h"

namespace sim {

struct AttachedPtx {
    std::vector<std::string> texts; // one for each part that was linked
    std::string problem;            // why there is no text of some part; empty otherwise
};

// The cubin with the texts in it; empty when the bytes are no ELF file.
std::vector<unsigned char> attach_ptx(const Bytes &cubin, const AttachedPtx &attached);

// False when nothing is attached.
bool read_attached_ptx(const Bytes &cubin, AttachedPtx &attached);

// The cubin as the compiler made it.
std::vector<unsigned char> without_attached_ptx(const Bytes &cubin);

} // namespace sim
