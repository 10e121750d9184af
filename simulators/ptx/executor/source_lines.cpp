#include "source_lines.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

namespace sim {

namespace {

struct SourceLine {
    unsigned long file = 0;
    unsigned long line = 0;
};

std::vector<std::string> words_of(const std::string &line) {
    std::istringstream text(line);
    std::vector<std::string> words;
    for (std::string word; text >> word;) {
        words.push_back(word);
    }
    return words;
}

unsigned long number_at(const std::vector<std::string> &words, size_t index) {
    return index < words.size() ? std::strtoul(words[index].c_str(), nullptr, 10) : 0;
}

// The file name with this `.file` number; empty when there is none.
std::string file_name(const std::vector<std::string> &lines, unsigned long number) {
    for (const std::string &line : lines) {
        const size_t start = line.find_first_not_of(" \t");
        if (start == std::string::npos || line.compare(start, 5, ".file") != 0) {
            continue;
        }
        const size_t open = line.find('"');
        const size_t close = line.find('"', open + 1);
        if (close != std::string::npos && number_at(words_of(line), 1) == number) {
            return line.substr(open + 1, close - open - 1);
        }
    }
    return "";
}

// The last `.loc` of the same function, as words; empty when there is none.
std::vector<std::string> location_before(const std::vector<std::string> &lines, unsigned line) {
    for (size_t index = std::min<size_t>(line, lines.size()); index > 0; --index) {
        const std::string &text = lines[index - 1];
        if (text.find(".entry") != std::string::npos || text.find(".func") != std::string::npos) {
            return {};
        }
        const size_t start = text.find_first_not_of(" \t");
        if (start != std::string::npos && text.compare(start, 4, ".loc") == 0 &&
            number_at(words_of(text), 2) != 0) {
            return words_of(text);
        }
    }
    return {};
}

std::string named(const std::vector<std::string> &lines, const SourceLine &source) {
    const std::string file = file_name(lines, source.file);
    return file.empty() || source.line == 0 ? "" : file + ":" + std::to_string(source.line);
}

SourceLine source_line_at(const std::vector<std::string> &words, size_t first) {
    return {number_at(words, first), number_at(words, first + 1)};
}

} // namespace

std::string source_location(const std::vector<std::string> &lines, unsigned line) {
    const std::vector<std::string> words = location_before(lines, line);
    const std::string own = named(lines, source_line_at(words, 1));
    const auto inlined = std::find(words.begin(), words.end(), "inlined_at");
    if (own.empty() || inlined == words.end()) {
        return own;
    }
    const size_t first = static_cast<size_t>(inlined - words.begin()) + 1;
    const std::string outer = named(lines, source_line_at(words, first));
    return outer.empty() ? own : own + ", inlined at " + outer;
}

std::string source_report(const std::vector<std::string> &lines, unsigned line, const char *title) {
    const std::string location = source_location(lines, line);
    if (location.empty()) {
        return "";
    }
    std::string report = std::string("  ") + title + location + "\n";
    const std::vector<std::string> words = location_before(lines, line);
    std::ifstream file(file_name(lines, number_at(words, 1)));
    std::string text;
    for (unsigned long at = number_at(words, 2); at > 0 && std::getline(file, text); --at) {
        if (at == 1) {
            const size_t start = std::min(text.find_first_not_of(" \t"), text.size());
            report += "            " + text.substr(start) + "\n";
        }
    }
    return report;
}

} // namespace sim
