/* f8e4m3: one byte with a sign, four bits of exponent and three of fraction, no infinities and one
 * NaN. Conversions from f32 round to nearest even and saturate: values beyond 448 and infinities
 * become 448, with their sign. Arithmetic is done in f32. Includers for devices define UHAL_FLOAT8
 * as the attributes of a member function.
 */
#ifndef UHAL_FLOAT8_H
#define UHAL_FLOAT8_H

#include <stdint.h>
#include <string.h>

#ifndef UHAL_FLOAT8
#define UHAL_FLOAT8
#endif

struct f8e4m3 {
    uint8_t bits;
    f8e4m3() = default;
    UHAL_FLOAT8 f8e4m3(float value) : bits(rounded(value)) {}
    UHAL_FLOAT8 operator float() const {
        /* The exponents of f32 are 120 larger; the product is exact for subnormals too. */
        const uint32_t magnitude = bits & 0x7FU;
        const float value = as_float(magnitude << 20) * 0x1p120F;
        const uint32_t sign = (bits & 0x80U) << 24;
        return as_float((magnitude == 0x7FU ? 0x7FC00000U : as_bits(value)) | sign);
    }

  private:
    static UHAL_FLOAT8 uint8_t rounded(float value) {
        const uint32_t all = as_bits(value);
        const uint32_t magnitude = all & 0x7FFFFFFFU;
        /* 448, the largest. */
        const uint32_t bounded = magnitude < 0x43E00000U ? magnitude : 0x43E00000U;
        /* Adding 2^14 leaves multiples of 2^-9, rounded, in the low bits. */
        const uint32_t subnormal = as_bits(as_float(bounded) + 16384.0F) - 0x46800000U;
        const uint32_t normal = ((bounded + 0x7FFFFU + (bounded >> 20 & 1U)) >> 20) - 960U;
        uint32_t result = bounded < 0x3C800000U ? subnormal : normal;
        result = magnitude > 0x7F800000U ? 0x7FU : result;
        return static_cast<uint8_t>(result | (all >> 24 & 0x80U));
    }
    static UHAL_FLOAT8 uint32_t as_bits(float value) {
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        return bits;
    }
    static UHAL_FLOAT8 float as_float(uint32_t bits) {
        float value;
        memcpy(&value, &bits, sizeof value);
        return value;
    }
};

static_assert(sizeof(f8e4m3) == 1, "8-bit storage");

#undef UHAL_FLOAT8
#endif
