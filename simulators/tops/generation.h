// Which generation of TopsRuntime a library plays. Each library links its own answers.
#pragma once

namespace tops_sim {

// What topsRuntimeGetVersion says: 1000 * major + 10 * minor.
int runtime_version();

// The newer library's topsDeviceProp_t is larger than the published one.
bool wide_properties();

} // namespace tops_sim
