// The source line of an instruction in a library.
#pragma once

#include <string>

namespace uhal_host {

// `file.cpp:12`, from the library's debug information; the offset in the library without debug
// information, or without binutils' addr2line.
std::string source_line(const void *instruction);

} // namespace uhal_host
