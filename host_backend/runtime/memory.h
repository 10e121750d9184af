// Device memory, which is ordinary memory here, and the host ranges that count as pinned.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <utility>
#include <vector>

namespace uhal_host {

class Memory {
  public:
    Memory();

    // Results are codes of abi.h.
    int allocate(uint64_t &address, size_t bytes);
    int free(uint64_t address);
    int allocate_pinned(void *&pointer, size_t bytes);
    int free_pinned(void *pointer);
    int register_range(void *pointer, size_t bytes);
    int unregister_range(void *pointer);

    bool pinned(const void *pointer, size_t bytes) const;
    // Appends (address, bytes) of everything allocated or registered here.
    void list(std::vector<std::pair<uintptr_t, size_t>> &ranges) const;
    // Appends (address, bytes) of freed memory that is held back from reuse.
    void list_freed(std::vector<std::pair<uintptr_t, size_t>> &ranges) const;
    size_t allocations() const;
    size_t pinned_ranges() const;

  private:
    struct Range {
        size_t bytes;
        bool owned; // allocated here, not registered by the user
    };

    int take(void *&pointer, size_t bytes);
    void give_back(void *pointer, size_t bytes);
    bool affordable(size_t bytes);

    mutable std::mutex lock_; // of the allocations
    std::unordered_map<uint64_t, size_t> allocations_;
    mutable std::shared_mutex pinned_lock_;
    std::map<uintptr_t, Range> pinned_; // by start
    size_t held_back_limit_;            // 0: freed memory goes back at once
    mutable std::mutex held_back_lock_;
    std::deque<std::pair<void *, size_t>> held_back_; // the oldest first
    size_t held_back_bytes_ = 0;
    std::atomic<uint64_t> live_bytes_{0};
    std::atomic<uint64_t> unchecked_bytes_{0}; // allocated since the last query of the system
};

} // namespace uhal_host
