#include "launch_facts.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <pthread.h>

#if defined(__linux__)
#include <link.h>
#endif

namespace uhal_host {

std::vector<std::string> parameter_names(const char *text, uint32_t count) {
    std::vector<std::string> names;
    std::string word;
    int depth = 0;
    for (const char *at = text; *at != '\0'; ++at) {
        if (isalnum(static_cast<unsigned char>(*at)) || *at == '_') {
            word = at == text || !(isalnum(static_cast<unsigned char>(at[-1])) || at[-1] == '_')
                       ? std::string(1, *at)
                       : word + *at;
        }
        depth += (strchr("(<[{", *at) != nullptr) - (strchr(")>]}", *at) != nullptr);
        if ((*at == ',' && depth == 1) || (*at == ')' && depth == 0)) {
            names.push_back(word);
            word.clear();
        }
    }
    names.resize(count);
    return names;
}

#if defined(__linux__)

Span stack_of_this_thread() {
    Span stack;
    pthread_attr_t attributes;
    if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
        void *start = nullptr;
        size_t bytes = 0;
        pthread_attr_getstack(&attributes, &start, &bytes);
        pthread_attr_destroy(&attributes);
        stack = {reinterpret_cast<uintptr_t>(start), reinterpret_cast<uintptr_t>(start) + bytes};
    }
    return stack;
}

Image image_of(const void *address) {
    struct Search {
        uintptr_t address;
        Image found;
    } search = {reinterpret_cast<uintptr_t>(address), {}};
    dl_iterate_phdr(
        [](dl_phdr_info *info, size_t, void *data) {
            Search &wanted = *static_cast<Search *>(data);
            Span whole = {~uintptr_t{0}, 0};
            std::vector<Span> constant;
            for (int index = 0; index < info->dlpi_phnum; ++index) {
                const auto &part = info->dlpi_phdr[index];
                if (part.p_type == PT_LOAD) {
                    const uintptr_t start = info->dlpi_addr + part.p_vaddr;
                    whole.start = std::min(whole.start, start);
                    whole.end = std::max(whole.end, start + part.p_memsz);
                    if ((part.p_flags & PF_W) == 0) {
                        constant.push_back({start, start + part.p_memsz});
                    }
                }
            }
            if (whole.end != 0 && whole.holds(wanted.address)) {
                wanted.found = {whole, constant};
                return 1;
            }
            return 0;
        },
        &search);
    return search.found;
}

#else

// Module::read_check refuses checked libraries on other systems than Linux.
Span stack_of_this_thread() { return {}; }
Image image_of(const void *) { return {}; }

#endif

} // namespace uhal_host
