// The source line of an instruction in a library.
#pragma once

#include <string>

namespace uhal_host {

// Returns `file.cpp:12` by the library's debug information and binutils' addr2line. If either is
// missing, returns the offset in the library.
std::string source_line(const void *instruction);

} // namespace uhal_host
