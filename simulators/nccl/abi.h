// The library exports the declarations of this header.
#pragma once

#pragma GCC visibility push(default)
#include "../../uhal/collectives/nccl_abi.h"
#pragma GCC visibility pop
