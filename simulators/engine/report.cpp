#include "report.h"

#include <fcntl.h>
#include <unistd.h>

#include "settings.h"

namespace sim {

namespace {

std::string target;

// Returns -1 if the file cannot be opened, or if no report is wanted.
int open_report() {
    if (target == "stderr") {
        return STDERR_FILENO;
    }
    return target.empty() ? -1
                          : open(target.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
}

void close_report(int descriptor) {
    if (descriptor != STDERR_FILENO) {
        close(descriptor);
    }
}

} // namespace

void start_reporting(std::string &complaint) {
    target = Settings::text("REPORT");
    const int descriptor = open_report();
    if (descriptor < 0 && !target.empty()) {
        complaint =
            "UHAL_SIM_REPORT=" + target + ": expected `stderr` or a file that can be written";
        return;
    }
    close_report(descriptor);
}

std::string report_hint() {
    return target.empty()       ? "UHAL_SIM_REPORT=stderr tells more"
           : target == "stderr" ? ""
                                : "more in " + target;
}

void report(const std::string &text) {
    const int descriptor = open_report();
    if (descriptor < 0) {
        return;
    }
    size_t written = 0;
    while (written < text.size()) {
        const ssize_t more = write(descriptor, text.data() + written, text.size() - written);
        if (more <= 0) {
            break;
        }
        written += static_cast<size_t>(more);
    }
    close_report(descriptor);
}

} // namespace sim
