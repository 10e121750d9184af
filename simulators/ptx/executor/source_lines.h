// Finds the source line of a PTX line, from `.loc` (ISA manual §11.5).
#pragma once

#include <string>
#include <vector>

namespace sim {

// "kernel.cu:8", with "inlined at other.cu:20" behind it if known; empty if unknown. `lines` are
// the PTX text's; `line` counts from 1.
std::string source_location(const std::vector<std::string> &lines, unsigned line);

// Lines of a report: the file and line number, then the line's text if the file is readable. Empty
// as above.
std::string source_report(const std::vector<std::string> &lines, unsigned line, const char *title);

} // namespace sim
