#include "messagepack.h"

namespace sim {

namespace {

constexpr unsigned deepest = 16;

class Unpacker {
  public:
    explicit Unpacker(const Bytes &bytes) : bytes_(bytes) {}

    bool whole(PackedValue &value) { return read(value, 0) && at_ == bytes_.size(); }

  private:
    bool read(PackedValue &value, unsigned depth) {
        unsigned char tag = 0;
        if (depth > deepest || !take(tag)) {
            return false;
        }
        if (tag <= 0x7F || tag >= 0xE0) {
            return number(value, tag <= 0x7F ? tag : static_cast<uint64_t>(int64_t{tag} - 256));
        }
        if (tag <= 0x8F) {
            return map(value, tag & 0xF, depth);
        }
        if (tag <= 0x9F) {
            return list(value, tag & 0xF, depth);
        }
        if (tag <= 0xBF) {
            return text(value, tag & 0x1F);
        }
        return read_tagged(value, tag, depth);
    }

    bool read_tagged(PackedValue &value, unsigned char tag, unsigned depth) {
        switch (tag) {
        case 0xC0: // nil
            return true;
        case 0xC2: // false
        case 0xC3: // true
            value.kind = PackedValue::Kind::boolean;
            value.number = tag & 1;
            return true;
        case 0xC4: // binary data
        case 0xC5:
        case 0xC6:
            return skip_sized(1U << (tag - 0xC4), 0);
        case 0xC7: // extensions
        case 0xC8:
        case 0xC9:
            return skip_sized(1U << (tag - 0xC7), 1);
        case 0xCA: // floats
            return skip(4);
        case 0xCB:
            return skip(8);
        case 0xCC: // numbers
        case 0xCD:
        case 0xCE:
        case 0xCF:
            return sized_number(value, 1U << (tag - 0xCC), false);
        case 0xD0:
        case 0xD1:
        case 0xD2:
        case 0xD3:
            return sized_number(value, 1U << (tag - 0xD0), true);
        case 0xD4: // extensions of fixed sizes
        case 0xD5:
        case 0xD6:
        case 0xD7:
        case 0xD8:
            return skip(1 + (1U << (tag - 0xD4)));
        default:
            return read_long(value, tag, depth);
        }
    }

    bool read_long(PackedValue &value, unsigned char tag, unsigned depth) {
        uint64_t length = 0;
        switch (tag) {
        case 0xD9:
        case 0xDA:
        case 0xDB:
            return big_endian(1U << (tag - 0xD9), length) && text(value, length);
        case 0xDC:
        case 0xDD:
            return big_endian(2U << (tag - 0xDC), length) && list(value, length, depth);
        case 0xDE:
        case 0xDF:
            return big_endian(2U << (tag - 0xDE), length) && map(value, length, depth);
        default:
            return false;
        }
    }

    bool take(unsigned char &byte) {
        const bool read = bytes_.read(at_, byte);
        ++at_;
        return read;
    }

    bool skip(uint64_t count) {
        if (count > bytes_.size() - at_) {
            return false;
        }
        at_ += count;
        return true;
    }

    bool skip_sized(unsigned width, uint64_t more) {
        uint64_t length = 0;
        return big_endian(width, length) && skip(length + more);
    }

    bool big_endian(unsigned width, uint64_t &number) {
        number = 0;
        for (unsigned char byte = 0; width != 0; --width) {
            if (!take(byte)) {
                return false;
            }
            number = number << 8 | byte;
        }
        return true;
    }

    static bool number(PackedValue &value, uint64_t number) {
        value.kind = PackedValue::Kind::number;
        value.number = number;
        return true;
    }

    bool sized_number(PackedValue &value, unsigned width, bool is_signed) {
        uint64_t bits = 0;
        if (!big_endian(width, bits)) {
            return false;
        }
        const bool negative = is_signed && (bits >> (8 * width - 1) & 1) != 0;
        return number(value, negative && width < 8 ? bits - (uint64_t{1} << 8 * width) : bits);
    }

    bool text(PackedValue &value, uint64_t length) {
        const uint64_t start = at_;
        if (!skip(length)) {
            return false;
        }
        value.kind = PackedValue::Kind::text;
        const auto *first = reinterpret_cast<const char *>(bytes_.data() + start);
        value.text.assign(first, length);
        return true;
    }

    bool list(PackedValue &value, uint64_t count, unsigned depth) {
        value.kind = PackedValue::Kind::list;
        for (; count != 0; --count) {
            // Items are added one by one, because a wrong count may exceed the memory.
            value.items.emplace_back();
            if (!read(value.items.back(), depth + 1)) {
                return false;
            }
        }
        return true;
    }

    bool map(PackedValue &value, uint64_t count, unsigned depth) {
        value.kind = PackedValue::Kind::map;
        for (; count != 0; --count) {
            PackedValue key;
            PackedValue member;
            if (!read(key, depth + 1) || !read(member, depth + 1)) {
                return false;
            }
            if (key.kind == PackedValue::Kind::text) {
                value.members[key.text] = std::move(member);
            }
        }
        return true;
    }

    const Bytes bytes_;
    uint64_t at_ = 0;
};

} // namespace

const PackedValue &PackedValue::operator[](const std::string &key) const {
    static const PackedValue none;
    const auto found = members.find(key);
    return found == members.end() ? none : found->second;
}

bool unpack(const Bytes &bytes, PackedValue &value) {
    return Unpacker(bytes).whole(value);
}

} // namespace sim
