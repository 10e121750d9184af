// Properties of the simulated devices. Comments mark numbers without public evidence.
#pragma once

#include <cstdint>
#include <string>

namespace tops_sim {

struct Profile {
    const char *product;
    const char *target; // gcu300
    unsigned clusters;
    unsigned sips;         // of a cluster
    uint64_t shared_bytes; // L2 of a cluster, as it is reported
    unsigned clock_khz;
    unsigned memory_clock_khz;
    unsigned memory_bus_bits;
    unsigned max_grid[3];
    bool sub_threads; // launches give every SIP a number of threads, and blocks have no third axis

    // gcuArchName: dtu-enflame-tops--gcu300
    std::string architecture() const { return std::string("dtu-enflame-tops--") + target; }
    int major() const { return target[3] - '0'; }
    int minor() const { return target[4] - '0'; }
};

// The part of the reported L2 that launches can use.
constexpr uint64_t usable_shared_bytes = uint64_t{60} << 20;
constexpr unsigned max_sub_threads = 8;

// The profile of a product's name; null when there is none.
const Profile *find_profile(const std::string &product);

// All names, for messages.
std::string profile_names();

} // namespace tops_sim
