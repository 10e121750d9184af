#include "counts.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>

namespace sim {

namespace {

int open_to_append(const std::string &file) {
    return open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
}

std::string quoted(const std::string &text) {
    std::string made = "\"";
    for (const char c : text) {
        char escaped[8];
        if (c == '"' || c == '\\') {
            made += '\\';
        }
        if (static_cast<unsigned char>(c) < ' ') {
            std::snprintf(escaped, sizeof escaped, "\\u%04x", c);
            made += escaped;
        } else {
            made += c;
        }
    }
    return made + '"';
}

} // namespace

bool can_append(const std::string &file) {
    const int descriptor = file.empty() ? -1 : open_to_append(file);
    if (descriptor >= 0) {
        close(descriptor);
    }
    return descriptor >= 0;
}

void write_counts(const uptx_launch *launch, const char *members, uint64_t bytes) {
    const auto &counts = *static_cast<const CountsOfLaunch *>(launch->counting->context);
    const std::string line = "{\"kernel\":" + quoted(counts.entry) +
                             ",\"ptx\":" + quoted(counts.text_file) + "," +
                             std::string(members, bytes) + "}\n";
    const int file = open_to_append(counts.file);
    // One write per line, because processes may share the file.
    if (file < 0 || write(file, line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
        std::fprintf(stderr, "uhal simulator: UHAL_SIM_COUNTS=%s cannot be written\n",
                     counts.file.c_str());
    }
    if (file >= 0) {
        close(file);
    }
}

} // namespace sim
