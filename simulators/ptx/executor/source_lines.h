// Finds the source line of a PTX line, from `.loc` (ISA manual §11.5).
#pragma once

#include <string>
#include <vector>

namespace sim {

// "kernel.cu:8", with "inlined at other.cu:20" behind it if known; empty if unknown. `lines` are
// the PTX text's; `line` counts from 1.
std::string source_location(const std::vector<std::string> &lines, unsigned line);

// Lines of a report: file and line, and the line itself where the file can be read. Empty as above.
std::string source_report(const std::vector<std::string> &lines, unsigned line, const char *title);

} // namespace sim
