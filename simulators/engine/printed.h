// Output of kernels, kept until the program waits for the device. Hardware also writes its output
// buffer then. Thread-safe.
#pragma once

#include <cstdint>
#include <cstdio>

namespace sim {

// Keeps a text for standard output or standard error.
void print_later(FILE *stream, const char *text, uint64_t bytes);

// Writes out all kept texts.
void print_now();

} // namespace sim
