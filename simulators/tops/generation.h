// Generation of TopsRuntime that a library simulates. Each library links its own definitions.
#pragma once

namespace tops_sim {

// Result of topsRuntimeGetVersion: 1000 * major + 10 * minor.
int runtime_version();

// Whether topsDeviceProp_t is larger than the published structure, as in the newer library.
bool wide_properties();

} // namespace tops_sim
