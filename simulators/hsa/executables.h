// Loads code objects onto agents.
#pragma once

#include "call.h"

namespace hsa_sim {

hsa_status_t load_code_object(Runtime &runtime, const std::shared_ptr<Executable> &executable,
                              Agent &agent, const CodeObjectReader &reader);

// Finds the code of a kernel. False, with the reason in `refusal`, if the kernel cannot be
// simulated.
bool find_code(Symbol &symbol);

} // namespace hsa_sim
