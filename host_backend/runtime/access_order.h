// The order of accesses in a checked launch. Barriers order the accesses within a block. A fence
// with an atomic operation behind it orders accesses of different blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>

#include <uhal/host_check.h>

#include "shadow.h"

namespace uhal_host {

// Blocks are judged one after another. So a clock that counts barriers, fences and beginnings of
// blocks is enough to order accesses.
class AccessOrder {
  public:
    void begin_block(uint32_t block) {
        block_ = block;
        acquired_ = 0;
        phase_ = ++clock_;
    }

    void barrier() { phase_ = ++clock_; }

    void fence() { fences_[block_] = ++clock_; }

    // Notes an access of the running block. `place` identifies the instruction in reports. Returns
    // an earlier access that conflicts with this access, or null. The pointer is valid until the
    // next call.
    const Access *conflict(uintptr_t address, size_t bytes, uint32_t flags, uint16_t thread,
                           uint32_t place, bool in_shared) {
        if ((flags & UHAL_HOST_CHECK_ATOMIC) != 0) {
            acquired_ = clock_;
        }
        for (uintptr_t word = address & ~(Shadow::word_bytes - 1); word < address + bytes;
             word += Shadow::word_bytes) {
            uint8_t mask = 0;
            for (size_t byte = 0; byte < Shadow::word_bytes; ++byte) {
                if (word + byte >= address && word + byte < address + bytes) {
                    mask = static_cast<uint8_t>(mask | 1U << byte);
                }
            }
            const Access now = {block_, clock_, place, thread, mask, static_cast<uint8_t>(flags)};
            Cell &cell = shadow_.cell(word);
            for (const Access *before : {&cell.write, &cell.read, &cell.other_read}) {
                if (conflicts(*before, now, in_shared)) {
                    return before;
                }
            }
            note(cell, now, in_shared);
        }
        return nullptr;
    }

  private:
    // Returns whether `before` is ordered before the next access of the current work-item.
    bool ordered(const Access &before, const Access &now, bool in_shared) const {
        if (before.block != now.block) {
            if (in_shared) {
                return true; // another block's memory was there
            }
            const auto fence = fences_.find(before.block);
            return fence != fences_.end() && before.clock < fence->second &&
                   acquired_ >= fence->second;
        }
        return before.thread == now.thread || before.clock < phase_;
    }

    bool conflicts(const Access &before, const Access &now, bool in_shared) const {
        const uint32_t either = before.flags | now.flags;
        const uint32_t both = before.flags & now.flags;
        return before.clock != 0 && (before.bytes & now.bytes) != 0 &&
               (either & UHAL_HOST_CHECK_WRITE) != 0 && (both & UHAL_HOST_CHECK_ATOMIC) == 0 &&
               !ordered(before, now, in_shared);
    }

    void note(Cell &cell, const Access &now, bool in_shared) {
        if ((now.flags & UHAL_HOST_CHECK_WRITE) != 0) {
            cell.write = now;
            return;
        }
        for (Access *kept : {&cell.read, &cell.other_read}) {
            if (kept->clock == 0 || ordered(*kept, now, in_shared)) {
                *kept = now;
                return;
            }
        }
    }

    Shadow shadow_;
    std::unordered_map<uint32_t, uint32_t> fences_; // block → clock of its last fence
    uint32_t block_ = 0;
    uint32_t clock_ = 0;
    uint32_t phase_ = 0;    // the clock when this block passed its last barrier
    uint32_t acquired_ = 0; // the clock of this block's last atomic operation
};

} // namespace uhal_host
