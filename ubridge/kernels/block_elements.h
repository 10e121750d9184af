// Elements of blocks: all of them, or selected rows.
//
// Everything is written in spans: up to 32 neighbors of a block that share a level. On a GPU a
// work-item takes four elements, or a span, at a time; on the host, vectors of sixteen.
#ifndef UBRIDGE_BLOCK_ELEMENTS_H
#define UBRIDGE_BLOCK_ELEMENTS_H

#include "blocks.h"

// Elements of a span: a block of Q8_1 holds one or more of them.
template <class Block> constexpr u32 span_of = Block::SPAN < 32 ? Block::SPAN : 32;

#if !KERNEL_ON_GPU

// Everything is inlined, so the ABI for such vectors does not matter.
#pragma GCC diagnostic ignored "-Wpsabi"

typedef i8 Bytes16 __attribute__((vector_size(16)));
typedef i16 Shorts16 __attribute__((vector_size(32)));
typedef i32 Integers16 __attribute__((vector_size(64)));
typedef f32 Floats16 __attribute__((vector_size(64)));

// The integers of sixteen elements, in storage order.
template <class Block> DEVICE_FUNCTION Integers16 sixteen(const Block &block, u32 first)
{
    Words words;
    if constexpr (Block::WIDE)
        words = block.template packed<Words>(first);
    else
        for (u32 i = 0; i < 4; ++i)
            words[i] = block.template packed<u32>(first + 4 * i);
    // Two steps, because GCC would split a single conversion into bytes.
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

// Combines lanes by halves, so that compilers vectorize it.
template <class Lanes, class Combine> DEVICE_FUNCTION auto over_lanes(Lanes values, Combine combine)
{
    decltype(values[0] + values[0]) lanes[16];
    memcpy(lanes, &values, sizeof lanes);
    for (u32 width = 8; width > 0; width /= 2)
        for (u32 i = 0; i < width; ++i)
            lanes[i] = combine(lanes[i], lanes[i + width]);
    return lanes[0];
}
template <class Lanes> DEVICE_FUNCTION auto sum_of(Lanes values)
{
    return over_lanes(values, [](auto a, auto b) { return a + b; });
}
template <class Lanes> DEVICE_FUNCTION auto most_of(Lanes values)
{
    return over_lanes(values, [](auto a, auto b) { return a > b ? a : b; });
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

// Elements first … last - 1; caller n takes the n-th of every `step` pieces.
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
ONE_FUNCTION void decode_by(const Decoder &by, const void *blocks, T *out, u64 first, u64 last,
                            u64 n, u64 step)
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
    const Decoder by = {floats_of<Block>, Block::ELEMENTS, sizeof(Block)};
    decode_by(by, blocks, out, first, last, n, step);
}

#endif

// -- rows by their numbers ------------------------------------------------------------------------

// One block along x for each id; the blocks along y share the row of the id. Ids are not checked.
#define ROWS_OF(entry, Block)                                                                      \
    KERNEL(entry, (const void *src0, const u32 *ids, f32 *dst, i64 ne00, u64 nb01))                \
    {                                                                                              \
        const u8 *const row = static_cast<const u8 *>(src0) + ids[blockIdx.x] * nb01;              \
        f32 *const out = dst + u64(blockIdx.x) * u64(ne00);                                        \
        const u64 threads = u64(blockDim.x) * blockDim.y * blockDim.z;                             \
        THREADS(t) decode<Block>(row, out, 0, u64(ne00), blockIdx.y * threads + t,                 \
                                 gridDim.y * threads);                                             \
    }

#endif
