// The driver's functions that are not simulated. Each function exists, refuses the call, and gives
// a reason.
#pragma once

#include <vector>

namespace cuda_sim {

struct Unsimulated {
    const char *symbol;
    void *function;
};

// Every form of a function that refuses calls. The forms for a thread's own null stream have no
// entries of their own.
const std::vector<Unsimulated> &unsimulated();

// Refuses a call with CUDA_ERROR_NOT_SUPPORTED, after the checks that every call makes; returns a
// CUresult. The first refusal puts the reason into the report.
int refuse_unsimulated(const char *symbol, const char *reason);

} // namespace cuda_sim
