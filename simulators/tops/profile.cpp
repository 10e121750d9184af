#include "profile.h"

namespace tops_sim {

namespace {

constexpr uint64_t mib = 1 << 20;
constexpr unsigned any = 0x7FFFFFFF;

// No source states the grids of S60 and T20, the clusters of T20, or Libra's values except SIPs.
// clang-format off
constexpr Profile profiles[] = {
    // product, target, clusters, SIPs, shared, clock, memory clock, bus, grid, sub-threads
    {"S60",   "gcu300", 2, 12, 64 * mib, 1416000, 7000000, 384, {any, 65535, 65535}, false},
    {"i20",   "gcu210", 2, 12, 24 * mib, 1400000, 1600000, 2048, {65536, 256, 256}, false},
    {"T20",   "gcu200", 4,  6, 24 * mib, 1300000, 1600000, 4096, {any, 65535, 65535}, false},
    {"Libra", "gcu400", 4,  6, 64 * mib, 1500000, 3200000, 4096, {any, 65535, 65535}, true},
};
// clang-format on

} // namespace

const Profile *find_profile(const std::string &product) {
    for (const Profile &profile : profiles) {
        if (product == profile.product) {
            return &profile;
        }
    }
    return nullptr;
}

std::string profile_names() {
    std::string names;
    for (const Profile &profile : profiles) {
        names += (names.empty() ? "" : ", ") + std::string(profile.product);
    }
    return names;
}

} // namespace tops_sim
