// Reads .topsfb files: offload bundles of GCU ELF files, whose notes describe the kernels.
#pragma once

#include <string>
#include <vector>

#include "image.h"

namespace sim {

struct GcuEntry {
    KernelDescription kernel;
    std::vector<bool> buffers; // by parameter: the note calls it a buffer
    bool described = false;    // the note has it
};

struct GcuImage {
    std::string target; // gcu300; empty when the file has no target
    std::vector<GcuEntry> entries;
    std::vector<ImageVariable> variables;
};

struct TopsfbMember {
    std::string triple; // tops-dtu-enflame-tops--gcu300
    Bytes content;
};

// Size in bytes that a bundle's header states; 0 for other bytes.
uint64_t topsfb_bytes(const void *image);

// Returns false, with the reason in `why`, when the bundle is broken. Members for hosts are
// omitted.
bool read_topsfb(const Bytes &bundle, std::vector<TopsfbMember> &members, std::string &why);

// Returns false, with the reason in `why`, when the bytes are not a GCU ELF file.
bool read_gcu(const Bytes &elf, GcuImage &image, std::string &why);

} // namespace sim
