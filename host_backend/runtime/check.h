// Checked launches: modules compiled with <uhal/checked.h> report every access, which is checked
// here before it happens.
#pragma once

#include "kernel.h"

#include <uhal/host_check.h>

namespace uhal_host {

// What checked modules call.
extern const uhal_host_check_services check_services;

// Runs all blocks of a launch on this thread, one launch of the process at a time. An invalid
// access is not made: std::runtime_error with a description is thrown.
void run_checked(const Launch &launch);

} // namespace uhal_host
