// Reads MessagePack: the forms that notes of device images use.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "image.h"

namespace sim {

struct PackedValue {
    enum class Kind { nothing, number, text, array, map };

    Kind kind = Kind::nothing;
    int64_t number = 0; // of a boolean 0 or 1
    std::string text;
    std::vector<PackedValue> array;
    std::map<std::string, PackedValue> map; // entries whose key is no text are left out

    // The entry of a map; one of kind `nothing` when there is none.
    const PackedValue &at(const std::string &key) const;
};

// False when the bytes do not begin with a value, or nest too deeply.
bool read_messagepack(const Bytes &bytes, PackedValue &value);

} // namespace sim
