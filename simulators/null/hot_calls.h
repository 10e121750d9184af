// What the do-nothing driver tells a benchmark, which holds it against what it meant to do.
#pragma once

#include <cstdint>

enum { UHAL_NULL_PARAMETERS = 32 };

struct uhal_null_counts {
    uint64_t launches;
    uint64_t checksum; // sum of all parameters, each read as an unsigned integer of its size
    uint64_t allocations;
    uint64_t frees;
    uint64_t copies;
    uint64_t copied_bytes;
    uint64_t waits; // for a stream
    uint64_t records;
};

#pragma GCC visibility push(default)
extern "C" {

// How launches lay out their parameters from now on: 4 or 8 bytes each.
void uhal_null_expect(const uint32_t *sizes, unsigned count);

// What was counted since the last call.
uhal_null_counts uhal_null_take();
}
#pragma GCC visibility pop
