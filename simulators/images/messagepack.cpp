#include "messagepack.h"

namespace sim {

namespace {

constexpr int deepest = 16;

class Reader {
  public:
    explicit Reader(const Bytes &bytes) : bytes_(bytes) {}

    bool read(PackedValue &value, int depth) {
        uint8_t tag = 0;
        if (depth > deepest || !take(tag)) {
            return false;
        }
        if (tag < 0x80 || tag >= 0xE0) {
            return number(value, static_cast<int8_t>(tag));
        }
        if (tag < 0x90) {
            return map(value, tag & 0x0F, depth);
        }
        if (tag < 0xA0) {
            return array(value, tag & 0x0F, depth);
        }
        if (tag < 0xC0) {
            return text(value, tag & 0x1F);
        }
        switch (tag) {
        case 0xC0:
            return true;
        case 0xC2:
        case 0xC3:
            return number(value, tag & 1);
        case 0xCC:
        case 0xCD:
        case 0xCE:
        case 0xCF:
            return unsigned_number(value, 1u << (tag - 0xCC));
        case 0xD0:
        case 0xD1:
        case 0xD2:
        case 0xD3:
            return signed_number(value, 1u << (tag - 0xD0));
        case 0xD9:
        case 0xDA:
        case 0xDB:
            return sized(1u << (tag - 0xD9), [&](uint64_t size) { return text(value, size); });
        case 0xDC:
        case 0xDD:
            return sized(2u << (tag - 0xDC),
                         [&](uint64_t size) { return array(value, size, depth); });
        case 0xDE:
        case 0xDF:
            return sized(2u << (tag - 0xDE),
                         [&](uint64_t size) { return map(value, size, depth); });
        default:
            return false;
        }
    }

  private:
    template <class Type> bool take(Type &value) {
        const bool inside = bytes_.read(at_, value);
        at_ += sizeof value;
        return inside;
    }

    bool big_endian(unsigned width, uint64_t &value) {
        value = 0;
        for (unsigned index = 0; index < width; ++index) {
            uint8_t byte = 0;
            if (!take(byte)) {
                return false;
            }
            value = value << 8 | byte;
        }
        return true;
    }

    template <class Body> bool sized(unsigned width, Body body) {
        uint64_t size = 0;
        return big_endian(width, size) && body(size);
    }

    bool number(PackedValue &value, int64_t found) {
        value.kind = PackedValue::Kind::number;
        value.number = found;
        return true;
    }

    bool unsigned_number(PackedValue &value, unsigned width) {
        uint64_t found = 0;
        return big_endian(width, found) && number(value, static_cast<int64_t>(found));
    }

    bool signed_number(PackedValue &value, unsigned width) {
        uint64_t found = 0;
        const unsigned unused = 64 - 8 * width;
        return big_endian(width, found) &&
               number(value, static_cast<int64_t>(found << unused) >> unused);
    }

    bool text(PackedValue &value, uint64_t size) {
        const Bytes part = bytes_.part(at_, size);
        if (part.size() != size) {
            return false;
        }
        value.kind = PackedValue::Kind::text;
        value.text.assign(reinterpret_cast<const char *>(part.data()), size);
        at_ += size;
        return true;
    }

    bool array(PackedValue &value, uint64_t size, int depth) {
        value.kind = PackedValue::Kind::array;
        for (uint64_t index = 0; index < size; ++index) {
            value.array.emplace_back();
            if (!read(value.array.back(), depth + 1)) {
                return false;
            }
        }
        return true;
    }

    bool map(PackedValue &value, uint64_t size, int depth) {
        value.kind = PackedValue::Kind::map;
        for (uint64_t index = 0; index < size; ++index) {
            PackedValue key;
            PackedValue item;
            if (!read(key, depth + 1) || !read(item, depth + 1)) {
                return false;
            }
            if (key.kind == PackedValue::Kind::text) {
                value.map[key.text] = std::move(item);
            }
        }
        return true;
    }

    const Bytes bytes_;
    uint64_t at_ = 0;
};

} // namespace

const PackedValue &PackedValue::at(const std::string &key) const {
    static const PackedValue nothing;
    const auto found = map.find(key);
    return found == map.end() ? nothing : found->second;
}

bool read_messagepack(const Bytes &bytes, PackedValue &value) {
    return Reader(bytes).read(value, 0);
}

} // namespace sim
