#include "ranges.h"

#include <iterator>

namespace hsa_sim {

namespace {

uint64_t round_up(uint64_t bytes) {
    return (bytes + memory_granule - 1) / memory_granule * memory_granule;
}

} // namespace

hsa_status_t Ranges::allocate(const Pool &pool, uint64_t bytes, void **pointer) {
    const uint64_t rounded = round_up(bytes);
    if (bytes == 0 || rounded < bytes) {
        return HSA_STATUS_ERROR_INVALID_ARGUMENT;
    }
    Agent &owner = *pool.agent;
    Range range = {Range::Kind::host, 0, bytes, 0, &owner, pool.flags, {&owner}};
    if (owner.gpu()) {
        range.kind = Range::Kind::device;
        if (owner.device.memory.allocate(rounded, range.address) != sim::Status::ok) {
            return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
        }
    } else {
        void *memory = rounded > pool.bytes ? nullptr : host_.allocate(rounded, pool.flags);
        if (memory == nullptr) {
            return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
        }
        range.address = reinterpret_cast<uint64_t>(memory);
        range.program = range.address;
    }
    *pointer = reinterpret_cast<void *>(range.address);
    ranges_.emplace(range.address, range);
    return HSA_STATUS_SUCCESS;
}

hsa_status_t Ranges::free(uint64_t address) {
    const auto found = ranges_.find(address);
    const bool allocated = found != ranges_.end() && (found->second.kind == Range::Kind::device ||
                                                      found->second.kind == Range::Kind::host);
    if (!allocated) {
        return HSA_STATUS_ERROR_INVALID_ALLOCATION;
    }
    if (found->second.kind == Range::Kind::device) {
        found->second.owner->device.memory.release(address);
    } else {
        host_.release(address);
    }
    ranges_.erase(found);
    return HSA_STATUS_SUCCESS;
}

hsa_status_t Ranges::lock(uint64_t program, uint64_t bytes, Agent &owner,
                          const std::set<const Agent *> &agents, void **pointer) {
    Range range = {Range::Kind::locked, 0, bytes, program, &owner, 0, agents};
    range.flags = HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_FINE_GRAINED;
    char *memory = reinterpret_cast<char *>(program);
    if (window_.borrow(memory, bytes, range.address) != sim::Status::ok) {
        return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
    }
    *pointer = reinterpret_cast<void *>(range.address);
    locked_.emplace(program, range.address);
    ranges_.emplace(range.address, range);
    return HSA_STATUS_SUCCESS;
}

hsa_status_t Ranges::unlock(uint64_t program) {
    const auto found = locked_.find(program);
    if (found == locked_.end()) {
        return HSA_STATUS_ERROR_INVALID_ARGUMENT;
    }
    window_.release(found->second);
    ranges_.erase(found->second);
    locked_.erase(found);
    return HSA_STATUS_SUCCESS;
}

void Ranges::add_variable(Agent &owner, uint64_t address, uint64_t bytes) {
    ++variables_;
    ranges_.emplace(address, Range{Range::Kind::variable, address, bytes, 0, &owner, 0, {&owner}});
}

Range *Ranges::find(uint64_t address, uint64_t bytes) {
    const auto after = ranges_.upper_bound(address);
    if (after == ranges_.begin()) {
        return nullptr;
    }
    Range &range = std::prev(after)->second;
    const uint64_t offset = address - range.address;
    const bool inside = offset < range.bytes && bytes <= range.bytes - offset;
    return inside ? &range : nullptr;
}

const Range *Ranges::find_locked(uint64_t program) const {
    for (auto after = locked_.upper_bound(program); after != locked_.begin();) {
        const Range &range = ranges_.at((--after)->second);
        if (program - range.program < range.bytes) {
            return &range;
        }
    }
    return nullptr;
}

bool Ranges::device_only(uint64_t address) const {
    for (const sim::DeviceMemory *memory : devices) {
        if (memory->covers(address)) {
            return true;
        }
    }
    return window_.covers(address);
}

void *Ranges::view(const Range &range, uint64_t address) const {
    if (range.kind == Range::Kind::device || range.kind == Range::Kind::variable) {
        return range.owner->device.memory.view(address);
    }
    return reinterpret_cast<void *>(range.program + (address - range.address));
}

void Ranges::clear() {
    while (!locked_.empty()) {
        unlock(locked_.begin()->first);
    }
    while (!ranges_.empty()) {
        free(ranges_.begin()->first);
    }
}

} // namespace hsa_sim
