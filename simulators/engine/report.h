// What a simulated driver has to say beyond its interface: texts for the person who reads
// UHAL_SIM_REPORT, a file that is appended to, or `stderr`.
#pragma once

#include <string>

namespace sim {

// Reads the destination of reports; an error of the setting goes to `complaint`.
void start_reporting(std::string &complaint);

// Where a reader of a short message finds the report, or what to set to get one; empty when it is
// before his eyes.
std::string report_hint();

// Appends a text of several lines at once, so that processes may share a file.
void report(const std::string &text);

} // namespace sim
