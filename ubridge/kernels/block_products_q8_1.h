// Products of blocks with vectors that are blocks of Q8_1.
#ifndef UBRIDGE_BLOCK_PRODUCTS_Q8_1_H
#define UBRIDGE_BLOCK_PRODUCTS_Q8_1_H

#include "block_products.h"

// sum + the product of four bytes with signs and four others.
DEVICE_FUNCTION i32 dot4(u32 a, u32 b, i32 sum)
{
#if defined(__CUDA_ARCH__)
    return __dp4a(i32(a), i32(b), sum);
#elif defined(__GFX11__) || defined(__GFX12__)
    return __builtin_amdgcn_sudot4(true, i32(a), true, i32(b), sum, false);
#elif defined(__gfx90a__) || defined(__gfx942__) || defined(__gfx1030__)
    return __builtin_amdgcn_sdot4(i32(a), i32(b), sum, false);
#else
    for (u32 i = 0; i < 32; i += 8)
        sum += i32(i8(a >> i)) * i32(i8(b >> i));
    return sum;
#endif
}

// Source of the minimum's share: the integers of y, or the sum of the original numbers, which its
// blocks keep. The results differ by the rounding error of y's quantization.
enum class Sums { of_integers, kept };

// The product with its scale and the minimum's share, for a span and y.
template <class Block, Sums sums>
DEVICE_FUNCTION f32 scaled(Level level, i32 product, i32 total, f32 d, f32 s)
{
    if constexpr (sums == Sums::kept)
        return level.scale * d * f32(product) -
               (f32(Block::OFFSET) * level.scale + level.minimum) * s;
    else
        return d * (level.scale * f32(product - i32(Block::OFFSET) * total) -
                    level.minimum * f32(total));
}

// Whether the integers of y have to be added up.
template <class Block, Sums sums>
constexpr bool needs_total =
    sums == Sums::of_integers && (Block::OFFSET != 0 || Block::MINIMUM != 0);

#if KERNEL_ON_GPU

template <class Block> struct Span {
    Level level;
    u32 words[span_of<Block> / 4];

    DEVICE_METHOD Span(const Block &block, u32 first) : level(block.level(first))
    {
        for (u32 i = 0; i < span_of<Block> / 4; ++i)
            words[i] = block.template packed<u32>(first + 4 * i);
    }
};

// The dot product of a span that begins at element `first` with y's elements from `first % 32` on.
template <class Block, Sums sums>
DEVICE_FUNCTION f32 dot(const Span<Block> &span, u32 first, const BlockQ8_1 &y)
{
    i32 product = 0, total = 0;
    for (u32 i = 0; i < span_of<Block> / 4; ++i) {
        const u32 word = y.packed<u32>(first % 32 + 4 * i);
        product = dot4(span.words[i], word, product);
        if constexpr (needs_total<Block, sums>)
            total = dot4(0x01010101, word, total);
    }
    return scaled<Block, sums>(span.level, product, total, f32(y.d), f32(y.s));
}

#else

enum : u32 { MOST_VECTORS = 8 };

// A row of the weight times `count` vectors. The lanes of a sum are added up at the end.
template <class Block, Sums sums>
ONE_FUNCTION void multiply_row(const Block *row, u64 blocks, const BlockQ8_1 *y, u64 y_blocks,
                               u32 count, f32 *results)
{
    constexpr u32 SPAN = span_of<Block>, PARTS = SPAN / 16;
    Floats16 lanes[MOST_VECTORS] = {};
    f32 kept[MOST_VECTORS] = {};
    for (u64 i = 0; i < blocks; ++i)
        for (u32 first = 0; first < Block::ELEMENTS; first += SPAN) {
            const Level level = row[i].level(first);
            const f32 shift = f32(Block::OFFSET) * level.scale + level.minimum;
            Integers16 quants[PARTS];
            for (u32 part = 0; part < PARTS; ++part)
                quants[part] = sixteen(row[i], first + 16 * part);
            const BlockQ8_1 *const others = y + i * (Block::ELEMENTS / 32) + first / 32;
            for (u32 c = 0; c < count; ++c) {
                const BlockQ8_1 &other = others[c * y_blocks];
                const f32 d = other.d;
                Integers16 product = {}, total = {};
                for (u32 part = 0; part < PARTS; ++part) {
                    const Integers16 integers = sixteen(other, first % 32 + 16 * part);
                    product += quants[part] * integers;
                    total += integers;
                }
                lanes[c] += d * level.scale * floats(product);
                if constexpr (needs_total<Block, sums>)
                    lanes[c] -= d * shift * floats(total);
                if constexpr (sums == Sums::kept)
                    kept[c] += shift * f32(other.s);
            }
        }
    for (u32 c = 0; c < count; ++c)
        results[c] = sum_of(lanes[c]) - kept[c];
}

template <class Block, Sums sums>
ONE_FUNCTION void multiply_rows(const Block *weight, u64 blocks, const BlockQ8_1 *y, u64 y_blocks,
                                u32 columns, u64 rows, f32 *dst, u64 dst_rows)
{
    for (u64 row = 0; row < rows; ++row) {
        f32 results[MOST_VECTORS];
        multiply_row<Block, sums>(weight + row * blocks, blocks, y, y_blocks, columns, results);
        for (u32 c = 0; c < columns; ++c)
            dst[c * dst_rows + row] = results[c];
    }
}

#endif

// A block takes ROWS neighboring rows and COLUMNS vectors y; dst has a column for each vector.
// Candle's geometry is a block of (32, 4), or (32, 2) from 5 vectors on.
template <class Block, Sums sums, u32 ROWS, u32 COLUMNS>
DEVICE_FUNCTION void multiply_q8_1(BLOCK block, const Block *weight, const BlockQ8_1 *y, f32 *dst,
                                   u64 first_row, u32 columns, u64 rows, u64 y_blocks, u64 dst_rows)
{
    const u64 blocks = columns / Block::ELEMENTS;
#if KERNEL_ON_GPU
    constexpr u32 SPAN = span_of<Block>;
    const u64 spans = columns / SPAN;
    constexpr u32 MOST_THREADS = 128, COUNT = ROWS * COLUMNS;
    SHARED(f32, partial, COUNT, MOST_THREADS);
    const u32 threads = blockDim.x * blockDim.y * blockDim.z;
    THREADS_OF(block, t) {
        // The sums lie in shared memory: in registers every loop would have to be unrolled, and the
        // eighty kernels would be most of all images.
        for (u32 n = 0; n < COUNT; ++n)
            partial[n][t] = 0;
        for (u64 i = t; i < spans; i += threads) {
            const u64 at = i * SPAN / Block::ELEMENTS;
            const u32 first = u32(i * SPAN % Block::ELEMENTS);
            ROLLED for (u32 r = 0; r < ROWS; ++r) {
                if (first_row + r >= rows)
                    continue;
                const Span<Block> span(weight[(first_row + r) * blocks + at], first);
                ROLLED for (u32 c = 0; c < COLUMNS; ++c)
                    partial[r * COLUMNS + c][t] +=
                        dot<Block, sums>(span, first, y[c * y_blocks + i * SPAN / 32]);
            }
        }
    }
    BARRIER();
    ADD_LANES(block, partial, COUNT, threads)
    THREADS_OF(block, t) {
        for (u32 n = t; n < COUNT; n += threads)
            if (first_row + n / COLUMNS < rows)
                dst[n % COLUMNS * dst_rows + first_row + n / COLUMNS] = partial[n][0];
    }
#else
    (void)block;
    const u64 left = rows > first_row ? rows - first_row : 0;
    multiply_rows<Block, sums>(weight + first_row * blocks, blocks, y, y_blocks, COLUMNS,
                               left < ROWS ? left : ROWS, dst + first_row, dst_rows);
#endif
}

#endif
