#include "lz4.h"

#include <algorithm>

namespace sim {

namespace {

constexpr uint64_t escape = 15; // a length of 15 or more continues in further bytes
constexpr uint64_t shortest_match = 4;

bool read_length(const Bytes &block, uint64_t &at, uint64_t &length) {
    if (length != escape) {
        return true;
    }
    unsigned char more = 0;
    do {
        if (!block.read(at++, more)) {
            return false;
        }
        length += more;
    } while (more == 255);
    return true;
}

} // namespace

bool decompress_lz4(const Bytes &block, std::vector<unsigned char> &content) {
    uint64_t at = 0;
    uint64_t made = 0;
    unsigned char token = 0;
    while (block.read(at, token)) {
        ++at;
        uint64_t literals = token >> 4;
        if (!read_length(block, at, literals)) {
            return false;
        }
        if (literals > block.size() - at || literals > content.size() - made) {
            return false;
        }
        std::copy_n(block.data() + at, literals, content.data() + made);
        at += literals;
        made += literals;
        if (at == block.size()) {
            break;
        }
        uint16_t distance = 0;
        uint64_t match = token & escape;
        if (!block.read(at, distance)) {
            return false;
        }
        at += sizeof distance;
        if (!read_length(block, at, match)) {
            return false;
        }
        match += shortest_match;
        if (distance == 0 || distance > made || match > content.size() - made) {
            return false;
        }
        // Byte by byte: a match may overlap its own output.
        for (; match != 0; --match, ++made) {
            content[made] = content[made - distance];
        }
    }
    return made == content.size();
}

} // namespace sim
