// Messages of a simulated driver beyond its interface. They are appended to the file in
// UHAL_SIM_REPORT, or written to `stderr`.
#pragma once

#include <string>

namespace sim {

// Reads the destination of reports; an error of the setting goes to `complaint`.
void start_reporting(std::string &complaint);

// The place of the report, or how to enable reports, for readers of a short message. Empty if the
// report goes to their terminal.
std::string report_hint();

// Appends a text of several lines at once, so that processes may share a file.
void report(const std::string &text);

} // namespace sim
