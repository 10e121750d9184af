// NVRTC: makes PTX of a program first, and adds the PTX to the program's cubin.
#include <cstring>
#include <map>
#include <vector>

#include "../images/attached_ptx.h"
#include "library.h"

namespace compilers {

namespace {

// Results and programs are NVRTC's; zero is success.
using GetSize = int(void *program, size_t *bytes);
using Get = int(void *program, char *content);

int read(GetSize *get_size, Get *get, void *program, std::string &content) {
    if (get_size == nullptr || get == nullptr) {
        return -1;
    }
    size_t bytes = 0;
    const int result = get_size(program, &bytes);
    if (result != 0 || bytes == 0) {
        return result;
    }
    content.resize(bytes);
    return get(program, content.data());
}

// The cubin with its PTX added; empty when nothing is to be added.
std::vector<unsigned char> cubin_of(const Library &nvrtc, void *program) {
    std::string cubin;
    std::string ptx;
    const int no_cubin = read(nvrtc.function<GetSize>("nvrtcGetCUBINSize"),
                              nvrtc.function<Get>("nvrtcGetCUBIN"), program, cubin);
    const int no_ptx = read(nvrtc.function<GetSize>("nvrtcGetPTXSize"),
                            nvrtc.function<Get>("nvrtcGetPTX"), program, ptx);
    ptx.resize(strnlen(ptx.data(), ptx.size()));
    if (no_cubin != 0 || no_ptx != 0 || ptx.empty()) {
        return {};
    }
    return sim::attach_ptx({cubin.data(), cubin.size()}, {{ptx}, ""});
}

template <size_t index> struct CubinSize {
    static int call(void *program, size_t *bytes) {
        const int result = library(index).function<GetSize>("nvrtcGetCUBINSize")(program, bytes);
        if (result == 0 && *bytes != 0) {
            const std::vector<unsigned char> cubin = cubin_of(library(index), program);
            *bytes = cubin.empty() ? *bytes : cubin.size();
        }
        return result;
    }
};

template <size_t index> struct Cubin {
    static int call(void *program, char *content) {
        const std::vector<unsigned char> cubin =
            content == nullptr ? std::vector<unsigned char>() : cubin_of(library(index), program);
        if (cubin.empty()) {
            return library(index).function<Get>("nvrtcGetCUBIN")(program, content);
        }
        std::memcpy(content, cubin.data(), cubin.size());
        return 0;
    }
};

} // namespace

const Replacements *nvrtc_replacements(const std::string &name) {
    static const std::map<std::string, Replacements> all = {
        {"nvrtcGetCUBINSize", replacements<CubinSize>()},
        {"nvrtcGetCUBIN", replacements<Cubin>()},
    };
    const auto found = all.find(name);
    return found == all.end() ? nullptr : &found->second;
}

} // namespace compilers
