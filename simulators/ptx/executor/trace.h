// UHAL_SIM_TRACE: every instruction of one thread on standard error, with its results.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "../runtime/ptx.h"

namespace sim {

struct TracedThread {
    // Reads `bx,by,bz:tx,ty,tz`; returns false for any other text.
    static bool parse(const std::string &text, TracedThread &thread);

    bool wanted = false;
    std::array<uint32_t, 3> block = {};
    std::array<uint32_t, 3> thread = {};
};

// Lets a launch trace one thread; `lines` are the kernel's text and outlive the launch.
void trace_launch(uptx_launch &launch, const TracedThread &traced,
                  const std::vector<std::string> &lines);

std::vector<std::string> lines_of(const std::string &text_file);

} // namespace sim
