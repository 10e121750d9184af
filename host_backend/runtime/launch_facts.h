// Facts for checking a launch's accesses: the extents of its thread's stack and of its library, and
// the names of its arguments.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace uhal_host {

struct Span {
    uintptr_t start = 0;
    uintptr_t end = 0;
    bool holds(uintptr_t address) const { return address - start < end - start; }
};

// A pointer among the arguments of a launch.
struct Argument {
    uint32_t index;
    std::string name;
    uintptr_t value;
    size_t element; // bytes
    Span memory;    // empty: unknown memory, perhaps freed by now
};

// The names in a parameter list; "" for a parameter without a name.
std::vector<std::string> parameter_names(const char *text, uint32_t count);

Span stack_of_this_thread();

// The address range of a library.
struct Image {
    Span whole;
    std::vector<Span> constant; // its read-only parts
};

// The library that holds an address.
Image image_of(const void *address);

} // namespace uhal_host
