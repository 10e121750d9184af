#include "profile.h"

#include <iterator>

namespace cuda_sim {

namespace {

constexpr unsigned kib = 1024;
constexpr unsigned mib = 1024 * kib;

// clang-format off
constexpr Profile profiles[] = {
    // target, processors, threads, blocks, shared, opt-in, reserved, L2, clock, memory's, bus,
    // copy engines, clusters
    {70,  80, 2048, 32,  96 * kib,  96 * kib,   0,   6 * mib, 1530000,   877000, 4096, 5, false},
    {75,  40, 1024, 16,  64 * kib,  64 * kib,   0,   4 * mib, 1590000,  5001000,  256, 3, false},
    {80, 108, 2048, 32, 164 * kib, 163 * kib, kib,  40 * mib, 1410000,  1215000, 5120, 3, false},
    {86,  28, 1536, 16, 100 * kib,  99 * kib, kib,   3 * mib, 1777000,  7501000,  192, 2, false},
    {89, 128, 1536, 24, 100 * kib,  99 * kib, kib,  72 * mib, 2520000, 10501000,  384, 2, false},
    {90, 132, 2048, 32, 228 * kib, 227 * kib, kib,  50 * mib, 1980000,  2619000, 5120, 3, true},
    {100, 148, 2048, 32, 228 * kib, 227 * kib, kib, 126 * mib, 1965000, 3996000, 8192, 4, true},
    {120, 170, 1536, 24, 100 * kib,  99 * kib, kib,  96 * mib, 2407000, 14001000, 512, 2, true},
};
// clang-format on

struct PtxOfDriver {
    unsigned driver;
    unsigned ptx;
};

constexpr PtxOfDriver ptx_of_drivers[] = {
    {11000, 70}, {11010, 71}, {11020, 72}, {11030, 73}, {11040, 74}, {11050, 75}, {11060, 76},
    {11070, 77}, {11080, 78}, {12000, 80}, {12010, 81}, {12020, 82}, {12030, 83}, {12040, 84},
    {12050, 85}, {12060, 85}, {12070, 86}, {12080, 87}, {12090, 88}, {13000, 90}, {13010, 91},
    {13020, 92}, {13030, 93}, {13040, 94}, {13050, 95},
};

} // namespace

std::string Profile::name() const {
    return "uhal simulated sm_" + std::to_string(target);
}

const Profile *find_profile(const std::string &name) {
    for (const Profile &profile : profiles) {
        if (name == "sm_" + std::to_string(profile.target)) {
            return &profile;
        }
    }
    return nullptr;
}

std::string profile_names() {
    std::string names;
    for (const Profile &profile : profiles) {
        names += (names.empty() ? "sm_" : ", sm_") + std::to_string(profile.target);
    }
    return names;
}

unsigned newest_ptx(unsigned driver) {
    unsigned newest = 0;
    for (const PtxOfDriver &row : ptx_of_drivers) {
        newest = row.driver <= driver ? row.ptx : newest;
    }
    return newest;
}

} // namespace cuda_sim
