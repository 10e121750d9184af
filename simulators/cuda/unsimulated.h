// The driver's functions that are not simulated: they exist, refuse, and say why.
#pragma once

#include <vector>

namespace cuda_sim {

struct Unsimulated {
    const char *symbol;
    void *function;
};

// Every form that refuses. Those for a thread's own null stream are no entries of their own.
const std::vector<Unsimulated> &unsimulated();

// What such a function does when it is called: refuses with CUDA_ERROR_NOT_SUPPORTED, once the call
// itself is allowed. The reason goes to the report, the first time. A CUresult.
int refuse_unsimulated(const char *symbol, const char *reason);

} // namespace cuda_sim
