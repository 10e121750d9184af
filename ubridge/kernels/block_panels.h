// Many vectors of bytes times a panel of rows, for CPUs with AVX2 or more: any format.
//
// The blocks of a panel are unpacked once. The rows of a panel lie in the lanes of registers; a
// lane holds four neighboring elements of a row. So a vector's elements are broadcast, and nothing
// is added across lanes.
#ifndef UBRIDGE_BLOCK_PANELS_H
#define UBRIDGE_BLOCK_PANELS_H

#include "block_rows.h"
#include "block_spans.h"
#include "packing.h"
#include "wide.h"

enum : u64 { PANEL = 32 }; // rows

#if HAS_WIDE

// Numbers of row registers and of vectors that are multiplied together.
#if defined(__AVX512BW__)
enum : u32 { AT_ONCE = 2, COUNT = 6 };
#elif defined(__AVXVNNI__)
enum : u32 { AT_ONCE = 2, COUNT = 3 };
#else
enum : u32 { AT_ONCE = 2, COUNT = 2 };
#endif

// Whether a format's integers are signed; unsigned ones are from 0 to 127.
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

// Parameters of the kernels for panels.
struct Kind {
    u32 span;
    bool has_sign;
    i32 raised; // offset of integers above an element divided by its scale
    bool has_minimum;
};
template <class Block>
constexpr Kind kind_of = {span_of<Block>, is_signed<Block>,
                          i32(Block::OFFSET) + (is_signed<Block> ? SIGN_BIAS : 0),
                          Block::MINIMUM != 0};

// Scratch of a piece of the rows, as one allocation: several would be returned to the system, and
// the system would clear their pages again for each piece.
class Room {
  public:
    explicit Room(u64 words) : memory_(hold<u32>(words + MOST * 16)), next_(memory_.get()) {}

    // A caller may call `take` at most MOST times.
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

// Unpacks a block with vector instructions, for blocks of 256 with their own `Way`.
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

enum : u32 { SOON = 320 }; // bytes of a row by which prefetches run ahead

// The first `words` words of PANEL lines, `step` words apart, become columns.
ONE_FUNCTION void turn(const u8 *lines, u64 step, u64 words, u32 *to)
{
    for (u64 word = 0; word < words; word += LANES)
        for (u64 row = 0; row < PANEL; row += LANES) {
            LaneWords square[LANES];
            for (u64 i = 0; i < LANES; ++i)
                memcpy(square + i, lines + 4 * ((row + i) * step + word), sizeof square[i]);
            transpose<LANES / 2>(square);
            for (u64 i = 0; i < smaller(LANES, words - word); ++i)
                memcpy(to + (word + i) * PANEL + row, square + i, sizeof square[i]);
        }
}

// `count` rows; the last row replaces missing rows.
template <class Block>
ONE_FUNCTION void unpack(const Block *rows, u64 blocks, u64 count, const Panel &panel)
{
    constexpr u32 BYTES = Block::ELEMENTS, SPANS = BYTES / span_of<Block>;
    constexpr u32 TOGETHER = BYTES < VECTOR_BYTES ? VECTOR_BYTES / BYTES : 1;
    alignas(64) u8 lines[PANEL][TOGETHER * BYTES];
    for (u64 i = 0; i < blocks; i += TOGETHER) {
        const u64 here = smaller(TOGETHER, blocks - i);
        for (u64 row = 0; row < PANEL; ++row) {
            const Block *const from = rows + (row < count ? row : count - 1) * blocks + i;
            // A CPU cannot prefetch so many rows by itself.
            look_ahead<TOGETHER * sizeof(Block)>(from, SOON);
            for (u64 j = 0; j < here; ++j)
                unpack_block(from[j], lines[row] + j * BYTES,
                             panel.scales + (i + j) * SPANS * PANEL + row,
                             panel.minimums + (i + j) * SPANS * PANEL + row);
        }
        turn(lines[0], sizeof lines[0] / 4, here * BYTES / 4, panel.words + i * BYTES / 4 * PANEL);
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

// Constants for spans of vectors: the start value of dot products without minimums, else the factor
// of the minimums. Either each span has its own scale, or each run of 256 elements has one scale,
// applied to the run's sum. If neither holds, a vector is one run.
struct Shares {
    const bool each;
    const u64 spans, runs;
    f32 *const scales; // of spans, if each has its own
    f32 *const run_scales;
    i32 *const starts;
    f32 *const sums;

    // At most.
    static DEVICE_METHOD u64 size(u64 vectors, u64 columns, u32 span)
    {
        return vectors * (3 * (columns / span) + 1);
    }
    Shares(Room &room, u64 vectors, u64 columns, u32 span, bool each)
        : each(each), spans(columns / span), runs(each ? columns != 0 : columns / 256),
          scales(room.take<f32>(each ? vectors * spans : 0)),
          run_scales(room.take<f32>(vectors * runs)), starts(room.take<i32>(vectors * spans)),
          sums(room.take<f32>(vectors * spans))
    {
    }
};

template <class Side> constexpr bool has_each = sizeof(Side) == sizeof(Side32);

template <class Side, u32 SPAN>
ONE_FUNCTION void share(const Vectors &vectors, u64 count, i32 raised, const Shares &shares)
{
    constexpr u32 SPANS = (has_each<Side> ? 32 : 256) / SPAN;
    for (u64 v = 0; v < count; ++v) {
        const Side *const sides = vectors.vector<Side>(v).sides;
        for (u64 i = 0; i < shares.spans; i += SPANS) {
            const Side &side = sides[i / SPANS];
            const u64 to = v * shares.spans + i;
            shares.run_scales[v * shares.runs + (has_each<Side> ? 0 : i / SPANS)] =
                has_each<Side> ? 1 : side.d;
            for (u32 span = 0; span < SPANS; ++span) {
                const i32 sum = sum_of_span<SPAN>(side, span);
                if (has_each<Side>)
                    shares.scales[to + span] = side.d;
                shares.starts[to + span] = -raised * sum;
                shares.sums[to + span] = has_each<Side> ? side.d * f32(sum) : f32(sum);
            }
        }
    }
}

// Multiplies `count` vectors from `index` on by AT_ONCE registers of rows, and adds the products
// to results[vector, row].
template <bool HAS_SIGN, bool HAS_MINIMUM, u32 SPAN, u32 count>
DEVICE_FUNCTION void multiply_some(const Panel &panel, u64 row, const Vectors &vectors,
                                   const Shares &shares, u64 index, f32 *results)
{
    const i8 *x[count];
    for (u32 v = 0; v < count; ++v)
        x[v] = vectors.vector<Side32>(index + v).quants;
    const u64 spans_of_run = shares.each ? shares.spans : 256 / SPAN;
    const f32 *const scales = shares.scales + index * shares.spans;
    const f32 *const run_scales = shares.run_scales + index * shares.runs;
    const i32 *const starts = shares.starts + index * shares.spans;
    const f32 *const totals = shares.sums + index * shares.spans;
    f32 *const to = results + index * PANEL + row;
    for (u64 run = 0; run < shares.runs; ++run) {
        FloatRegister sums[count][AT_ONCE] = {};
        for (u64 span = run * spans_of_run; span < (run + 1) * spans_of_run; ++span) {
            Register dots[count][AT_ONCE];
#pragma GCC unroll 6
            for (u32 v = 0; v < count; ++v)
#pragma GCC unroll 2
                for (u32 r = 0; r < AT_ONCE; ++r)
                    dots[v][r] =
                        HAS_MINIMUM ? Register{} : everywhere(starts[v * shares.spans + span]);
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
                    FloatRegister made = floats(dots[v][r]);
                    if (shares.each)
                        made *= scales[v * shares.spans + span];
                    sums[v][r] += scale[r] * made;
                    if (HAS_MINIMUM)
                        sums[v][r] -= totals[v * shares.spans + span] * minimum[r];
                }
        }
        // The sums of all runs stay in memory: registers hold only the sums of one run.
#pragma GCC unroll 6
        for (u32 v = 0; v < count; ++v)
#pragma GCC unroll 2
            for (u32 r = 0; r < AT_ONCE; ++r) {
                f32 *const here = to + v * PANEL + r * LANES;
                const FloatRegister sum =
                    load_floats(here) + run_scales[v * shares.runs + run] * sums[v][r];
                memcpy(here, &sum, sizeof sum);
            }
    }
}

template <bool HAS_SIGN, bool HAS_MINIMUM, u32 SPAN, u32 count = COUNT>
DEVICE_FUNCTION void multiply_as_many(const Panel &panel, u64 row, const Vectors &vectors,
                                      const Shares &shares, u64 index, u64 wanted, f32 *results)
{
    if (wanted == count)
        multiply_some<HAS_SIGN, HAS_MINIMUM, SPAN, count>(panel, row, vectors, shares, index,
                                                          results);
    else if constexpr (count > 1)
        multiply_as_many<HAS_SIGN, HAS_MINIMUM, SPAN, (count > 2 ? (count - 1) / 2 * 2 : 1)>(
            panel, row, vectors, shares, index, wanted, results);
}

// The blocks of the next panel.
struct Next {
    const void *blocks;
    u64 bytes;
};

// results[vector][PANEL]. Meanwhile the next panel's blocks are prefetched in small parts.
template <bool HAS_SIGN, bool HAS_MINIMUM, u32 SPAN>
ONE_FUNCTION void multiply_panel(const Panel &panel, const Vectors &vectors, u64 count,
                                 const Shares &shares, const Next &next, f32 *results)
{
    memset(results, 0, count * PANEL * sizeof *results);
    u64 asked = 0;
    for (u64 index = 0, wanted; index < count; index += wanted) {
        for (; asked * count < next.bytes * (index + COUNT); asked += 64)
            __builtin_prefetch(static_cast<const u8 *>(next.blocks) + asked, 0, 2);
        // A number of vectors takes 2 KB of code a kind, so the last go by four, two or one.
        wanted = smaller(COUNT, count - index);
        if (wanted != COUNT && wanted > 1)
            wanted = wanted / 2 * 2;
        for (u64 row = 0; row < PANEL; row += AT_ONCE * LANES)
            multiply_as_many<HAS_SIGN, HAS_MINIMUM, SPAN>(panel, row, vectors, shares, index,
                                                          wanted, results);
    }
}

#endif

#endif
