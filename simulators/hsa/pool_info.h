// What pools and the older interface to them, regions, share.
#pragma once

#include "call.h"

namespace hsa_sim {

hsa_status_t free_range(Runtime &runtime, void *pointer);

} // namespace hsa_sim
