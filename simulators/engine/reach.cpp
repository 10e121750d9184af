#include "reach.h"

#include <algorithm>

namespace sim {

void ReachBuilder::add(const DeviceMemory &memory) {
    for (const auto &[address, allocation] : memory.all()) {
        add(allocation);
    }
    if (!memory.freed().empty()) {
        const uint64_t freed = name("freed allocation");
        for (const FreedRange &range : memory.freed()) {
            add(range.address, range.bytes, UPTX_FREED, freed);
        }
    }
}

void ReachBuilder::add(const Allocation &allocation) {
    // Memory whose release is queued is included, because earlier work may still use it.
    if (allocation.mapped) {
        const uint64_t called =
            allocation.name.empty() ? name("allocation") : name("variable " + allocation.name);
        add(allocation.address, allocation.bytes, allocation.read_only ? UPTX_READ_ONLY : UPTX_LIVE,
            called);
    }
}

void ReachBuilder::add(const HostMemory &memory) {
    for (const auto &[address, range] : memory.all()) {
        add(address, range.bytes, UPTX_LIVE, name("page-locked host memory"));
    }
}

Reach ReachBuilder::finish(const Window &window) {
    std::sort(reach_.ranges.begin(), reach_.ranges.end(),
              [](const auto &left, const auto &right) { return left.address < right.address; });
    reach_.window = window;
    return std::move(reach_);
}

void ReachBuilder::add(uint64_t address, uint64_t bytes, uint32_t state, uint64_t called) {
    reach_.ranges.push_back({address, bytes, state, 0, called});
}

uint64_t ReachBuilder::name(const std::string &text) {
    // All memory of one kind shares a name; each variable has its own name.
    const auto begin = reach_.names.rbegin();
    const auto end = begin + std::min<ptrdiff_t>(4, reach_.names.rend() - begin);
    const auto known = std::find(begin, end, text);
    if (known != end) {
        return static_cast<uint64_t>(reach_.names.rend() - known) - 1;
    }
    reach_.names.push_back(text);
    return reach_.names.size() - 1;
}

} // namespace sim
