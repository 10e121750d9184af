// Checked launches: modules compiled with <uhal/checked.h> report every access, and this code
// checks the access before it happens.
#pragma once

#include "kernel.h"

#include <uhal/host_check.h>

namespace uhal_host {

// Functions that checked modules call.
extern const uhal_host_check_services check_services;

// Runs all blocks of a launch on this thread, one launch of the process at a time. Before an
// invalid access, throws std::runtime_error with a description.
void run_checked(const Launch &launch);

} // namespace uhal_host
