// Records the accesses to each memory word during a checked launch: the last write and two reads,
// with their work-items.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>

namespace uhal_host {

struct Access {
    uint32_t block = 0;  // linear
    uint32_t clock = 0;  // counts barriers, fences and beginnings of blocks; 0: there was none
    uint32_t place = 0;  // of the instruction in the library
    uint16_t thread = 0; // of the block, linear
    uint8_t bytes = 0;   // a bit for each byte of the word
    uint8_t flags = 0;   // UHAL_HOST_CHECK_…
};

struct Cell {
    Access write;
    Access read;
    Access other_read; // by another work-item than `read`
};

class Shadow {
  public:
    static constexpr size_t word_bytes = 4;

    Cell &cell(uintptr_t address) {
        const uintptr_t page = address / page_bytes;
        Known &known = known_[page % known_count];
        if (page != known.number) {
            std::unique_ptr<Page> &found = pages_[page];
            if (found == nullptr) {
                found = std::make_unique<Page>();
            }
            known = {page, found.get()};
        }
        return known.page->cells[address % page_bytes / word_bytes];
    }

  private:
    static constexpr size_t page_bytes = 4096;
    struct Page {
        Cell cells[page_bytes / word_bytes];
    };

    // A cache of many pages: adjacent work-items access several arrays in turn.
    struct Known {
        uintptr_t number = ~uintptr_t{0};
        Page *page = nullptr;
    };
    static constexpr size_t known_count = 1024;

    std::unordered_map<uintptr_t, std::unique_ptr<Page>> pages_;
    Known known_[known_count];
};

} // namespace uhal_host
