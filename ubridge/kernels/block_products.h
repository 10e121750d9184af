// Elements of blocks, and their products with vectors of f32 and of blocks of Q8_1.
//
// Everything is written in spans: up to 32 neighbors of a block that share a level. On a GPU a
// work-item takes four elements, or a span, at a time; on the host vectors of sixteen are.
#ifndef UBRIDGE_BLOCK_PRODUCTS_H
#define UBRIDGE_BLOCK_PRODUCTS_H

#include "blocks.h"

// Elements of a span: a block of Q8_1 holds one or more of them.
template <class Block> constexpr u32 span_of = Block::SPAN < 32 ? Block::SPAN : 32;

#if !KERNEL_ON_GPU

// Everything is inlined: how a CPU without such vectors would pass them does not matter.
#pragma GCC diagnostic ignored "-Wpsabi"

typedef i8 Bytes16 __attribute__((vector_size(16)));
typedef i16 Shorts16 __attribute__((vector_size(32)));
typedef i32 Integers16 __attribute__((vector_size(64)));
typedef f32 Floats16 __attribute__((vector_size(64)));

// Sixteen elements' integers, as they are stored.
template <class Block> DEVICE_FUNCTION Integers16 sixteen(const Block &block, u32 first)
{
    Words words;
    if constexpr (Block::WIDE)
        words = block.template packed<Words>(first);
    else
        for (u32 i = 0; i < 4; ++i)
            words[i] = block.template packed<u32>(first + 4 * i);
    // In two steps: GCC takes one step apart, byte by byte.
    return __builtin_convertvector(__builtin_convertvector(Bytes16(words), Shorts16), Integers16);
}

DEVICE_FUNCTION Floats16 floats(Integers16 integers)
{
    return __builtin_convertvector(integers, Floats16);
}

DEVICE_FUNCTION Floats16 load16(const f32 *from)
{
    Floats16 values;
    memcpy(&values, from, sizeof values);
    return values;
}

DEVICE_FUNCTION f32 sum_of(Floats16 values)
{
    f32 lanes[16];
    memcpy(lanes, &values, sizeof lanes);
    for (u32 width = 8; width > 0; width /= 2)
        for (u32 i = 0; i < width; ++i)
            lanes[i] += lanes[i + width];
    return lanes[0];
}

#endif

// -- elements -------------------------------------------------------------------------------------

#if KERNEL_ON_GPU
// Neighboring work-items write next to one another.
constexpr u32 PIECE = 4;
#else
constexpr u32 PIECE = 16;
#endif

#if KERNEL_ON_GPU

template <class Block, class T>
DEVICE_FUNCTION void decode_piece(const Block &block, u32 first, T *out)
{
    const Level level = block.level(first);
    const u32 word = block.template packed<u32>(first);
    for (u32 i = 0; i < 4; ++i) {
        const i32 quant = i32(i8(word >> 8 * i)) - i32(Block::OFFSET);
        out[i] = T(level.scale * f32(quant) - level.minimum);
    }
}

// Elements first … last - 1, the n-th of every `step` pieces for the n-th caller.
template <class Block, class T>
DEVICE_FUNCTION void decode(const void *blocks, T *out, u64 first, u64 last, u64 n, u64 step)
{
    for (u64 e = first + n * PIECE; e < last; e += step * PIECE)
        decode_piece(static_cast<const Block *>(blocks)[e / Block::ELEMENTS],
                     u32(e % Block::ELEMENTS), out + e);
}

#else

template <class Block> ONE_FUNCTION void floats_of(const void *block, u32 first, f32 *out)
{
    const Block &here = *static_cast<const Block *>(block);
    const Level level = here.level(first);
    const Floats16 values =
        level.scale * floats(sixteen(here, first) - i32(Block::OFFSET)) - level.minimum;
    memcpy(out, &values, sizeof values);
}

struct Decoder {
    void (*floats)(const void *block, u32 first, f32 *out);
    u32 elements, block_bytes;
};

template <class T>
ONE_FUNCTION void decode_by(const Decoder &by, const void *blocks, T *out, u64 first, u64 last, u64 n,
                            u64 step)
{
    for (u64 e = first + n * PIECE; e < last; e += step * PIECE) {
        f32 values[16];
        by.floats(static_cast<const u8 *>(blocks) + e / by.elements * by.block_bytes,
                  u32(e % by.elements), values);
        for (u32 i = 0; i < 16; ++i)
            out[e + i] = T(values[i]);
    }
}

// As above.
template <class Block, class T>
DEVICE_FUNCTION void decode(const void *blocks, T *out, u64 first, u64 last, u64 n, u64 step)
{
    decode_by(Decoder{floats_of<Block>, Block::ELEMENTS, sizeof(Block)}, blocks, out, first, last, n,
              step);
}

#endif

// -- rows by their numbers ------------------------------------------------------------------------

// A block along x for each id; those along y share its row. Ids are not checked.
#define ROWS_OF(entry, Block)                                                                      \
    KERNEL(entry, (const void *src0, const u32 *ids, f32 *dst, i64 ne00, u64 nb01))                \
    {                                                                                              \
        const u8 *const row = static_cast<const u8 *>(src0) + ids[blockIdx.x] * nb01;              \
        f32 *const out = dst + u64(blockIdx.x) * u64(ne00);                                        \
        const u64 threads = u64(blockDim.x) * blockDim.y * blockDim.z;                             \
        THREADS(t) decode<Block>(row, out, 0, u64(ne00), blockIdx.y * threads + t,                 \
                                 gridDim.y * threads);                                             \
    }

// -- sums over the work-items of a block ----------------------------------------------------------

// Adds up, for each of `count` sums, the `lanes` neighbors that share a row; the first has it then.
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

// -- products with f32 ----------------------------------------------------------------------------

// The work-items of a block that differ in x share a row, those along y and z have rows of their
// own. So Candle's geometry, a block of (32, 1) for each row, is one of many.
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
            // Neighbors read neighboring bytes of blocks and of y.
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
                // Unrolled, so that the compiler knows where in the block each span is.
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

// Any block of work-items; blocks along y have vectors of their own, one after the other in y and dst.
#define PRODUCT(entry, Block)                                                                      \
    KERNEL(entry, (const void *vx, const f32 *y, f32 *dst, i32 ncols, i32 nrows))                  \
    {                                                                                              \
        multiply(THIS_BLOCK, static_cast<const Block *>(vx), y + u64(blockIdx.y) * u32(ncols),     \
                 dst + u64(blockIdx.y) * u32(nrows), u32(ncols), u32(nrows));                      \
    }

// -- products with blocks of Q8_1 -----------------------------------------------------------------

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

// Where the minimum's share comes from: the integers of y, or the sum of what they were made of,
// which its blocks keep. The results differ by what y lost when it was quantized.
enum class Sums { of_integers, kept };

// The scale, then what stands for the minimum: of a span, and of y.
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
constexpr bool needs_total = sums == Sums::of_integers && (Block::OFFSET != 0 || Block::MINIMUM != 0);

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

// Of a span that begins at element `first`, of y's block those from `first % 32` on.
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
