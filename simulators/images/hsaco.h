// Reads a code object, AMD's ELF, for the driver: the target from the header, the kernels with
// their arguments from the metadata note, and the addresses of kernels and variables from the
// symbols. ROCr looks up global objects in .symtab, or in .dynsym if LOADER_USE_DYNSYM is set.
#pragma once

#include <array>
#include <map>
#include <string>
#include <vector>

#include "image.h"

namespace sim {

// The processor and features of a code object or a device. A feature that a code object does not
// name may be on or off. A feature that a device does not name is absent.
struct AmdTarget {
    std::string processor;                // "gfx90a"
    std::map<std::string, bool> features; // "sramecc", "xnack"

    // "gfx90a:sramecc+:xnack-"
    std::string name() const;
};

// Returns false when the text is not a target's name.
bool parse_amd_target(const std::string &text, AmdTarget &target);

// Reason why code for the target `code` cannot run on `device`; empty when it can.
std::string amd_conflict(const AmdTarget &code, const AmdTarget &device);

struct HsacoArgument {
    std::string kind; // the metadata's word: by_value, global_buffer, hidden_block_count_x, …
    uint32_t offset;  // bytes
    uint32_t size;

    bool hidden() const { return kind.compare(0, 7, "hidden_") == 0; }
};

// Sizes are in bytes.
struct HsacoKernel {
    std::string name;
    std::string symbol; // of its descriptor
    bool exported = false;
    std::vector<HsacoArgument> arguments;
    uint32_t kernarg_bytes = 0;
    uint32_t group_bytes = 0;
    uint32_t private_bytes = 0;
    uint32_t max_work_items = 0;                        // of a work-group
    std::array<uint32_t, 3> required_group = {0, 0, 0}; // zeros: any
    bool dynamic_stack = false;
    std::array<unsigned char, 64> descriptor = {};
};

struct HsacoVariable {
    std::string name;
    uint64_t bytes;
};

struct HsacoImage {
    enum class Problem { none, no_code_object, impossible_target, defined_twice };

    AmdTarget target;
    unsigned version = 0; // of the code object: 4, 5 or 6
    std::vector<HsacoKernel> kernels;
    std::vector<HsacoVariable> variables;
};

// Writes the reason to `why`, unless the result is `none`.
HsacoImage::Problem read_hsaco(const Bytes &elf, HsacoImage &image, std::string &why);

} // namespace sim
