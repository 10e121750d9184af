// Formats text like printf.
#pragma once

#include <cstdarg>
#include <cstdio>
#include <string>

namespace uhal_host {

// Cuts the text off after 511 bytes.
__attribute__((format(printf, 1, 2))) inline std::string format(const char *text, ...) {
    char made[512];
    va_list values;
    va_start(values, text);
    vsnprintf(made, sizeof made, text, values);
    va_end(values);
    return made;
}

} // namespace uhal_host
