// Output of kernels. It is kept until the program waits for the device, as on hardware, which
// writes its buffer out then. Thread-safe.
#pragma once

#include <cstdint>
#include <cstdio>

namespace sim {

// Keeps a text for standard output or standard error.
void print_later(FILE *stream, const char *text, uint64_t bytes);

// Writes out all that was kept.
void print_now();

} // namespace sim
