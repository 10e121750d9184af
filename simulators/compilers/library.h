// The user's own libraries, and our replacements for their functions.
#pragma once

#include <array>
#include <string>
#include <utility>

namespace compilers {

// A library of NVRTC or nvJitLink that the program keeps open.
class Library {
  public:
    explicit Library(void *handle) : handle_(handle) {}

    // A function of the library itself, as the type of its prototype; null if the library lacks
    // it.
    template <class Function> Function *function(const char *name) const {
        return reinterpret_cast<Function *>(find(name));
    }

  private:
    void *find(const char *name) const;

    void *handle_;
};

// A process rarely has two versions of one library, and almost never more.
constexpr size_t most_libraries = 8;

// The library with an index that `uhal_replacement` assigned.
const Library &library(size_t index);

// One replacement for each library index: a function alone cannot know its library.
using Replacements = std::array<void *, most_libraries>;

// `Body<index>::call` for each index.
template <template <size_t> class Body, size_t... index>
Replacements replacements(std::index_sequence<index...>) {
    return {reinterpret_cast<void *>(&Body<index>::call)...};
}

template <template <size_t> class Body> Replacements replacements() {
    return replacements<Body>(std::make_index_sequence<most_libraries>());
}

// Replacements of a function by its plain name; null if the function is not replaced.
const Replacements *nvrtc_replacements(const std::string &name);
const Replacements *nvjitlink_replacements(const std::string &name);

} // namespace compilers
