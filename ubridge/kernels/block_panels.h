// Many vectors of bytes times a panel of rows, for CPUs with AVX2 or more: any format.
//
// The blocks of a panel are unpacked once. Its rows lie in the lanes of registers, four neighboring
// elements of a row in a lane, so that nothing is added across lanes and a vector's elements are
// broadcast.
#ifndef UBRIDGE_BLOCK_PANELS_H
#define UBRIDGE_BLOCK_PANELS_H

#include <stdlib.h>

#include <memory>
#include <new>

#include "block_rows.h"
#include "block_spans.h"
#include "packing.h"
#include "wide.h"

enum : u64 { PANEL = 32 }; // rows

struct Released {
    void operator()(void *memory) const { free(memory); }
};
template <class T> using Held = std::unique_ptr<T[], Released>;

template <class T> DEVICE_FUNCTION Held<T> hold(u64 count)
{
    Held<T> memory(static_cast<T *>(aligned_alloc(64, whole_times(count * sizeof(T) + 1, 64))));
    if (memory == nullptr)
        throw std::bad_alloc();
    return memory;
}

#if HAS_WIDE

// Registers of a panel's rows that are multiplied together, and vectors.
#if defined(__AVX512BW__)
enum : u32 { AT_ONCE = 2, COUNT = 6 };
#elif defined(__AVXVNNI__)
enum : u32 { AT_ONCE = 2, COUNT = 3 };
#else
enum : u32 { AT_ONCE = 2, COUNT = 2 };
#endif

// Whether integers have a sign: those of other formats are from 0 to 127.
template <class Block> constexpr bool is_signed = true;
template <> constexpr bool is_signed<BlockQ4_0> = false;
template <> constexpr bool is_signed<BlockQ4_1> = false;
template <> constexpr bool is_signed<BlockQ5_0> = false;
template <> constexpr bool is_signed<BlockQ5_1> = false;
template <> constexpr bool is_signed<BlockQ2_K> = false;
template <> constexpr bool is_signed<BlockQ3_K> = false;
template <> constexpr bool is_signed<BlockQ4_K> = false;
template <> constexpr bool is_signed<BlockQ5_K> = false;
template <> constexpr bool is_signed<BlockQ6_K> = false;
template <> constexpr bool is_signed<BlockTQ1_0> = false;
template <> constexpr bool is_signed<BlockTQ2_0> = false;

// What the kernels for panels differ in.
struct Kind {
    u32 span;
    bool has_sign;
    i32 raised; // what integers are above the elements' multiples of the scale
    bool has_minimum;
};
template <class Block>
constexpr Kind kind_of = {span_of<Block>, is_signed<Block>,
                          i32(Block::OFFSET) + (is_signed<Block> ? SIGN_BIAS : 0),
                          Block::MINIMUM != 0};

// What a piece of the rows needs besides, as one allocation: several would go back to the system,
// and their pages would be cleared anew, with each piece.
class Room {
  public:
    explicit Room(u64 words) : memory_(hold<u32>(words + MOST * 16)), next_(memory_.get()) {}

    // At most MOST times.
    template <class Word> DEVICE_METHOD Word *take(u64 words)
    {
        static_assert(sizeof(Word) == sizeof(u32), "a word");
        u32 *const here = next_;
        next_ += whole_times(words, 16);
        return reinterpret_cast<Word *>(here);
    }

  private:
    enum : u64 { MOST = 8 };
    const Held<u32> memory_;
    u32 *next_;
};

// PANEL rows unpacked: words[i][row] has elements 4 i … 4 i + 3, levels are of spans.
struct Panel {
    u32 *const words;
    f32 *const scales, *const minimums;

    static DEVICE_METHOD u64 size(u64 columns, u32 span)
    {
        return (columns / 4 + 2 * (columns / span)) * PANEL;
    }
    Panel(Room &room, u64 columns, u32 span)
        : words(room.take<u32>(columns / 4 * PANEL)),
          scales(room.take<f32>(columns / span * PANEL)),
          minimums(room.take<f32>(columns / span * PANEL))
    {
    }
};

template <class Block>
DEVICE_FUNCTION void unpack_block(const Block &block, u8 *bytes, f32 *scales, f32 *minimums)
{
    constexpr u32 SPAN = span_of<Block>;
    constexpr u32 BIAS = is_signed<Block> ? SIGN_BIAS : 0;
    for (u32 first = 0; first < Block::ELEMENTS; first += SPAN) {
        const Level level = block.level(first);
        scales[first / SPAN * PANEL] = level.scale;
        minimums[first / SPAN * PANEL] = level.minimum;
        for (u32 i = first; i < first + SPAN; i += 16) {
            const Words words = bytes_of(block, i) ^ BIAS * 0x01010101;
            memcpy(bytes + i, &words, sizeof words);
        }
    }
}

#define UNPACK_WIDE(Block)                                                                         \
    DEVICE_FUNCTION void unpack_block(const Block &block, u8 *bytes, f32 *scales, f32 *minimums)   \
    {                                                                                              \
        unpack_wide(block, bytes, scales, minimums);                                               \
    }

// The same by vectors, for blocks of 256 that have a way of their own.
template <class Block>
DEVICE_FUNCTION void unpack_wide(const Block &block, u8 *bytes, f32 *scales, f32 *minimums)
{
    typedef Unpacked<Block> Unpacking;
    constexpr u32 SPANS = 256 / Block::SPAN;
    const Unpacking unpacked(block);
    for (u32 n = 0; n < 4; ++n)
        store_halves(bytes + Unpacking::PLACES[n][0], bytes + Unpacking::PLACES[n][1],
                     unpacked.integers[n]);
    i16 each[16];
    memcpy(each, &unpacked.scales, sizeof each);
    const f32 d = block.d;
    for (u32 i = 0; i < SPANS; ++i)
        scales[i * PANEL] = d * f32(each[i]);
    if constexpr (Block::MINIMUM != 0) {
        const f32 dmin = block.dmin;
        memcpy(each, &unpacked.minimums, sizeof each);
        for (u32 i = 0; i < SPANS; ++i)
            minimums[i * PANEL] = dmin * f32(each[i]);
    }
}

UNPACK_WIDE(BlockQ2_K)
UNPACK_WIDE(BlockQ3_K)
UNPACK_WIDE(BlockQ4_K)
UNPACK_WIDE(BlockQ5_K)
UNPACK_WIDE(BlockQ6_K)

// `count` rows; the last stands in for those that are missing.
template <class Block>
ONE_FUNCTION void unpack(const Block *rows, u64 blocks, u64 count, const Panel &panel)
{
    constexpr u32 SPANS = Block::ELEMENTS / span_of<Block>, BYTES = Block::ELEMENTS;
    alignas(64) u8 bytes[PANEL][BYTES];
    for (u64 i = 0; i < blocks; ++i) {
        for (u64 row = 0; row < PANEL; ++row)
            unpack_block(rows[(row < count ? row : count - 1) * blocks + i], bytes[row],
                         panel.scales + i * SPANS * PANEL + row,
                         panel.minimums + i * SPANS * PANEL + row);
        u32 *const to = panel.words + i * (BYTES / 4) * PANEL;
        for (u64 word = 0; word < BYTES / 4; word += LANES)
            for (u64 row = 0; row < PANEL; row += LANES) {
                LaneWords lines[LANES];
                for (u64 line = 0; line < LANES; ++line)
                    memcpy(lines + line, bytes[row + line] + 4 * word, sizeof lines[line]);
                transpose<LANES / 2>(lines);
                for (u64 line = 0; line < smaller(LANES, BYTES / 4 - word); ++line)
                    memcpy(to + (word + line) * PANEL + row, lines + line, sizeof lines[line]);
            }
    }
}

// The sum of the integers of a span.
template <u32 SPAN> DEVICE_FUNCTION i32 sum_of_span(const Side32 &side, u32 span)
{
    return SPAN == 32 ? side.sums[0] + side.sums[1] : side.sums[span];
}
template <u32 SPAN> DEVICE_FUNCTION i32 sum_of_span(const Side256 &side, u32 span)
{
    return SPAN == 32 ? side.sums_of_32[span] : side.sums[span];
}

// Of spans of vectors: what they are scaled by, what dot products of theirs begin with, and what
// minimums are multiplied by.
struct Shares {
    f32 *const scales;
    i32 *const starts;
    f32 *const sums;
    const u64 spans;

    static DEVICE_METHOD u64 size(u64 vectors, u64 columns, u32 span)
    {
        return 3 * vectors * (columns / span);
    }
    Shares(Room &room, u64 vectors, u64 columns, u32 span)
        : scales(room.take<f32>(vectors * (columns / span))),
          starts(room.take<i32>(vectors * (columns / span))),
          sums(room.take<f32>(vectors * (columns / span))), spans(columns / span)
    {
    }
};

template <class Side, u32 SPAN>
ONE_FUNCTION void share(const Vectors &vectors, u64 count, i32 raised, const Shares &shares)
{
    constexpr u32 SPANS = sizeof(Side) == sizeof(Side32) ? 32 / SPAN : 256 / SPAN;
    for (u64 v = 0; v < count; ++v) {
        const Side *const sides = vectors.vector<Side>(v).sides;
        for (u64 i = 0; i < shares.spans; i += SPANS) {
            const Side &side = sides[i / SPANS];
            const u64 to = v * shares.spans + i;
            for (u32 span = 0; span < SPANS; ++span) {
                const i32 sum = sum_of_span<SPAN>(side, span);
                shares.scales[to + span] = side.d;
                shares.starts[to + span] = -raised * sum;
                shares.sums[to + span] = side.d * f32(sum);
            }
        }
    }
}

// `count` vectors from `index` on by AT_ONCE registers of rows: results[vector, row].
template <bool HAS_SIGN, bool HAS_MINIMUM, u32 SPAN, u32 count>
DEVICE_FUNCTION void multiply_some(const Panel &panel, u64 row, const Vectors &vectors,
                                   const Shares &shares, u64 index, f32 *results)
{
    const i8 *x[count];
    for (u32 v = 0; v < count; ++v)
        x[v] = vectors.vector<Side32>(index + v).quants;
    const f32 *const scales = shares.scales + index * shares.spans;
    const i32 *const starts = shares.starts + index * shares.spans;
    const f32 *const totals = shares.sums + index * shares.spans;
    FloatRegister sums[count][AT_ONCE] = {};
    for (u64 span = 0; span < shares.spans; ++span) {
        Register dots[count][AT_ONCE];
#pragma GCC unroll 6
        for (u32 v = 0; v < count; ++v)
#pragma GCC unroll 2
            for (u32 r = 0; r < AT_ONCE; ++r)
                dots[v][r] = everywhere(starts[v * shares.spans + span]);
        const u32 *const words = panel.words + span * (SPAN / 4) * PANEL + row;
#pragma GCC unroll 8
        for (u32 i = 0; i < SPAN / 4; ++i) {
            Register rows[AT_ONCE];
#pragma GCC unroll 2
            for (u32 r = 0; r < AT_ONCE; ++r)
                rows[r] = load_register(words + i * PANEL + r * LANES);
#pragma GCC unroll 6
            for (u32 v = 0; v < count; ++v) {
                i32 four;
                memcpy(&four, x[v] + span * SPAN + 4 * i, sizeof four);
#pragma GCC unroll 2
                for (u32 r = 0; r < AT_ONCE; ++r)
                    dots[v][r] = HAS_SIGN ? dot_signed(dots[v][r], rows[r], everywhere(four))
                                          : dot(dots[v][r], rows[r], everywhere(four));
            }
        }
        FloatRegister scale[AT_ONCE], minimum[AT_ONCE];
#pragma GCC unroll 2
        for (u32 r = 0; r < AT_ONCE; ++r) {
            scale[r] = load_floats(panel.scales + span * PANEL + row + r * LANES);
            minimum[r] = load_floats(panel.minimums + span * PANEL + row + r * LANES);
        }
#pragma GCC unroll 6
        for (u32 v = 0; v < count; ++v)
#pragma GCC unroll 2
            for (u32 r = 0; r < AT_ONCE; ++r) {
                sums[v][r] += scales[v * shares.spans + span] * scale[r] * floats(dots[v][r]);
                if (HAS_MINIMUM)
                    sums[v][r] -= totals[v * shares.spans + span] * minimum[r];
            }
    }
#pragma GCC unroll 6
    for (u32 v = 0; v < count; ++v)
#pragma GCC unroll 2
        for (u32 r = 0; r < AT_ONCE; ++r)
            memcpy(results + (index + v) * PANEL + row + r * LANES, &sums[v][r], sizeof sums[v][r]);
}

template <bool HAS_SIGN, bool HAS_MINIMUM, u32 SPAN, u32 count = COUNT>
DEVICE_FUNCTION void multiply_left(const Panel &panel, u64 row, const Vectors &vectors,
                                   const Shares &shares, u64 index, u64 left, f32 *results)
{
    if (left == count)
        multiply_some<HAS_SIGN, HAS_MINIMUM, SPAN, count>(panel, row, vectors, shares, index,
                                                          results);
    else if constexpr (count > 1)
        multiply_left<HAS_SIGN, HAS_MINIMUM, SPAN, count - 1>(panel, row, vectors, shares, index,
                                                              left, results);
}

// results[vector][PANEL]
template <bool HAS_SIGN, bool HAS_MINIMUM, u32 SPAN>
ONE_FUNCTION void multiply_panel(const Panel &panel, const Vectors &vectors, u64 count,
                                 const Shares &shares, f32 *results)
{
    for (u64 index = 0; index < count; index += COUNT)
        for (u64 row = 0; row < PANEL; row += AT_ONCE * LANES)
            multiply_left<HAS_SIGN, HAS_MINIMUM, SPAN>(panel, row, vectors, shares, index,
                                                       smaller(COUNT, count - index), results);
}

#endif

#endif
