// Reads a cubin, NVIDIA's ELF, for the driver: target, entries with their parameters from the
// .nv.info sections, variables from the symbol table.
#pragma once

#include <string>

#include "image.h"

namespace sim {

// Size in bytes that an ELF image's header states; 0 for other bytes.
uint64_t elf_bytes(const void *image);

// Returns false, with the reason in `why`, when the bytes are not a cubin.
bool read_cubin(const Bytes &elf, Image &image, std::string &why);

} // namespace sim
