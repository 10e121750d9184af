/* f16 and bf16 on the host: 16-bit storage with conversions to and from f32, rounding to nearest
 * even. The conversions have no branches, so that loops over them vectorize; arithmetic is done in
 * f32.
 */
#ifndef UHAL_HALF_H
#define UHAL_HALF_H

#include <stdint.h>
#include <string.h>

namespace uhal {

static inline uint32_t float_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float bits_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Uses masks, because a conditional around floating point work prevents vectorization. */
static inline uint32_t select_bits(bool condition, uint32_t yes, uint32_t no) {
    const uint32_t mask = 0U - static_cast<uint32_t>(condition);
    return (yes & mask) | (no & ~mask);
}

static inline uint16_t float_to_half(float value) {
    const uint32_t bits = float_bits(value);
    const uint32_t sign = bits >> 16 & 0x8000U;
    const uint32_t magnitude = bits & 0x7FFFFFFFU;
    const uint32_t nan = 0x7E00U | (magnitude >> 13 & 0x1FFU);
    /* Adding 0.5 to a value below 2^-14 leaves the subnormal half, rounded, in the low bits. */
    const uint32_t subnormal = float_bits(bits_float(magnitude) + 0.5F) - 0x3F000000U;
    const uint32_t normal = (magnitude - 0x38000000U + 0xFFFU + (magnitude >> 13 & 1U)) >> 13;
    uint32_t result = select_bits(magnitude < 0x38800000U, subnormal, normal);
    result = select_bits(magnitude >= 0x477FF000U, 0x7C00U, result);
    result = select_bits(magnitude > 0x7F800000U, nan, result);
    return static_cast<uint16_t>(sign | result);
}

static inline float half_to_float(uint16_t half) {
    const uint32_t sign = (half & 0x8000U) << 16;
    const uint32_t magnitude = half & 0x7FFFU;
    /* 2^-24 times the integer is exact for a subnormal. */
    const uint32_t subnormal = float_bits(static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24F);
    const uint32_t normal = (magnitude << 13) + 0x38000000U;
    uint32_t result = select_bits(magnitude < 0x400U, subnormal, normal);
    result = select_bits(magnitude >= 0x7C00U, magnitude << 13 | 0x7F800000U, result);
    return bits_float(sign | result);
}

static inline uint16_t float_to_bfloat(float value) {
    const uint32_t bits = float_bits(value);
    const uint32_t rounded = (bits + 0x7FFFU + (bits >> 16 & 1U)) >> 16;
    const uint32_t nan = bits >> 16 | 0x40U;
    return static_cast<uint16_t>(select_bits((bits & 0x7FFFFFFFU) > 0x7F800000U, nan, rounded));
}

static inline float bfloat_to_float(uint16_t bfloat) {
    return bits_float(static_cast<uint32_t>(bfloat) << 16);
}

} // namespace uhal

struct f16 {
    uint16_t bits;
    f16() = default;
    f16(float value) : bits(uhal::float_to_half(value)) {}
    operator float() const { return uhal::half_to_float(bits); }
};

struct bf16 {
    uint16_t bits;
    bf16() = default;
    bf16(float value) : bits(uhal::float_to_bfloat(value)) {}
    operator float() const { return uhal::bfloat_to_float(bits); }
};

static_assert(sizeof(f16) == 2 && sizeof(bf16) == 2, "16-bit storage");

#endif
