#include "trace.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "../../engine/settings.h"

namespace sim {

namespace {

bool parse_index(const std::string &text, std::array<uint32_t, 3> &index) {
    const std::vector<std::string> parts = split(text, ',');
    for (size_t axis = 0; axis < parts.size() && parts.size() <= 3; ++axis) {
        const auto value = to_number(parts[axis]);
        if (!value || *value > UINT32_MAX) {
            return false;
        }
        index[axis] = static_cast<uint32_t>(*value);
    }
    return !parts.empty() && parts.size() <= 3;
}

std::string trimmed(const std::string &line) {
    std::string text;
    for (const char c : line) {
        const bool space = c == ' ' || c == '\t';
        const bool before = text.empty() || text.back() == ' ';
        if (!space || !before) {
            text += space ? ' ' : c;
        }
    }
    return text;
}

// A value in its type, and its bits if the type hides them.
std::string spelled(const std::string &type, uint64_t bits) {
    char text[96];
    const auto hexadecimal = static_cast<unsigned long long>(bits);
    if (type == "pred") {
        return bits != 0 ? "true" : "false";
    }
    if (type == "f32" || type == "f64") {
        float narrow = 0;
        double wide = 0;
        std::memcpy(&narrow, &bits, sizeof narrow);
        std::memcpy(&wide, &bits, sizeof wide);
        const bool is_narrow = type == "f32";
        std::snprintf(text, sizeof text, is_narrow ? "%.9g (%#llx)" : "%.17g (%#llx)",
                      is_narrow ? narrow : wide, hexadecimal);
    } else if (type[0] == 's') {
        const int unused = 64 - std::stoi(type.substr(1));
        const int64_t value = static_cast<int64_t>(bits << unused) >> unused;
        std::snprintf(text, sizeof text, "%lld", static_cast<long long>(value));
    } else if (type[0] == 'u') {
        std::snprintf(text, sizeof text, "%llu (%#llx)", hexadecimal, hexadecimal);
    } else {
        std::snprintf(text, sizeof text, "%#llx", hexadecimal);
    }
    return text;
}

void tell(const uptx_launch *launch, uint32_t line, const char *name, const char *type,
          uint64_t bits) {
    if (name != nullptr) {
        std::fprintf(stderr, "%12s %s = %s\n", "", name, spelled(type, bits).c_str());
        return;
    }
    const auto &lines = *static_cast<const std::vector<std::string> *>(launch->trace_text);
    const std::string text = line <= lines.size() ? trimmed(lines[line - 1]) : "";
    std::fprintf(stderr, "%7u  %s\n", line, text.c_str());
}

} // namespace

bool TracedThread::parse(const std::string &text, TracedThread &thread) {
    const std::vector<std::string> indices = split(text, ':');
    thread.wanted = indices.size() == 2 && parse_index(indices[0], thread.block) &&
                    parse_index(indices[1], thread.thread);
    return thread.wanted;
}

void trace_launch(uptx_launch &launch, const TracedThread &traced,
                  const std::vector<std::string> &lines) {
    std::copy(traced.block.begin(), traced.block.end(), launch.trace_block);
    std::copy(traced.thread.begin(), traced.thread.end(), launch.trace_thread);
    launch.trace_text = &lines;
    launch.trace = tell;
}

std::vector<std::string> lines_of(const std::string &text_file) {
    std::vector<std::string> lines;
    std::ifstream file(text_file);
    for (std::string line; std::getline(file, line);) {
        lines.push_back(line);
    }
    return lines;
}

} // namespace sim
