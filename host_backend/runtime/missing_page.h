// Pages of a mapped file that are gone: it was cut short after it was mapped, or cannot be read.
#pragma once

#include <cstdint>

namespace uhal_host {

// Where a kernel or a copy meets such a page in memory that nobody writes, a page of zeros stands in,
// so that it ends, and the thread keeps what is to be said. `require_pages` says it.
class Reading {
  public:
    Reading();
    ~Reading();
    Reading(const Reading &) = delete;

    // Throws std::runtime_error, which names the file, where a page was missing.
    void require_pages() const;

  private:
    const bool was_reading_;
};

// For the handler of SIGBUS: whether a page of zeros stands at the address now.
bool stand_in(uintptr_t address);

} // namespace uhal_host
