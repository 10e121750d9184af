// PTX embedded in a cubin. The simulator cannot execute machine code, so the PTX text is added to
// the compiled cubin as a separate section. The rest of the file is unchanged.
#pragma once

#include <string>
#include <vector>

#include "image.h"

namespace sim {

struct AttachedPtx {
    std::vector<std::string> texts; // one for each linked part
    std::string problem;            // reason why a part has no text; empty otherwise
};

// Returns the cubin with the texts added; empty when the bytes are no ELF file.
std::vector<unsigned char> attach_ptx(const Bytes &cubin, const AttachedPtx &attached);

// Returns false when nothing is attached.
bool read_attached_ptx(const Bytes &cubin, AttachedPtx &attached);

// Returns the cubin as the compiler made it.
std::vector<unsigned char> without_attached_ptx(const Bytes &cubin);

} // namespace sim
