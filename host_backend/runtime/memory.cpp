#include "memory.h"

#include <cstdlib>
#include <iterator>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "abi.h"
#include "platform.h"

namespace uhal_host {

namespace {

constexpr size_t alignment = 256;
constexpr size_t huge_page = size_t{2} << 20;
// From this size on, whole huge pages are requested.
constexpr size_t large = size_t{8} << 20;
// Bytes that may be allocated before free memory is queried again.
constexpr uint64_t check_interval = uint64_t{32} << 20;

// Freed memory that UHAL_HOST_CHECK=1 keeps from reuse, to detect accesses by a kernel.
constexpr size_t most_held_back = size_t{64} << 20;

} // namespace

Memory::Memory() {
    unsigned checked = 0;
    environment_number("UHAL_HOST_CHECK", 0, 1, checked);
    held_back_limit_ = checked != 0 ? most_held_back : 0;
}

int Memory::allocate(uint64_t &address, size_t bytes) {
    void *pointer;
    if (const int error = take(pointer, bytes)) {
        return error;
    }
    address = reinterpret_cast<uintptr_t>(pointer);
    const std::lock_guard<std::mutex> guard(lock_);
    allocations_.emplace(address, bytes);
    return UHAL_HOST_SUCCESS;
}

int Memory::free(uint64_t address) {
    size_t bytes;
    {
        const std::lock_guard<std::mutex> guard(lock_);
        const auto found = allocations_.find(address);
        if (found == allocations_.end()) {
            return UHAL_HOST_ERROR_INVALID_VALUE;
        }
        bytes = found->second;
        allocations_.erase(found);
    }
    give_back(reinterpret_cast<void *>(static_cast<uintptr_t>(address)), bytes);
    return UHAL_HOST_SUCCESS;
}

int Memory::allocate_pinned(void *&pointer, size_t bytes) {
    if (const int error = take(pointer, bytes)) {
        return error;
    }
    const std::unique_lock<std::shared_mutex> guard(pinned_lock_);
    pinned_[reinterpret_cast<uintptr_t>(pointer)] = {bytes, true};
    return UHAL_HOST_SUCCESS;
}

int Memory::free_pinned(void *pointer) {
    size_t bytes;
    {
        const std::unique_lock<std::shared_mutex> guard(pinned_lock_);
        const auto found = pinned_.find(reinterpret_cast<uintptr_t>(pointer));
        if (found == pinned_.end() || !found->second.owned) {
            return UHAL_HOST_ERROR_INVALID_VALUE;
        }
        bytes = found->second.bytes;
        pinned_.erase(found);
    }
    give_back(pointer, bytes);
    return UHAL_HOST_SUCCESS;
}

int Memory::register_range(void *pointer, size_t bytes) {
    const uintptr_t start = reinterpret_cast<uintptr_t>(pointer);
    if (bytes == 0 || start + bytes < start) {
        return UHAL_HOST_ERROR_INVALID_VALUE;
    }
    const std::unique_lock<std::shared_mutex> guard(pinned_lock_);
    const auto after = pinned_.lower_bound(start);
    const bool meets_next = after != pinned_.end() && after->first < start + bytes;
    const auto before = after == pinned_.begin() ? pinned_.end() : std::prev(after);
    if (meets_next || (before != pinned_.end() && before->first + before->second.bytes > start)) {
        return UHAL_HOST_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    }
    pinned_[start] = {bytes, false};
    return UHAL_HOST_SUCCESS;
}

int Memory::unregister_range(void *pointer) {
    const std::unique_lock<std::shared_mutex> guard(pinned_lock_);
    const auto found = pinned_.find(reinterpret_cast<uintptr_t>(pointer));
    if (found == pinned_.end() || found->second.owned) {
        return UHAL_HOST_ERROR_HOST_MEMORY_NOT_REGISTERED;
    }
    pinned_.erase(found);
    return UHAL_HOST_SUCCESS;
}

bool Memory::pinned(const void *pointer, size_t bytes) const {
    const uintptr_t start = reinterpret_cast<uintptr_t>(pointer);
    const std::shared_lock<std::shared_mutex> guard(pinned_lock_);
    auto found = pinned_.upper_bound(start);
    if (found == pinned_.begin()) {
        return false;
    }
    --found;
    const size_t offset = start - found->first;
    return offset < found->second.bytes && bytes <= found->second.bytes - offset;
}

void Memory::list(std::vector<std::pair<uintptr_t, size_t>> &ranges) const {
    {
        const std::lock_guard<std::mutex> guard(lock_);
        ranges.insert(ranges.end(), allocations_.begin(), allocations_.end());
    }
    const std::shared_lock<std::shared_mutex> guard(pinned_lock_);
    for (const auto &[start, range] : pinned_) {
        ranges.emplace_back(start, range.bytes);
    }
}

void Memory::list_freed(std::vector<std::pair<uintptr_t, size_t>> &ranges) const {
    const std::lock_guard<std::mutex> guard(held_back_lock_);
    for (const auto &[pointer, bytes] : held_back_) {
        ranges.emplace_back(reinterpret_cast<uintptr_t>(pointer), bytes);
    }
}

size_t Memory::allocations() const {
    const std::lock_guard<std::mutex> guard(lock_);
    return allocations_.size();
}

size_t Memory::pinned_ranges() const {
    const std::shared_lock<std::shared_mutex> guard(pinned_lock_);
    return pinned_.size();
}

int Memory::take(void *&pointer, size_t bytes) {
    if (bytes == 0) {
        return UHAL_HOST_ERROR_INVALID_VALUE;
    }
    if (!affordable(bytes) ||
        posix_memalign(&pointer, bytes >= large ? huge_page : alignment, bytes) != 0) {
        return UHAL_HOST_ERROR_OUT_OF_MEMORY;
    }
#if defined(MADV_HUGEPAGE)
    if (bytes >= large) {
        madvise(pointer, bytes, MADV_HUGEPAGE);
    }
#endif
    live_bytes_.fetch_add(bytes, std::memory_order_relaxed);
    return UHAL_HOST_SUCCESS;
}

void Memory::give_back(void *pointer, size_t bytes) {
    if (bytes >= held_back_limit_) {
        ::free(pointer);
        live_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
        return;
    }
    const std::lock_guard<std::mutex> guard(held_back_lock_);
    held_back_.emplace_back(pointer, bytes);
    held_back_bytes_ += bytes;
    while (held_back_bytes_ > held_back_limit_) {
        const auto [oldest, size] = held_back_.front();
        held_back_.pop_front();
        held_back_bytes_ -= size;
        ::free(oldest);
        live_bytes_.fetch_sub(size, std::memory_order_relaxed);
    }
}

// The system overcommits memory, and kills a process that then uses this memory. Refuse an
// allocation larger than free memory, or larger than total memory minus the live allocations.
bool Memory::affordable(size_t bytes) {
    const uint64_t unchecked = unchecked_bytes_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    if (unchecked < check_interval) {
        return true;
    }
    unchecked_bytes_.store(0, std::memory_order_relaxed);
    const uint64_t total = total_memory();
    const uint64_t live = live_bytes_.load(std::memory_order_relaxed);
    return bytes <= available_memory() && live <= total && bytes <= total - live;
}

} // namespace uhal_host
