// The library exports the declarations of these headers.
#pragma once

#pragma GCC visibility push(default)
#include "graph_abi.h"
#pragma GCC visibility pop
