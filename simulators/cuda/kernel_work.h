// Checks launches as a device does and runs them.
#pragma once

#include "call.h"

namespace cuda_sim {

// Copies the parameters and checks the shape against device and function.
CUresult make_kernel_call(const std::shared_ptr<Function> &function, const sim::LaunchShape &shape,
                          void **parameters, void **extra, std::shared_ptr<KernelCall> &call);

std::function<sim::Status()> kernel_work(std::shared_ptr<KernelCall> call);

// Number of blocks of this size that a multiprocessor holds at once; 0 if no block fits.
unsigned resident_blocks(const Function &function, unsigned threads, size_t dynamic_shared);

// The largest block that the function takes.
unsigned max_threads(const Function &function);

// The function of a CUfunction, or of a CUkernel cast to a CUfunction; translates the kernel if
// needed.
CUresult function_of(Call &call, CUfunction handle, std::shared_ptr<Function> &function);

} // namespace cuda_sim
