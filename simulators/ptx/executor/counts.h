// UHAL_SIM_COUNTS: the counts of each launch of a counting driver, a line of JSON each.
#pragma once

#include <cstdint>
#include <string>

#include "../runtime/count.h"

namespace sim {

// Names of a launch whose counts are written, and their file.
struct CountsOfLaunch {
    const std::string &file;
    const std::string &entry;
    const std::string &text_file;
};

// Returns whether a file can be appended to; creates the file if it is missing.
bool can_append(const std::string &file);

// `uptx_counting::tell`; its context is a CountsOfLaunch.
void write_counts(const uptx_launch *launch, const char *members, uint64_t bytes);

} // namespace sim
