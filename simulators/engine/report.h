// Messages of a simulated driver beyond its interface. They are appended to the file in
// UHAL_SIM_REPORT, or written to `stderr`.
#pragma once

#include <string>

namespace sim {

// Reads the destination of reports; an error of the setting goes to `complaint`.
void start_reporting(std::string &complaint);

// Says where the report is, or how to enable reports, for the end of a short message. Empty if
// reports go to the terminal.
std::string report_hint();

// Appends a text of several lines at once, so that processes may share a file.
void report(const std::string &text);

} // namespace sim
