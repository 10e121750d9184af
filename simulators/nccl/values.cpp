#include "values.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace nccl_sim {

namespace {

// Elements of 16 bits that are computed as f32.
struct Bfloat16 {
    using Wide = float;
    uint16_t bits;

    Wide wide() const {
        const uint32_t all = uint32_t{bits} << 16;
        float value;
        std::memcpy(&value, &all, sizeof value);
        return value;
    }
    static Bfloat16 narrow(Wide value) {
        uint32_t all;
        std::memcpy(&all, &value, sizeof all);
        if (value != value) {
            return {static_cast<uint16_t>(all >> 16 | 0x40)};
        }
        return {static_cast<uint16_t>((all + 0x7FFF + (all >> 16 & 1)) >> 16)};
    }
};

struct Float16 {
    using Wide = float;
    _Float16 value;

    Wide wide() const { return static_cast<float>(value); }
    static Float16 narrow(Wide value) { return {static_cast<_Float16>(value)}; }
};

template <class Value> struct Plain {
    using Wide = Value;
    Value value;

    Wide wide() const { return value; }
    static Plain narrow(Wide value) { return {value}; }
};

// Sums of integers wrap around, as on GPUs.
template <class Wide> Wide combine(Wide x, Wide y, ncclRedOp_t op) {
    switch (op) {
    case ncclProd:
        return static_cast<Wide>(x * y);
    case ncclMax:
        return std::max(x, y);
    case ncclMin:
        return std::min(x, y);
    default:
        return static_cast<Wide>(x + y);
    }
}

template <class Element>
void reduce_as(const std::vector<const char *> &operands, size_t offset, size_t count,
               ncclRedOp_t op, char *result) {
    using Wide = typename Element::Wide;
    for (size_t index = 0; index < count; ++index) {
        Wide total{};
        for (size_t rank = 0; rank < operands.size(); ++rank) {
            Element element;
            std::memcpy(&element, operands[rank] + (offset + index) * sizeof element,
                        sizeof element);
            total = rank == 0 ? element.wide() : combine<Wide>(total, element.wide(), op);
        }
        if (op == ncclAvg) {
            total = static_cast<Wide>(total / static_cast<Wide>(operands.size()));
        }
        const Element narrow = Element::narrow(total);
        std::memcpy(result + index * sizeof narrow, &narrow, sizeof narrow);
    }
}

} // namespace

size_t bytes_of(ncclDataType_t type) {
    constexpr size_t bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
    return static_cast<size_t>(type) < std::size(bytes) ? bytes[type] : 0;
}

const char *name_of(ncclDataType_t type) {
    constexpr const char *names[] = {"i8",  "u8",  "i32", "u32", "i64",
                                     "u64", "f16", "f32", "f64", "bf16"};
    return static_cast<size_t>(type) < std::size(names) ? names[type] : "?";
}

void reduce(const std::vector<const char *> &operands, size_t offset, size_t count,
            ncclDataType_t type, ncclRedOp_t op, char *result) {
    using Reduction =
        void (*)(const std::vector<const char *> &, size_t, size_t, ncclRedOp_t, char *);
    constexpr Reduction reductions[] = {
        reduce_as<Plain<int8_t>>,   reduce_as<Plain<uint8_t>>, reduce_as<Plain<int32_t>>,
        reduce_as<Plain<uint32_t>>, reduce_as<Plain<int64_t>>, reduce_as<Plain<uint64_t>>,
        reduce_as<Float16>,         reduce_as<Plain<float>>,   reduce_as<Plain<double>>,
        reduce_as<Bfloat16>,
    };
    reductions[type](operands, offset, count, op, result);
}

} // namespace nccl_sim
