// Properties of the simulated devices: limits of real devices, by compute capability.
#pragma once

#include <cstdint>
#include <string>

namespace cuda_sim {

struct Profile {
    unsigned target; // 86 for sm_86
    unsigned processors;
    unsigned threads_per_processor;
    unsigned blocks_per_processor;
    unsigned shared_per_processor; // bytes
    unsigned shared_per_block_optin;
    unsigned shared_reserved_per_block;
    unsigned l2_bytes;
    unsigned clock_khz;
    unsigned memory_clock_khz;
    unsigned memory_bus_bits;
    unsigned copy_engines;
    bool clusters;

    unsigned major() const { return target / 10; }
    unsigned minor() const { return target % 10; }
    std::string name() const;
};

constexpr unsigned max_threads_per_block = 1024;
constexpr unsigned max_block[3] = {1024, 1024, 64};
constexpr unsigned max_grid[3] = {2147483647, 65535, 65535};
constexpr unsigned shared_per_block = 48 * 1024; // without asking for more
constexpr unsigned registers_per_processor = 65536;
constexpr unsigned warp = 32;
constexpr unsigned max_cluster_blocks = 8;

// The profile called `sm_<target>`; null when there is none.
const Profile *find_profile(const std::string &name);

// All names, for messages.
std::string profile_names();

// The newest PTX version, as 10 * major + minor, that a driver of this CUDA version compiles.
unsigned newest_ptx(unsigned driver);

} // namespace cuda_sim
