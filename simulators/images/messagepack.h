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

    Kind kind = Kind::nothing; // also for values no code object needs: floats, binary data
    uint64_t number = 0;       // a boolean is 0 or 1; negative numbers wrap
    std::string text;
    std::vector<PackedValue> items;
    std::map<std::string, PackedValue> members; // only members whose key is a text

    // The member of a map; `nothing` if the map lacks the key, or if the value is not a map.
    const PackedValue &operator[](const std::string &key) const;

    bool is_number(uint64_t most) const { return kind == Kind::number && number <= most; }
};

// Returns false unless the bytes are exactly one value that is not nested too deeply.
bool unpack(const Bytes &bytes, PackedValue &value);

} // namespace sim
