// Reads a fatbin: a container of cubins and PTX texts for several targets, each compressed or not.
#pragma once

#include <string>
#include <vector>

#include "image.h"

namespace sim {

struct FatbinMember {
    Image::Kind kind;
    unsigned target;
    std::vector<unsigned char> content; // decompressed; a PTX text ends with a zero byte
    std::string problem;                // why there is no content
};

// Size in bytes that a fatbin's header states, header included; 0 for other bytes.
uint64_t fatbin_bytes(const void *image);

// Returns false, with the reason in `why`, when the container is broken.
bool read_fatbin(const Bytes &container, std::vector<FatbinMember> &members, std::string &why);

} // namespace sim
