// Where in its source an instruction of a library is.
#pragma once

#include <string>

namespace uhal_host {

// `file.cpp:12`, as the library's debug information says; the place in the library where it has
// none, or where addr2line of binutils is missing.
std::string source_line(const void *instruction);

} // namespace uhal_host
