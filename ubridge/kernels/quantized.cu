// Products of a quantized weight and vectors, dst[row] = sum over l of weight[row, l] y[l], under
// Candle's names: dequantize_mul_mat_vec_<format>. A row of the weight is a line of blocks as
// ggml lays them out; a block holds integers of 4 or 8 bits and what scales them.
//
// The work-items of a block that differ in x share a row, those along y and z have rows of their
// own; blocks along y have vectors of their own, one after the other in y and dst. So Candle's
// geometry, a block of (32, 1) for each row, is one of many; (32, 4) keeps more of a GPU busy.
// Sums are taken in f32. `vx` lies at a multiple of 2 bytes, of 4 for q4_k.
#include <string.h>

#include <uhal/kernel.h>

struct BlockQ4_0 {
    enum : u32 { ELEMENTS = 32 };
    f16 scale;
    u16 quants[8]; /* 16 bytes: element j is in the low half of byte j, 16 + j in the high one */
};

struct BlockQ8_0 {
    enum : u32 { ELEMENTS = 32 };
    f16 scale;
    u16 quants[16]; /* 32 bytes with a sign */
};

struct BlockQ4_K {
    enum : u32 { ELEMENTS = 256 };
    f16 scale;
    f16 minimum;
    u32 levels[3];  /* scales and minimums of 8 groups of 32 elements, 6 bits each */
    u32 quants[32]; /* of groups 2c and 2c + 1: halves of bytes 32 c to 32 c + 31 */
};

static_assert(sizeof(BlockQ4_0) == 18 && sizeof(BlockQ8_0) == 34 && sizeof(BlockQ4_K) == 144,
              "blocks lie next to each other, as in ggml's files");

// What an integer of a group is multiplied by, and what is subtracted then.
struct Level {
    f32 scale;
    f32 minimum;
};

DEVICE_FUNCTION Level level_of(const BlockQ4_K &block, u32 group)
{
    // Bytes 0 to 3 and 4 to 7 hold 6 bits for the first four groups; the rest is split in two.
    const u32 shift = 8 * (group % 4);
    const u32 scales = block.levels[0] >> shift;
    const u32 minimums = block.levels[1] >> shift;
    const u32 both = block.levels[2] >> shift;
    const bool early = group < 4;
    const u32 scale = early ? scales & 63 : (both & 15) | (scales >> 6 & 3) << 4;
    const u32 minimum = early ? minimums & 63 : (both >> 4 & 15) | (minimums >> 6 & 3) << 4;
    return {f32(block.scale) * f32(scale), f32(block.minimum) * f32(minimum)};
}

#if KERNEL_ON_GPU

struct alignas(16) Four {
    f32 values[4];
};

DEVICE_FUNCTION Four four_at(const f32 *y, bool aligned)
{
    if (aligned)
        return *reinterpret_cast<const Four *>(y);
    return {y[0], y[1], y[2], y[3]};
}

// A work-item takes 8 elements at a time, of which the second four may lie apart, so that
// neighboring ones read neighboring bytes.
DEVICE_FUNCTION f32 part_of_product(const BlockQ4_0 &block, u32 part, const f32 *y, bool aligned)
{
    const u32 quants = block.quants[2 * part] | u32(block.quants[2 * part + 1]) << 16;
    const Four low = four_at(y + 4 * part, aligned);
    const Four high = four_at(y + 16 + 4 * part, aligned);
    f32 sum = 0;
    for (u32 i = 0; i < 4; ++i) {
        sum += f32(i32(quants >> 8 * i & 15) - 8) * low.values[i];
        sum += f32(i32(quants >> (8 * i + 4) & 15) - 8) * high.values[i];
    }
    return f32(block.scale) * sum;
}

DEVICE_FUNCTION f32 part_of_product(const BlockQ8_0 &block, u32 part, const f32 *y, bool aligned)
{
    const Four halves[2] = {four_at(y + 8 * part, aligned), four_at(y + 8 * part + 4, aligned)};
    f32 sum = 0;
    for (u32 i = 0; i < 4; ++i) {
        const u32 pair = block.quants[4 * part + i];
        sum += f32(i8(pair)) * halves[i / 2].values[2 * (i % 2)];
        sum += f32(i8(pair >> 8)) * halves[i / 2].values[2 * (i % 2) + 1];
    }
    return f32(block.scale) * sum;
}

DEVICE_FUNCTION f32 part_of_product(const BlockQ4_K &block, u32 part, const f32 *y, bool aligned)
{
    const u32 first = 64 * (part / 8) + 4 * (part % 8);
    const u32 quants = block.quants[part];
    const Level of_low = level_of(block, 2 * (part / 8));
    const Level of_high = level_of(block, 2 * (part / 8) + 1);
    const Four low = four_at(y + first, aligned);
    const Four high = four_at(y + first + 32, aligned);
    f32 sum = 0;
    for (u32 i = 0; i < 4; ++i) {
        sum += (of_low.scale * f32(quants >> 8 * i & 15) - of_low.minimum) * low.values[i];
        sum += (of_high.scale * f32(quants >> (8 * i + 4) & 15) - of_high.minimum) * high.values[i];
    }
    return sum;
}

template <class Quantized>
DEVICE_FUNCTION void multiply(BLOCK block, const Quantized *weight, const f32 *y, f32 *dst,
                              u32 columns, u32 rows)
{
    constexpr u32 PARTS = Quantized::ELEMENTS / 8;
    const u64 parts = u64(columns / Quantized::ELEMENTS) * PARTS;
    const u32 lanes = blockDim.x;
    const u64 first_row = u64(blockIdx.x) * (blockDim.y * blockDim.z);
    const bool aligned = reinterpret_cast<u64>(y) % sizeof(Four) == 0;
    SHARED(f32, sums, MAX_THREADS);
    THREADS_OF(block, t) {
        const u64 row = first_row + t / lanes;
        const Quantized *const line = weight + row * (columns / Quantized::ELEMENTS);
        f32 sum = 0;
        if (row < rows)
            for (u64 i = t % lanes; i < parts; i += lanes)
                sum += part_of_product(line[i / PARTS], u32(i % PARTS),
                                       y + i / PARTS * Quantized::ELEMENTS, aligned);
        sums[t] = sum;
    }
    BARRIER();
    ROLLED for (u32 left = lanes; left > 1;) {
        const u32 half = (left + 1) / 2;
        THREADS_OF(block, t) {
            if (t % lanes + half < left)
                sums[t] += sums[t + half];
        }
        BARRIER();
        left = half;
    }
    THREADS_OF(block, t) {
        const u64 row = first_row + t / lanes;
        if (t % lanes == 0 && row < rows)
            dst[row] = sums[t];
    }
}

#else

enum : u32 { LANES = 32 };

// lanes[i] += (scale * (4 bits of byte i) - minimum) * y[i]
template <u32 count>
DEVICE_FUNCTION void add_halves(f32 *lanes, const u8 *bytes, u32 shift, Level level, const f32 *y)
{
    for (u32 i = 0; i < count; ++i)
        lanes[i] += (level.scale * f32(bytes[i] >> shift & 15) - level.minimum) * y[i];
}

DEVICE_FUNCTION void add_block(f32 *lanes, const BlockQ4_0 &block, const f32 *y)
{
    const u8 *const bytes = reinterpret_cast<const u8 *>(block.quants);
    const f32 scale = block.scale;
    add_halves<16>(lanes, bytes, 0, Level{scale, 8 * scale}, y);
    add_halves<16>(lanes + 16, bytes, 4, Level{scale, 8 * scale}, y + 16);
}

DEVICE_FUNCTION void add_block(f32 *lanes, const BlockQ8_0 &block, const f32 *y)
{
    const i8 *const quants = reinterpret_cast<const i8 *>(block.quants);
    const f32 scale = block.scale;
    for (u32 i = 0; i < LANES; ++i)
        lanes[i] += scale * f32(quants[i]) * y[i];
}

DEVICE_FUNCTION void add_block(f32 *lanes, const BlockQ4_K &block, const f32 *y)
{
    const u8 *bytes = reinterpret_cast<const u8 *>(block.quants);
    for (u32 group = 0; group < 8; group += 2, bytes += LANES, y += 2 * LANES) {
        add_halves<LANES>(lanes, bytes, 0, level_of(block, group), y);
        add_halves<LANES>(lanes, bytes, 4, level_of(block, group + 1), y + LANES);
    }
}

template <class Quantized>
DEVICE_FUNCTION void multiply(BLOCK block, const Quantized *weight, const f32 *y, f32 *dst,
                              u32 columns, u32 rows)
{
    const u64 blocks = columns / Quantized::ELEMENTS;
    const u64 rows_here = block.blockDim.y * block.blockDim.z;
    const u64 first_row = block.blockIdx.x * rows_here;
    for (u64 row = first_row; row < first_row + rows_here && row < rows; ++row) {
        alignas(64) f32 lanes[LANES] = {};
        const Quantized *const line = weight + row * blocks;
        for (u64 i = 0; i < blocks; ++i)
            add_block(lanes, line[i], y + i * Quantized::ELEMENTS);
        for (u32 width = LANES / 2; width > 0; width /= 2)
            for (u32 i = 0; i < width; ++i)
                lanes[i] += lanes[i + width];
        dst[row] = lanes[0];
    }
}

#endif

#define PRODUCT(format, Quantized)                                                                 \
    KERNEL(dequantize_mul_mat_vec_##format,                                                        \
           (const void *vx, const f32 *y, f32 *dst, i32 ncols, i32 nrows))                         \
    {                                                                                              \
        multiply(THIS_BLOCK, static_cast<const Quantized *>(vx),                                   \
                 y + u64(blockIdx.y) * u32(ncols), dst + u64(blockIdx.y) * u32(nrows), u32(ncols), \
                 u32(nrows));                                                                      \
    }

PRODUCT(q4_0_cuda, BlockQ4_0)
PRODUCT(q8_0_cuda, BlockQ8_0)
PRODUCT(q4_k, BlockQ4_K)
