#include "missing_page.h"

#include "crash.h"

#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>

#if defined(__linux__)
#include <cerrno>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace uhal_host {

__thread bool page_was_missing = false;

namespace {

thread_local bool copying = false;
// What follows is of the last page that was missing.
thread_local char missing_file[512];
thread_local uint64_t missing_byte = 0;
thread_local uintptr_t missing_start = 0; // the mapping it belongs to
thread_local uintptr_t missing_end = 0;

} // namespace

Copying::Copying() {
    copying = true;
    page_was_missing = false;
}

Copying::~Copying() { copying = false; }

void refuse_missing_page() {
    throw std::runtime_error(std::string("the file ") + missing_file + " has no byte " +
                             std::to_string(missing_byte) +
                             " any more: it was cut short after it was opened, or cannot be read. "
                             "Zeros were read instead");
}

#if defined(__linux__)

namespace {

// A line of /proc/self/maps: `start-end permissions offset device inode path`.
struct Mapping {
    uint64_t start = 0, end = 0, offset = 0;
    const char *permissions = "", *path = "";

    explicit Mapping(const char *line) {
        start = number(line);
        end = number(++line);
        permissions = ++line;
        line = behind_space(line);
        offset = number(line);
        path = strchr(line, '/');
        path = path == nullptr ? "" : path;
    }

  private:
    static uint64_t number(const char *&text) {
        uint64_t value = 0;
        for (;; ++text) {
            if (*text >= '0' && *text <= '9') {
                value = value * 16 + static_cast<uint64_t>(*text - '0');
            } else if (*text >= 'a' && *text <= 'f') {
                value = value * 16 + static_cast<uint64_t>(*text - 'a') + 10;
            } else {
                return value;
            }
        }
    }
    static const char *behind_space(const char *text) {
        while (*text != '\0' && *text++ != ' ') {
        }
        return text;
    }
};

// Whether the address is of a file, in memory that nobody writes; notes which.
bool note(uintptr_t address, const char *line) {
    const Mapping mapping(line);
    if (address < mapping.start || address >= mapping.end || mapping.path[0] != '/' ||
        mapping.permissions[0] != 'r' || mapping.permissions[1] != '-') {
        return false;
    }
    missing_byte = mapping.offset + (address - mapping.start);
    missing_start = mapping.start;
    missing_end = mapping.end;
    strncpy(missing_file, mapping.path, sizeof missing_file - 1);
    page_was_missing = true;
    return true;
}

// With nothing that a handler must not call. A path that is too long is cut off.
bool find_file(uintptr_t address) {
    const int maps = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    if (maps < 0) {
        return false;
    }
    char line[512], read_now[512];
    size_t length = 0;
    bool found = false;
    for (ssize_t count; !found && (count = read(maps, read_now, sizeof read_now)) > 0;) {
        for (ssize_t i = 0; !found && i < count; ++i) {
            if (read_now[i] != '\n') {
                line[length] = read_now[i];
                length += length < sizeof line - 1;
                continue;
            }
            line[length] = '\0';
            found = note(address, line);
            length = 0;
        }
    }
    close(maps);
    return found;
}

} // namespace

bool stand_in(uintptr_t address) {
    if (running == nullptr && !copying) {
        return false;
    }
    const int error_before = errno;
    const bool is_known = page_was_missing && address >= missing_start && address < missing_end;
    bool stands = is_known || find_file(address);
    if (stands) {
        const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
        void *const at = reinterpret_cast<void *>(address & ~(page - 1));
        const int kind = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
        stands = mmap(at, page, PROT_READ, kind, -1, 0) != MAP_FAILED;
    }
    errno = error_before;
    return stands;
}

#else

bool stand_in(uintptr_t) { return false; }

#endif

} // namespace uhal_host
