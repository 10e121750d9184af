// Pages of a mapped file that are gone: it was cut short after it was mapped, or cannot be read.
#pragma once

#include <cstdint>

namespace uhal_host {

// Where a kernel or a copy meets such a page in memory that nobody writes, a page of zeros stands in,
// so that it ends. Whether this thread has met one since it set this to false.
extern __thread bool page_was_missing __attribute__((visibility("hidden")));

[[noreturn]] void refuse_missing_page();

// Throws std::runtime_error, which names the file, where a page was missing.
inline void require_pages() {
    if (page_was_missing) {
        refuse_missing_page();
    }
}

// While there is one, this thread copies. That it runs a kernel is known anyway (`running`).
struct Copying {
    Copying();
    ~Copying();
    Copying(const Copying &) = delete;
};

// For the handler of SIGBUS: whether a page of zeros stands at the address now.
bool stand_in(uintptr_t address);

} // namespace uhal_host
