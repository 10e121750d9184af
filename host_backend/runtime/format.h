// Text made as printf makes it.
#pragma once

#include <cstdarg>
#include <cstdio>
#include <string>

namespace uhal_host {

// At most 511 bytes of it.
__attribute__((format(printf, 1, 2))) inline std::string format(const char *text, ...) {
    char made[512];
    va_list values;
    va_start(values, text);
    vsnprintf(made, sizeof made, text, values);
    va_end(values);
    return made;
}

} // namespace uhal_host
