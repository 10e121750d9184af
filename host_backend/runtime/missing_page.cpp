#include "missing_page.h"

#include "crash.h"

#include <atomic>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>

#if defined(__linux__)
#include <cerrno>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace uhal_host {

__thread bool page_was_missing = false;

namespace {

thread_local bool copying = false;

// A mapping of a file that lacks a page.
struct MappedFile {
    uintptr_t start = 0, end = 0;
    uint64_t offset = 0;
    char path[512] = ""; // empty: another thread has noted another file since

    bool has(uintptr_t address) const { return address >= start && address < end; }
};

// The file and the byte of the last missing page.
thread_local MappedFile lacking;
thread_local uint64_t missing_byte = 0;

} // namespace

Copying::Copying() {
    copying = true;
    page_was_missing = false;
}

Copying::~Copying() { copying = false; }

void refuse_missing_page() {
    const std::string what = lacking.path[0] == '\0'
                                 ? "a file lacks a page, and another thread has named it"
                                 : std::string("the file ") + lacking.path + " has no byte " +
                                       std::to_string(missing_byte) + " any more";
    throw std::runtime_error(what + ": it was cut short after it was opened, or cannot be read. "
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

// Several threads may fault on the same page at once. One thread at a time looks at the mapping,
// and finds either the file or the replacement page. A signal handler may spin, but not block.
std::atomic_flag is_looking = ATOMIC_FLAG_INIT;
MappedFile found_last; // by any thread; accessed only by the thread that looks

struct Looking {
    Looking() {
        while (is_looking.test_and_set(std::memory_order_acquire)) {
            sched_yield();
        }
    }
    ~Looking() { is_looking.clear(std::memory_order_release); }
    Looking(const Looking &) = delete;
};

// Whether the address lies in read-only memory of a file; notes the file. A replacement page that
// another thread mapped counts, too.
bool note(uintptr_t address, const Mapping &mapping) {
    if (mapping.permissions[0] != 'r' || mapping.permissions[1] != '-') {
        return false;
    }
    if (mapping.path[0] == '/') {
        found_last.start = mapping.start;
        found_last.end = mapping.end;
        found_last.offset = mapping.offset;
        strncpy(found_last.path, mapping.path, sizeof found_last.path - 1);
    }
    lacking = found_last.has(address) ? found_last : MappedFile();
    return true;
}

// Calls only functions that are safe in a signal handler. Cuts off a path that is too long.
bool find_file(uintptr_t address) {
    const int maps = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    if (maps < 0) {
        return false;
    }
    char line[512], read_now[512];
    size_t length = 0;
    bool is_there = false, found = false;
    for (ssize_t count; !is_there && (count = read(maps, read_now, sizeof read_now)) > 0;) {
        for (ssize_t i = 0; !is_there && i < count; ++i) {
            if (read_now[i] != '\n') {
                line[length] = read_now[i];
                length += length < sizeof line - 1;
                continue;
            }
            line[length] = '\0';
            length = 0;
            const Mapping mapping(line);
            is_there = address >= mapping.start && address < mapping.end;
            found = is_there && note(address, mapping);
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
    const Looking alone;
    bool stands = (page_was_missing && lacking.has(address)) || find_file(address);
    if (stands) {
        page_was_missing = true;
        missing_byte = lacking.offset + (address - lacking.start);
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
