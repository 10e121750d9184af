// Missing pages of a mapped file: the file was truncated after it was mapped, or cannot be read.
#pragma once

#include <cstdint>

namespace uhal_host {

// Whether this thread has read a missing page since it set this flag to false. If a kernel or a
// copy reads such a page in read-only memory, a page of zeros replaces it, so that the read ends.
extern __thread bool page_was_missing __attribute__((visibility("hidden")));

[[noreturn]] void refuse_missing_page();

// Throws std::runtime_error, which names the file with the missing page.
inline void require_pages() {
    if (page_was_missing) {
        refuse_missing_page();
    }
}

// While this object lives, its thread is copying. `running` is true if a thread runs a kernel.
struct Copying {
    Copying();
    ~Copying();
    Copying(const Copying &) = delete;
};

// For the handler of SIGBUS: maps a page of zeros at the address; returns whether that worked.
bool stand_in(uintptr_t address);

} // namespace uhal_host
