#include "library.h"

#include <dlfcn.h>

#include <cctype>
#include <mutex>
#include <optional>

#include "lookups.h"

namespace compilers {

namespace {

std::mutex libraries_mutex;
std::array<std::optional<Library>, most_libraries> libraries;
std::array<void *, most_libraries> bases;

// nvJitLink's header replaces a call of nvJitLinkCreate by "__nvJitLinkCreate_13_0".
std::string plain_name(std::string name) {
    if (name.compare(0, 2, "__") != 0) {
        return name;
    }
    for (int part = 0; part < 2; ++part) {
        const size_t end = name.find_last_not_of("0123456789");
        if (end == std::string::npos || end + 1 == name.size() || name[end] != '_') {
            return name;
        }
        name.resize(end);
    }
    return name.substr(2);
}

const Replacements *replacements_of(const std::string &name) {
    const Replacements *found = nvrtc_replacements(name);
    return found != nullptr ? found : nvjitlink_replacements(name);
}

// Index of the library that `function` belongs to; `most_libraries` when no index is free.
size_t index_of(void *function) {
    Dl_info about;
    if (dladdr(function, &about) == 0 || about.dli_fname == nullptr) {
        return most_libraries;
    }
    const std::lock_guard<std::mutex> lock(libraries_mutex);
    for (size_t index = 0; index < most_libraries; ++index) {
        if (libraries[index] && bases[index] == about.dli_fbase) {
            return index;
        }
        if (!libraries[index]) {
            void *const handle = dlopen(about.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
            if (handle == nullptr) {
                return most_libraries;
            }
            bases[index] = about.dli_fbase;
            libraries[index].emplace(handle);
            return index;
        }
    }
    return most_libraries;
}

} // namespace

void *Library::find(const char *name) const {
    return uhal_loader_lookup(handle_, name);
}

const Library &library(size_t index) {
    return *libraries[index];
}

} // namespace compilers

int uhal_is_replaced(const char *name) {
    // For most lookups, the first two characters already differ.
    const bool candidate = (name[0] == 'n' && name[1] == 'v') || (name[0] == '_' && name[1] == '_');
    return candidate && compilers::replacements_of(compilers::plain_name(name)) != nullptr;
}

void *uhal_replacement(void *found, const char *name) {
    const size_t index = found == nullptr ? compilers::most_libraries : compilers::index_of(found);
    return index == compilers::most_libraries
               ? found
               : (*compilers::replacements_of(compilers::plain_name(name)))[index];
}
