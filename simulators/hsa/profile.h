// Properties of the simulated GPUs: properties of real GPUs, by processor.
#pragma once

#include <cstdint>
#include <string>

#include "../images/hsaco.h"

namespace hsa_sim {

struct Profile {
    const char *target;  // with the features that it usually has enabled
    const char *generic; // the family of processors it belongs to
    const char *product;
    uint32_t chip;
    uint32_t wavefront;
    uint32_t compute_units;
    uint32_t simds_per_unit;
    uint32_t waves_per_unit;
    uint32_t shader_engines;
    uint32_t clock_mhz;
    uint32_t memory_mhz;
    uint32_t memory_bits;
    uint32_t l2_bytes;
    uint32_t xccs; // compute dies
    bool hive;     // several are linked by xGMI
};

constexpr uint32_t max_group_items = 1024;
constexpr uint32_t group_bytes = 64 * 1024; // LDS that a work-group may have
// Limit of wave64 hardware for the scratch memory of a work-item, in bytes.
constexpr uint32_t max_private_bytes = 128 * 1024;
constexpr uint32_t min_queue_packets = 64;
constexpr uint32_t max_queue_packets = 131072;

// The profile for `gfx90a` or `gfx90a:xnack+`, with the named features set in `target`. Null if
// there is no such profile, or if it lacks a named feature.
const Profile *find_profile(const std::string &text, sim::AmdTarget &target);

// All names, for messages.
std::string profile_names();

} // namespace hsa_sim
