// Products of blocks with vectors of f32.
#ifndef UBRIDGE_BLOCK_PRODUCTS_H
#define UBRIDGE_BLOCK_PRODUCTS_H

#include "block_elements.h"

// Adds up `count` sums over the `lanes` neighbors that share a row; the first gets the totals.
#define ADD_LANES(block, sums, count, lanes)                                                       \
    ROLLED for (u32 left = (lanes); left > 1;) {                                                   \
        const u32 half = (left + 1) / 2;                                                           \
        THREADS_OF(block, t) {                                                                     \
            if (t % (lanes) + half < left)                                                         \
                for (u32 n = 0; n < (count); ++n)                                                  \
                    sums[n][t] += sums[n][t + half];                                               \
        }                                                                                          \
        BARRIER();                                                                                 \
        left = half;                                                                               \
    }

// The work-items of a block along x share a row; along y and z each has its own row. So Candle's
// geometry, a block of (32, 1) for each row, is one of many.
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

template <class Block>
DEVICE_FUNCTION void multiply(BLOCK block, const Block *weight, const f32 *y, f32 *dst, u32 columns,
                              u64 rows)
{
    const u32 lanes = blockDim.x;
    const u64 first_row = u64(blockIdx.x) * (blockDim.y * blockDim.z);
    const bool aligned = reinterpret_cast<u64>(y) % sizeof(Four) == 0;
    SHARED(f32, sums, 1, MAX_THREADS);
    THREADS_OF(block, t) {
        const u64 row = first_row + t / lanes;
        const Block *const line = weight + row * (columns / Block::ELEMENTS);
        f32 sum = 0;
        if (row < rows)
            // Neighboring work-items read neighboring bytes of blocks and of y.
            for (u64 e = 4 * (t % lanes); e < columns; e += 4 * lanes) {
                const Block &here = line[e / Block::ELEMENTS];
                const Level level = here.level(u32(e % Block::ELEMENTS));
                const u32 word = here.template packed<u32>(u32(e % Block::ELEMENTS));
                const Four values = four_at(y + e, aligned);
                for (u32 i = 0; i < 4; ++i) {
                    const i32 quant = i32(i8(word >> 8 * i)) - i32(Block::OFFSET);
                    sum += (level.scale * f32(quant) - level.minimum) * values.values[i];
                }
            }
        sums[0][t] = sum;
    }
    BARRIER();
    ADD_LANES(block, sums, 1, lanes)
    THREADS_OF(block, t) {
        const u64 row = first_row + t / lanes;
        if (t % lanes == 0 && row < rows)
            dst[row] = sums[0][t];
    }
}

#else

template <class Block>
DEVICE_FUNCTION void multiply(BLOCK block, const Block *weight, const f32 *y, f32 *dst, u32 columns,
                              u64 rows)
{
    constexpr u32 SPAN = span_of<Block>;
    const u64 blocks = columns / Block::ELEMENTS;
    const u64 rows_here = block.blockDim.y * block.blockDim.z;
    const u64 first_row = block.blockIdx.x * rows_here;
    for (u64 row = first_row; row < first_row + rows_here && row < rows; ++row) {
        Floats16 sums[2] = {};
        const Block *const line = weight + row * blocks;
        const auto add = [&](u64 i, u32 first) __attribute__((always_inline)) {
            const Level level = line[i].level(first);
            const f32 shift = f32(Block::OFFSET) * level.scale + level.minimum;
            for (u32 j = 0; j < SPAN; j += 16) {
                const Floats16 quants = floats(sixteen(line[i], first + j));
                sums[(first + j) / 16 % 2] +=
                    (level.scale * quants - shift) * load16(y + i * Block::ELEMENTS + first + j);
            }
        };
        for (u64 i = 0; i < blocks; ++i) {
            if constexpr (Block::WIDE) {
                // Unrolled, so that each span's place in the block is a constant.
#pragma GCC unroll 8
                for (u32 first = 0; first < Block::ELEMENTS; first += SPAN)
                    add(i, first);
            } else {
#pragma GCC unroll 1
                for (u32 first = 0; first < Block::ELEMENTS; first += SPAN)
                    add(i, first);
            }
        }
        dst[row] = sum_of(sums[0] + sums[1]);
    }
}

#endif

// Any size of a block is right. Each block along y has its own vector. Vectors are contiguous in y
// and dst.
#define PRODUCT(entry, Block)                                                                      \
    KERNEL(entry, (const void *vx, const f32 *y, f32 *dst, i32 ncols, i32 nrows))                  \
    {                                                                                              \
        multiply(THIS_BLOCK, static_cast<const Block *>(vx), y + u64(blockIdx.y) * u32(ncols),     \
                 dst + u64(blockIdx.y) * u32(nrows), u32(ncols), u32(nrows));                      \
    }

#endif
