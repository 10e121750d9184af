#include "profile.h"

namespace hsa_sim {

namespace {

constexpr uint32_t mib = 1 << 20;

// clang-format off
constexpr Profile profiles[] = {
    // target, family, product, chip, wavefront, units, SIMDs and waves of a unit, engines,
    // clock, memory clock, memory bits, L2, dies, hive
    {"gfx90a:sramecc+:xnack-", "gfx9-generic", "AMD Instinct MI210", 0x740F, 64, 104, 4, 32, 8,
     1700, 1600, 4096, 8 * mib, 1, true},
    {"gfx942:sramecc+:xnack-", "gfx9-4-generic", "AMD Instinct MI300X", 0x74A1, 64, 304, 4, 32, 32,
     2100, 1300, 8192, 4 * mib, 8, true},
    {"gfx1030", "gfx10-3-generic", "AMD Radeon RX 6900 XT", 0x73BF, 32, 80, 2, 32, 4,
     2560, 1000, 256, 4 * mib, 1, false},
    {"gfx1100", "gfx11-generic", "AMD Radeon RX 7900 XTX", 0x744C, 32, 96, 2, 32, 6,
     2482, 1249, 384, 6 * mib, 1, false},
    {"gfx1201", "gfx12-generic", "AMD Radeon RX 9070 XT", 0x7550, 32, 64, 2, 32, 4,
     2970, 1258, 256, 8 * mib, 1, false},
};
// clang-format on

} // namespace

const Profile *find_profile(const std::string &text, sim::AmdTarget &target) {
    sim::AmdTarget asked;
    if (!sim::parse_amd_target(text, asked)) {
        return nullptr;
    }
    for (const Profile &profile : profiles) {
        sim::parse_amd_target(profile.target, target);
        if (target.processor != asked.processor) {
            continue;
        }
        for (const auto &[feature, on] : asked.features) {
            if (target.features.count(feature) == 0) {
                return nullptr;
            }
            target.features[feature] = on;
        }
        return &profile;
    }
    return nullptr;
}

std::string profile_names() {
    std::string names;
    for (const Profile &profile : profiles) {
        names += (names.empty() ? "" : ", ") + std::string(profile.target);
    }
    return names;
}

} // namespace hsa_sim
