// What these headers declare is what the library exports.
#pragma once

#pragma GCC visibility push(default)
#include "graph_abi.h"
#pragma GCC visibility pop
