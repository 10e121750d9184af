// Counters of the do-nothing drivers; a benchmark compares them with its own count of calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

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

// Sets the sizes of later launches' parameters: 4 or 8 bytes each.
void uhal_null_expect(const uint32_t *sizes, unsigned count);

// Returns the counts since the last call.
uhal_null_counts uhal_null_take();
}
#pragma GCC visibility pop

namespace null_driver {

// Benchmarks have one writer at a time; a torn count would show as a wrong total.
extern uhal_null_counts counts;
extern uint32_t parameter_sizes[UHAL_NULL_PARAMETERS];
extern uint32_t parameter_offsets[UHAL_NULL_PARAMETERS]; // each aligned to its size
extern unsigned parameter_count;

inline uint64_t read(const void *parameter, uint32_t size) {
    if (size == 8) {
        uint64_t value;
        std::memcpy(&value, parameter, 8);
        return value;
    }
    uint32_t value;
    std::memcpy(&value, parameter, 4);
    return value;
}

// Sum of a launch's parameters that are passed in one block.
inline uint64_t sum_packed(const void *block) {
    uint64_t sum = 0;
    for (unsigned i = 0; i < parameter_count; ++i) {
        sum += read(static_cast<const char *>(block) + parameter_offsets[i], parameter_sizes[i]);
    }
    return sum;
}

inline void count_packed(const void *block) {
    counts.launches += 1;
    counts.checksum += sum_packed(block);
}

// A launch with a pointer to each parameter.
inline void count_pointers(void *const *parameters) {
    uint64_t sum = 0;
    for (unsigned i = 0; i < parameter_count; ++i) {
        sum += read(parameters[i], parameter_sizes[i]);
    }
    counts.launches += 1;
    counts.checksum += sum;
}

} // namespace null_driver
