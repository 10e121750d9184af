/* Ubridge's block quantization. Unlike in GGML, the scales of all blocks lie before the values. */
#include "gcu.h"

namespace {

constexpr u64 block_8 = 32;   // values of a block of q8_0: an f16 scale, 32 bytes
constexpr u64 block_4k = 256; // of q4_k: a header of 16 bytes, 128 bytes of halves
constexpr u64 header_4k = 16;

template <class T> void dequantize_8(const Sips &sips, const i8 *in, T *out, u64 numel) {
    const u64 blocks = (numel + block_8 - 1) / block_8;
    const f16 *scales = reinterpret_cast<const f16 *>(in);
    const i8 *values = in + blocks * sizeof(f16);
    each_element(sips, blocks, [&](u64 block) {
        const T scale = T(f32(scales[block]));
        for (u64 i = block * block_8; i < (block + 1) * block_8; ++i) {
            out[i] = T(f32(T(f32(values[i]))) * f32(scale));
        }
    });
}

template <class T> void quantize_8(const Sips &sips, const T *in, i8 *out, u64 input_bytes) {
    const u64 blocks = (input_bytes / sizeof(T) + block_8 - 1) / block_8;
    f16 *scales = reinterpret_cast<f16 *>(out);
    i8 *values = out + blocks * sizeof(f16);
    each_element(sips, blocks, [&](u64 block) {
        f32 largest = 0;
        for (u64 i = block * block_8; i < (block + 1) * block_8; ++i) {
            const f32 x = fabsf(f32(in[i]));
            largest = x > largest ? x : largest;
        }
        const f32 scale = largest / 127;
        const f32 inverse = scale != 0 ? 1 / scale : 0;
        scales[block] = f16(scale);
        for (u64 i = block * block_8; i < (block + 1) * block_8; ++i) {
            values[i] = i8(rintf(f32(in[i]) * inverse));
        }
    });
}

/* Six bits of scale and of minimum for each of the eight groups of 32 values. */
void scale_and_minimum(u64 group, const u8 *packed, u8 &scale, u8 &minimum) {
    if (group < 4) {
        scale = packed[group] & 63;
        minimum = packed[group + 4] & 63;
    } else {
        scale = (packed[group + 4] & 15) | packed[group - 4] >> 6 << 4;
        minimum = packed[group + 4] >> 4 | packed[group] >> 6 << 4;
    }
}

/* Both halves of 64 values use the first half's minimum. In f32 the second 128 values of a block
 * repeat the first 128. */
template <class T> void dequantize_4k(const Sips &sips, const i8 *in, T *out, u64 numel) {
    const u64 blocks = (numel + block_4k - 1) / block_4k;
    const u8 *headers = reinterpret_cast<const u8 *>(in);
    const u8 *values = headers + blocks * header_4k;
    constexpr bool repeats = std::is_same_v<T, f32>;
    each_element(sips, blocks, [&](u64 block) {
        const u8 *header = headers + block * header_4k;
        const f16 *both = reinterpret_cast<const f16 *>(header);
        for (u64 i = 0; i < block_4k; ++i) {
            const u64 at = repeats ? i % (block_4k / 2) : i;
            const u64 group = at / 32, byte = at / 64 * 32 + at % 32;
            u8 scale, minimum, ignored;
            scale_and_minimum(group, header + 4, scale, ignored);
            scale_and_minimum(group / 2 * 2, header + 4, ignored, minimum);
            const u8 q = values[block * block_4k / 2 + byte] >> (group % 2 * 4) & 15;
            out[block * block_4k + i] = T(f32(both[0]) * scale * q - f32(both[1]) * minimum);
        }
    });
}

} // namespace

#define QUANT(suffix, type)                                                                        \
    KERNEL(dequantize_block_q8_0_##suffix, (i8 * inp, type * out, u64 numel)) {                    \
        dequantize_8(SIPS, inp, out, numel);                                                       \
    }                                                                                              \
    KERNEL(dequantize_block_q4_k_##suffix, (i8 * inp, type * out, u64 numel)) {                    \
        dequantize_4k(SIPS, inp, out, numel);                                                      \
    }                                                                                              \
    KERNEL(quantize_block_q8_0_##suffix,                                                           \
           (type * inp, i8 * out, u64 input_bytes, u64 output_bytes)) {                            \
        (void)output_bytes;                                                                        \
        quantize_8(SIPS, inp, out, input_bytes);                                                   \
    }                                                                                              \
    /* Upstream does nothing here; the output is uninitialised. */                                 \
    KERNEL(quantize_block_q4_k_##suffix,                                                           \
           (type * inp, i8 * out, u64 input_bytes, u64 output_bytes)) {                            \
        (void)inp;                                                                                 \
        (void)input_bytes;                                                                         \
        each_element(SIPS, output_bytes, [&](u64 i) { out[i] = -1; });                             \
    }

QUANT(f16, f16)
QUANT(bf16, bf16)
QUANT(f32, f32)
