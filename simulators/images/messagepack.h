// Reads MessagePack, the encoding of the metadata in AMD's code objects.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "image.h"

namespace sim {

class PackedValue {
  public:
    enum class Kind { nothing, boolean, number, text, list, map };

    Kind kind = Kind::nothing; // also of what a code object has no use for: floats, binary data
    uint64_t number = 0;       // of a boolean 0 or 1; negative numbers wrap
    std::string text;
    std::vector<PackedValue> items;
    std::map<std::string, PackedValue> members; // those with a text for a key

    // The member of a map; `nothing` when there is none or this is no map.
    const PackedValue &operator[](const std::string &key) const;

    bool is_number(uint64_t most) const { return kind == Kind::number && number <= most; }
};

// False when the bytes are not exactly one value, or one nested beyond reason.
bool unpack(const Bytes &bytes, PackedValue &value);

} // namespace sim
