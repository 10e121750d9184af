#include "shared_arena.h"

#include <algorithm>

#include "format.h"

namespace uhal_host {

namespace {

constexpr uintptr_t aligned(uintptr_t address) { return (address + 63) & ~uintptr_t{63}; }

} // namespace

SharedArena::SharedArena()
    : memory_(new unsigned char[capacity + 64]),
      start_(aligned(reinterpret_cast<uintptr_t>(memory_.get()))), written_(capacity / 8) {}

void SharedArena::begin_block() {
    variables_.clear();
    std::fill(written_.begin(), written_.end(), uint8_t{0});
}

void *SharedArena::place(const char *name, size_t bytes) {
    size_t all = bytes;
    for (const Variable &known : variables_) {
        if (known.name == name) {
            return reinterpret_cast<void *>(known.memory.start);
        }
        all += known.memory.end - known.memory.start;
    }
    const uintptr_t start =
        aligned(variables_.empty() ? start_ : variables_.back().memory.end + gap);
    if (all > UHAL_HOST_MAX_SHARED_BYTES || start + bytes > start_ + capacity) {
        return nullptr;
    }
    variables_.push_back({name, {start, start + bytes}});
    return reinterpret_cast<void *>(start);
}

bool SharedArena::has(uintptr_t address, size_t bytes) const {
    return std::any_of(variables_.begin(), variables_.end(), [&](const Variable &one) {
        return one.memory.holds(address) && bytes <= one.memory.end - address;
    });
}

bool SharedArena::note(uintptr_t address, size_t bytes, bool reads, bool writes) {
    const size_t offset = address - start_;
    for (size_t byte = offset; byte < offset + bytes; ++byte) {
        const uint8_t bit = static_cast<uint8_t>(1U << byte % 8);
        if (reads && (written_[byte / 8] & bit) == 0) {
            return false;
        }
        written_[byte / 8] = static_cast<uint8_t>(written_[byte / 8] | (writes ? bit : 0));
    }
    return true;
}

std::string SharedArena::element(uintptr_t address, size_t bytes) const {
    for (const Variable &one : variables_) {
        if (one.memory.holds(address)) {
            const size_t offset = address - one.memory.start;
            return offset % bytes == 0 ? format("%s[%zu]", one.name, offset / bytes)
                                       : format("%s, %zu bytes behind its start", one.name, offset);
        }
    }
    return "shared memory";
}

std::string SharedArena::outside(uintptr_t address, size_t bytes) const {
    const Variable *nearest = nullptr;
    uintptr_t closest = ~uintptr_t{0};
    for (const Variable &one : variables_) {
        const uintptr_t away = address < one.memory.start ? one.memory.start - address
                                                          : address + bytes - one.memory.end;
        if (away < closest) {
            closest = away;
            nearest = &one;
        }
    }
    if (nearest == nullptr) {
        return "";
    }
    const intptr_t offset = static_cast<intptr_t>(address - nearest->memory.start);
    return format(" at %s[%td], outside of its %zu bytes of shared memory", nearest->name,
                  offset / static_cast<intptr_t>(bytes),
                  nearest->memory.end - nearest->memory.start);
}

} // namespace uhal_host
