// Checks launches as a device does and runs them.
#pragma once

#include "call.h"

namespace tops_sim {

// Copies the parameters and checks the shape against device and function.
topsError_t make_kernel_call(Call &call, const std::shared_ptr<Function> &function,
                             const sim::LaunchShape &shape, void **parameters, void **extra,
                             std::shared_ptr<KernelCall> &made);

std::function<sim::Status()> kernel_work(std::shared_ptr<KernelCall> call);

// The largest block the function takes.
unsigned max_threads(const Runtime &runtime, const Function &function);

} // namespace tops_sim
