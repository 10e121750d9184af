// Outcomes of a piece of simulated work. Each simulated driver maps the outcomes to its own codes.
#pragma once

namespace sim {

enum class Status {
    ok,
    out_of_memory,
    illegal_address,
    misaligned_address,
    launch_failed,
    launch_timeout,
    assertion_failed,
};

} // namespace sim
