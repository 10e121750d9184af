// Reductions of f16 and bf16 for MPI; MPI itself has no such reductions.
#pragma once

#include <cstdint>

namespace uhal_host {

// The address of an MPI_User_function; 0 for another dtype or operation. `dtype` is f16 or bf16,
// `op` sum, prod, max or min.
uint64_t reduction(const char *dtype, const char *op);

} // namespace uhal_host
