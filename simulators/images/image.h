// The simulated CUDA driver's view of a device image, in any format.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "../engine/executor.h"

namespace sim {

struct ImageEntry {
    KernelDescription kernel;
    uint32_t static_shared_bytes = 0;
    uint32_t max_threads = 0; // 0: the image sets no bound
    uint32_t registers = 0;   // 0: unknown
    uint32_t local_bytes = 0; // of a thread's frame, as the compiler says
};

struct ImageVariable {
    std::string name;
    uint64_t bytes;
    bool initialized; // with values other than zero
};

struct Image {
    enum class Kind { ptx, cubin };

    Kind kind = Kind::ptx;
    unsigned target = 0;      // 86 for sm_86
    char target_suffix = 0;   // 'a' for one architecture only, 'f' for one family only
    unsigned ptx_version = 0; // 10 * major + minor
    unsigned toolkit = 0;     // of a cubin, 10 * major + minor; 0: unknown
    std::vector<ImageEntry> entries;
    std::vector<ImageVariable> variables;
    uint64_t constant_bytes = 0; // of the program's own constants, as the compiler says
    std::string text;            // of PTX
    std::string missing;         // parts that the text may lack, in words
};

// A range of bytes; its functions never read past the end of the range.
class Bytes {
  public:
    Bytes(const void *data, uint64_t size)
        : data_(static_cast<const unsigned char *>(data)), size_(size) {}

    const unsigned char *data() const { return data_; }
    uint64_t size() const { return size_; }

    template <class Type> bool read(uint64_t offset, Type &value) const {
        if (offset > size_ || sizeof value > size_ - offset) {
            return false;
        }
        __builtin_memcpy(&value, data_ + offset, sizeof value);
        return true;
    }

    // A part of the bytes; empty unless the whole part is inside.
    Bytes part(uint64_t offset, uint64_t bytes) const {
        const bool inside = offset <= size_ && bytes <= size_ - offset;
        return inside ? Bytes(data_ + offset, bytes) : Bytes(nullptr, 0);
    }

    // A string that ends within the bytes; empty otherwise.
    std::string text(uint64_t offset) const {
        uint64_t end = offset;
        while (end < size_ && data_[end] != 0) {
            ++end;
        }
        return end < size_ ? std::string(data_ + offset, data_ + end) : std::string();
    }

  private:
    const unsigned char *data_;
    uint64_t size_;
};

} // namespace sim
