#include "source_line.h"

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <dlfcn.h>

namespace uhal_host {

namespace {

// Functions of these headers are inlined into kernels; readers want the kernel's line.
constexpr char own_headers[] = "/uhal/include/uhal/";

std::string base_name(const std::string &path) {
    const size_t slash = path.rfind('/');
    return slash == std::string::npos ? path : path.substr(slash + 1);
}

// The innermost line that is not in our headers; empty when there is none.
std::string read_lines(FILE *stream) {
    char line[1024];
    std::string innermost;
    while (fgets(line, sizeof line, stream) != nullptr) {
        line[strcspn(line, " \n")] = '\0'; // "(discriminator 2)"
        const std::string told = line;
        const size_t colon = told.rfind(':');
        if (colon == std::string::npos || told[0] == '?' || told[colon + 1] == '?') {
            continue;
        }
        if (innermost.empty()) {
            innermost = base_name(told);
        }
        if (told.find(own_headers) == std::string::npos) {
            return base_name(told);
        }
    }
    return innermost;
}

} // namespace

std::string source_line(const void *instruction) {
    Dl_info found;
    if (dladdr(instruction, &found) == 0 || found.dli_fname == nullptr) {
        return "an unknown place";
    }
    const uintptr_t place =
        reinterpret_cast<uintptr_t>(instruction) - reinterpret_cast<uintptr_t>(found.dli_fbase);
    char place_text[32];
    snprintf(place_text, sizeof place_text, "+0x%zx", static_cast<size_t>(place));
    // Names of libraries loaded from memory hold no quote.
    if (strchr(found.dli_fname, '\'') == nullptr) {
        std::string command = "addr2line -i -e '";
        command += found.dli_fname;
        command += "' ";
        command += place_text + 1;
        command += " 2>/dev/null";
        if (FILE *const stream = popen(command.c_str(), "r")) {
            const std::string line = read_lines(stream);
            pclose(stream);
            if (!line.empty()) {
                return line;
            }
        }
    }
    return std::string("the module's ") + place_text;
}

} // namespace uhal_host
