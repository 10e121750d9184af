// Products of blocks with vectors that are blocks of Q8_1.
#ifndef UBRIDGE_BLOCK_PRODUCTS_Q8_1_H
#define UBRIDGE_BLOCK_PRODUCTS_Q8_1_H

#include "block_products.h"

#include <uhal/warp.h>

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

// Source of the minimum's share: the integers of y, or the sum of the original numbers, which
// blocks of y keep. The results differ by the rounding error of y's quantization.
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

// Whether the product needs the sum of y's integers.
template <class Block, Sums sums>
constexpr bool needs_total =
    sums == Sums::of_integers && (Block::OFFSET != 0 || Block::MINIMUM != 0);

#if KERNEL_ON_GPU

// The dot product of four elements, from `first` on, with y's elements at the same places. A
// span's first four elements add y's sum for the whole span, if blocks of y keep a sum.
template <class Block, Sums sums>
DEVICE_FUNCTION f32 dot(Level level, u32 word, u32 first, const BlockQ8_1 &y)
{
    const u32 other = y.packed<u32>(first % 32);
    const i32 product = dot4(word, other, 0);
    const i32 total = needs_total<Block, sums> ? dot4(0x01010101, other, 0) : 0;
    const bool takes_sum = sums == Sums::kept && first % span_of<Block> == 0;
    return scaled<Block, sums>(level, product, total, f32(y.d), takes_sum ? f32(y.s) : 0);
}

// A loop over a work-item's words of a row: four elements of block `i`, from `first` on. Neighbors have
// neighboring words. Each round covers whole blocks, so a work-item has the same place in every
// block. It is a macro because WebGPU does not support pointers in function objects.
#define EACH_WORD(Block, t, threads, blocks, i, first)                                             \
    ROLLED for (u32 word = (t); word < round_of<Block>(threads); word += (threads))                \
        ROLLED for (u32 i = word / (Block::ELEMENTS / 4),                                          \
                        first = 4 * (word % (Block::ELEMENTS / 4)),                                \
                        step = round_of<Block>(threads) / (Block::ELEMENTS / 4);                   \
                    i < (blocks); i += step)

// Words of a row that all work-items take in one round: one block or more.
template <class Block> DEVICE_FUNCTION u32 round_of(u32 threads)
{
    constexpr u32 WORDS = Block::ELEMENTS / 4;
    return threads < WORDS ? WORDS : threads / WORDS * WORDS;
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
    const u32 blocks = columns / Block::ELEMENTS;
#if KERNEL_ON_GPU
    constexpr u32 MOST_THREADS = 128, COUNT = ROWS * COLUMNS;
    const u32 threads = blockDim.x * blockDim.y * blockDim.z;
    const u32 blocks_here = first_row < rows ? blocks : 0;
    if constexpr (COUNT == 1) {
        REGISTER_OF(block, f32, sum, MOST_THREADS);
        THREADS_OF(block, t) {
            f32 own = 0;
            const Block *const row = weight + first_row * blocks;
            EACH_WORD(Block, t, threads, blocks_here, i, first)
            own += dot<Block, sums>(row[i].level(first), row[i].template packed<u32>(first), first,
                                    y[i * (Block::ELEMENTS / 32) + first / 32]);
            sum(t) = own;
        }
        const f32 total = block_reduce(block, sum, Add());
        THREADS_OF(block, t) {
            if (t == 0 && first_row < rows)
                dst[first_row] = total;
        }
    } else {
        SHARED(f32, partial, COUNT, MOST_THREADS);
        THREADS_OF(block, t) {
            // The sums lie in shared memory. Sums in registers would require unrolled loops, and
            // the eighty kernels would fill most of every image.
            for (u32 n = 0; n < COUNT; ++n)
                partial[n][t] = 0;
            EACH_WORD(Block, t, threads, blocks_here, i, first) {
                const BlockQ8_1 *const other = y + i * (Block::ELEMENTS / 32) + first / 32;
                ROLLED for (u32 r = 0; r < ROWS; ++r) {
                    if (first_row + r >= rows)
                        continue;
                    const Block &here = weight[(first_row + r) * blocks + i];
                    const Level level = here.level(first);
                    const u32 packed = here.template packed<u32>(first);
                    for (u32 c = 0; c < COLUMNS; ++c)
                        partial[r * COLUMNS + c][t] +=
                            dot<Block, sums>(level, packed, first, other[c * y_blocks]);
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
    }
#else
    (void)block;
    const u64 left = rows > first_row ? rows - first_row : 0;
    multiply_rows<Block, sums>(weight + first_row * blocks, blocks, y, y_blocks, COLUMNS,
                               left < ROWS ? left : ROWS, dst + first_row, dst_rows);
#endif
}

#endif
