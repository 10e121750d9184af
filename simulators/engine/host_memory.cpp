#include "host_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <iterator>

namespace sim {

namespace {

constexpr uint64_t page = 4096;
constexpr int pattern = 0xFF;

} // namespace

void *HostMemory::allocate(uint64_t bytes, unsigned flags) {
    const uint64_t pages = (bytes + page - 1) / page * page;
    if (pages < bytes || pages + page < pages) {
        return nullptr;
    }
    void *mapped = mmap(nullptr, pages + page, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) {
        return nullptr;
    }
    mprotect(static_cast<char *>(mapped) + pages, page, PROT_NONE);
    const uint64_t address = reinterpret_cast<uint64_t>(mapped);
    std::memset(mapped, pattern, std::min(bytes, uint64_t{1} << 20));
    ++generation_;
    ranges_.emplace(address, HostRange{address, bytes, flags, false, pages + page, ++serial_});
    return mapped;
}

void HostMemory::release(uint64_t address) {
    const auto found = ranges_.find(address);
    munmap(reinterpret_cast<void *>(address), found->second.mapped_bytes);
    ++generation_;
    ranges_.erase(found);
}

bool HostMemory::add(uint64_t address, uint64_t bytes, unsigned flags) {
    const auto after = ranges_.lower_bound(address + bytes);
    if (after != ranges_.begin()) {
        const HostRange &before = std::prev(after)->second;
        if (before.address + before.bytes > address) {
            return false;
        }
    }
    ++generation_;
    ranges_.emplace(address, HostRange{address, bytes, flags, true, 0, ++serial_});
    return true;
}

bool HostMemory::remove(uint64_t address) {
    const auto found = ranges_.find(address);
    if (found == ranges_.end() || !found->second.registered) {
        return false;
    }
    ++generation_;
    ranges_.erase(found);
    return true;
}

const HostRange *HostMemory::find(uint64_t address, uint64_t bytes) const {
    const auto after = ranges_.upper_bound(address);
    if (after == ranges_.begin()) {
        return nullptr;
    }
    const HostRange &range = std::prev(after)->second;
    const uint64_t offset = address - range.address;
    const bool inside = offset < range.bytes && bytes <= range.bytes - offset;
    return inside ? &range : nullptr;
}

} // namespace sim
