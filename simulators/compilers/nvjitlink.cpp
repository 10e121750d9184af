// nvJitLink: adds to each linked cubin the PTX of the linked code.
//
// nvJitLink itself does the link and reports its errors. nvJitLink makes PTX only of LTO-IR, so
// the simulator links LTO-IR a second time, to get PTX.
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <vector>

#include "inputs.h"
#include "library.h"

namespace compilers {

namespace {

// Results and handles are nvJitLink's; zero is success.
using Create = int(void **link, uint32_t count, const char **options);
using Destroy = int(void **link);
using AddData = int(void *link, int kind, const void *data, size_t bytes, const char *name);
using AddFile = int(void *link, int kind, const char *path);
using Complete = int(void *link);
using GetSize = int(void *link, size_t *bytes);
using Get = int(void *link, void *content);

enum : int { input_ltoir = 3 };

struct Input {
    int kind;
    std::string content; // ends with a zero byte, which the library expects of text
    std::string name;

    sim::Bytes bytes() const { return {content.data(), content.size()}; }
    bool is_ltoir() const {
        // The start of NVRTC 13.5's LTO-IR; a caller may declare it as the kind "any".
        constexpr unsigned char magic[] = {0xED, 0x43, 0x4E, 0x7F};
        return kind == input_ltoir || (content.size() > sizeof magic &&
                                       std::memcmp(content.data(), magic, sizeof magic) == 0);
    }
};

struct Link {
    std::vector<std::string> options;
    std::vector<Input> inputs;
    std::vector<unsigned char> cubin; // once it is complete
};

std::mutex links_mutex;
std::map<void *, Link> links;

// Calls `change` with the state of a link.
template <class Change> void with_link(void *handle, Change change) {
    const std::lock_guard<std::mutex> lock(links_mutex);
    const auto found = links.find(handle);
    if (found != links.end()) {
        change(found->second);
    }
}

// The library gets a cubin without its attached PTX.
int add_data(const Library &nvjitlink, void *handle, const Input &input) {
    const auto add = nvjitlink.function<AddData>("nvJitLinkAddData");
    sim::AttachedPtx attached;
    if (!sim::read_attached_ptx(input.bytes(), attached)) {
        return add(handle, input.kind, input.content.data(), input.content.size(),
                   input.name.c_str());
    }
    const std::vector<unsigned char> plain = sim::without_attached_ptx(input.bytes());
    return add(handle, input.kind, plain.data(), plain.size(), input.name.c_str());
}

// PTX of all LTO-IR together; empty when the library makes none.
std::string ptx_of_ltoir(const Library &nvjitlink, const Link &link) {
    std::vector<const char *> options;
    for (const std::string &option : link.options) {
        options.push_back(option.c_str());
    }
    options.push_back("-ptx");
    void *handle = nullptr;
    const auto count = static_cast<uint32_t>(options.size());
    if (nvjitlink.function<Create>("nvJitLinkCreate")(&handle, count, options.data()) != 0) {
        return "";
    }
    bool good = true;
    for (const Input &input : link.inputs) {
        good = good && (!input.is_ltoir() || add_data(nvjitlink, handle, input) == 0);
    }
    size_t bytes = 0;
    std::string text;
    if (good && nvjitlink.function<Complete>("nvJitLinkComplete")(handle) == 0 &&
        nvjitlink.function<GetSize>("nvJitLinkGetLinkedPtxSize")(handle, &bytes) == 0) {
        text.resize(bytes);
        nvjitlink.function<Get>("nvJitLinkGetLinkedPtx")(handle, text.data());
        text.resize(strnlen(text.data(), text.size()));
    }
    nvjitlink.function<Destroy>("nvJitLinkDestroy")(&handle);
    return text;
}

// 86 of "-arch=sm_86".
unsigned target_of(const Link &link) {
    for (const std::string &option : link.options) {
        const size_t digits = option.find("sm_");
        if (option.compare(0, 6, "-arch=") == 0 && digits != std::string::npos) {
            return static_cast<unsigned>(std::strtoul(option.c_str() + digits + 3, nullptr, 10));
        }
    }
    return 0;
}

sim::AttachedPtx ptx_of(const Library &nvjitlink, const Link &link) {
    sim::AttachedPtx found;
    bool any_ltoir = false;
    for (const Input &input : link.inputs) {
        if (input.is_ltoir()) {
            any_ltoir = true;
        } else {
            add_ptx_of(input.bytes(), input.name, target_of(link), found);
        }
    }
    if (any_ltoir) {
        const std::string text = ptx_of_ltoir(nvjitlink, link);
        if (text.empty()) {
            found.problem += (found.problem.empty() ? "" : ", ") + std::string("LTO-IR");
        } else {
            found.texts.push_back(text);
        }
    }
    if (!found.problem.empty()) {
        found.problem = "there is no PTX in what was linked from " + found.problem;
    }
    return found;
}

void attach(const Library &nvjitlink, void *handle, Link &link) {
    size_t bytes = 0;
    // A link for PTX or LTO-IR has no cubin.
    if (nvjitlink.function<GetSize>("nvJitLinkGetLinkedCubinSize")(handle, &bytes) != 0 ||
        bytes == 0) {
        return;
    }
    std::vector<unsigned char> cubin(bytes);
    if (nvjitlink.function<Get>("nvJitLinkGetLinkedCubin")(handle, cubin.data()) == 0) {
        link.cubin = sim::attach_ptx({cubin.data(), cubin.size()}, ptx_of(nvjitlink, link));
    }
}

template <size_t index> struct Created {
    static int call(void **handle, uint32_t count, const char **options) {
        const int result =
            library(index).function<Create>("nvJitLinkCreate")(handle, count, options);
        if (result == 0) {
            const std::lock_guard<std::mutex> lock(links_mutex);
            links[*handle] = {{options, options + count}, {}, {}};
        }
        return result;
    }
};

template <size_t index> struct Destroyed {
    static int call(void **handle) {
        if (handle != nullptr) {
            const std::lock_guard<std::mutex> lock(links_mutex);
            links.erase(*handle);
        }
        return library(index).function<Destroy>("nvJitLinkDestroy")(handle);
    }
};

template <size_t index> struct DataAdded {
    static int call(void *handle, int kind, const void *data, size_t bytes, const char *name) {
        if (data == nullptr) {
            return library(index).function<AddData>("nvJitLinkAddData")(handle, kind, data, bytes,
                                                                        name);
        }
        const auto *content = static_cast<const char *>(data);
        Input input = {kind, {content, content + bytes}, name == nullptr ? "" : name};
        const int result = add_data(library(index), handle, input);
        if (result == 0) {
            with_link(handle, [&](Link &link) { link.inputs.push_back(std::move(input)); });
        }
        return result;
    }
};

template <size_t index> struct FileAdded {
    static int call(void *handle, int kind, const char *path) {
        std::ifstream file(path == nullptr ? "" : path, std::ios::binary);
        Input input = {
            kind, {std::istreambuf_iterator<char>(file), {}}, path == nullptr ? "" : path};
        const bool unreadable = input.content.empty();
        const int result =
            unreadable ? library(index).function<AddFile>("nvJitLinkAddFile")(handle, kind, path)
                       : add_data(library(index), handle, input);
        if (result == 0) {
            with_link(handle, [&](Link &link) { link.inputs.push_back(std::move(input)); });
        }
        return result;
    }
};

template <size_t index> struct Completed {
    static int call(void *handle) {
        const int result = library(index).function<Complete>("nvJitLinkComplete")(handle);
        if (result == 0) {
            with_link(handle, [&](Link &link) { attach(library(index), handle, link); });
        }
        return result;
    }
};

template <size_t index> struct LinkedCubinSize {
    static int call(void *handle, size_t *bytes) {
        const int result =
            library(index).function<GetSize>("nvJitLinkGetLinkedCubinSize")(handle, bytes);
        with_link(handle, [&](const Link &link) {
            *bytes = result != 0 || link.cubin.empty() ? *bytes : link.cubin.size();
        });
        return result;
    }
};

template <size_t index> struct LinkedCubin {
    static int call(void *handle, void *content) {
        bool ours = false;
        with_link(handle, [&](const Link &link) {
            ours = content != nullptr && !link.cubin.empty();
            if (ours) {
                std::memcpy(content, link.cubin.data(), link.cubin.size());
            }
        });
        return ours ? 0 : library(index).function<Get>("nvJitLinkGetLinkedCubin")(handle, content);
    }
};

} // namespace

const Replacements *nvjitlink_replacements(const std::string &name) {
    static const std::map<std::string, Replacements> all = {
        {"nvJitLinkCreate", replacements<Created>()},
        {"nvJitLinkDestroy", replacements<Destroyed>()},
        {"nvJitLinkAddData", replacements<DataAdded>()},
        {"nvJitLinkAddFile", replacements<FileAdded>()},
        {"nvJitLinkComplete", replacements<Completed>()},
        {"nvJitLinkGetLinkedCubinSize", replacements<LinkedCubinSize>()},
        {"nvJitLinkGetLinkedCubin", replacements<LinkedCubin>()},
    };
    const auto found = all.find(name);
    return found == all.end() ? nullptr : &found->second;
}

} // namespace compilers
