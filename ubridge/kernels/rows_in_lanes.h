// Rows of blocks of 256 elements times several vectors of bytes: see block_rows.h.
//
// LANES rows are unpacked, a block at a time, for all vectors. Each lane of a register has a row,
// so nothing is added across lanes. The integers of a block are multiplied and added exactly.
// A row's sums in f32 have the order of its blocks, as in `WayOf256`.
#ifndef UBRIDGE_ROWS_IN_LANES_H
#define UBRIDGE_ROWS_IN_LANES_H

#include "activations.h"
#include "lanes.h"
#include "scratch.h"

#if HAS_WIDE

// The highest number of vectors that are multiplied together. Each has two sums in registers.
enum : u32 { IN_TILE = WIDE_512(9, 4) };

// Whether scales are words, which multiply sums of products of four bytes. Otherwise they are pairs
// of equal half words, which multiply sums of products of two bytes.
enum : bool { SCALES_ARE_WORDS = SIGN_BIAS != 0 };

// LARGEST of formats that share code: it is of no importance where scales are words.
constexpr u32 largest(u32 integer) { return SCALES_ARE_WORDS ? 127 : integer; }

// A block of each of LANES rows. words[i] has elements 4 i … 4 i + 3 as bytes from 0 to LARGEST.
// `scales` are of spans. `pairs` multiply pairs of sums of a vector's spans: minimums, or scales
// times minus an offset.
template <u32 SPAN_, bool HAS_MINIMUM_, u32 LARGEST_> struct LanesOf256 {
    enum : u32 { SPAN = SPAN_, SPANS = 256 / SPAN, LARGEST = LARGEST_ };
    enum : bool { HAS_MINIMUM = HAS_MINIMUM_ };
    typedef LanesOf256 Panel;
    Register words[64], scales[SPANS], pairs[SPANS / 2];
    FloatRegister d, dmin;

    // Four spans' scales, one in each byte of a lane.
    template <bool is_signed> DEVICE_METHOD void take_scales(u32 first, Register bytes) {
        take_scale<is_signed>(first, shifted_right<-24>(bytes));
        take_scale<is_signed>(first + 1, shifted_right<-16>(bytes));
        take_scale<is_signed>(first + 2, shifted_right<-8>(bytes));
        take_scale<is_signed>(first + 3, bytes);
    }
    // Four spans' minimums.
    DEVICE_METHOD void take_minimums(u32 first, Register bytes) {
        pairs[first / 2] = masked(bytes, 0x00FF00FF);
        pairs[first / 2 + 1] = masked(shifted_right<8>(bytes), 0x00FF00FF);
    }
    // Four spans' scales of integers that are 2^bits too large.
    template <u32 bits> DEVICE_METHOD void take_raised(u32 first, Register bytes) {
        take_scales<true>(first, bytes);
        pairs[first / 2] = minus_raised<bits>(signed_halves<false>(bytes));
        pairs[first / 2 + 1] = minus_raised<bits>(signed_halves<true>(bytes));
    }

  private:
    template <bool is_signed> DEVICE_METHOD void take_scale(u32 span, Register moved) {
        const Register scale = is_signed ? signed_top(moved) : shifted_right<24>(moved);
        scales[span] =
            SCALES_ARE_WORDS ? scale : masked(scale, 0xFFFF) | shifted_right<-16>(scale);
    }
};

// A vector's part for a block. Two sums that are multiplied together are of spans i and i + 2, in
// the order in which `LanesOf256` takes two factors from four bytes.
struct alignas(64) SharedByLanes {
    i8 quants[256];
    i32 pairs[8];
    f32 d;

    DEVICE_METHOD void take(const Vector<Side256> &y, u64 block, u32 span) {
        const Side256 &side = y.sides[block];
        const i16 *const sums = span == 16 ? side.sums : side.sums_of_32;
        memcpy(quants, y.quants + 256 * block, sizeof quants);
        for (u32 i = 0; i < 256 / span / 2; ++i) {
            const i16 *const first = sums + i / 2 * 4 + i % 2;
            pairs[i] = i32(u16(first[0]) | u32(u16(first[2])) << 16);
        }
        d = side.d;
    }
    DEVICE_METHOD Register four(u32 at) const {
        i32 word;
        memcpy(&word, quants + at, sizeof word);
        return everywhere(word);
    }
};

// Sums of LANES rows times a vector: of products, and of the minimums' shares, which are
// subtracted.
struct SumsByLanes {
    FloatRegister sums, taken;
};

// Memory that is needed soon, prefetched in small parts: a burst would delay other reads.
struct Ahead {
    const u8 *memory;
    u64 bytes;
};

// Adds the products of a block with COUNT vectors.
template <class Panel, u32 COUNT>
ONE_FUNCTION void multiply_tile(const Panel &panel, const SharedByLanes *ys, const Ahead &ahead,
                                SumsByLanes *to) {
    constexpr u32 FOURS = Panel::SPAN / 4;
    // The number of sums of two products whose sum is a half word.
    constexpr u32 FIT = (1 << 15) / (2 * 127 * Panel::LARGEST), CHAIN = FIT < FOURS ? FIT : FOURS;
    static_assert(FOURS % CHAIN == 0, "whole chains");
    Register made[COUNT] = {};
#pragma GCC unroll 8
    for (u32 i = 0; i < Panel::SPANS / 2; ++i)
#pragma GCC unroll 16
        for (u32 v = 0; v < COUNT; ++v)
            made[v] = add_pairs(made[v], panel.pairs[i], everywhere(ys[v].pairs[i]));
    if constexpr (Panel::HAS_MINIMUM)
#pragma GCC unroll 16
        for (u32 v = 0; v < COUNT; ++v) {
            to[v].taken += (panel.dmin * everywhere(ys[v].d)) * floats(made[v]);
            made[v] = Register{};
        }
    u64 asked = 0;
#pragma GCC unroll 1
    for (u32 span = 0; span < Panel::SPANS; ++span) {
        for (; asked * Panel::SPANS < ahead.bytes * (span + 1); asked += 64)
            __builtin_prefetch(ahead.memory + asked, 0, 2);
        const Register *const words = panel.words + span * FOURS;
        const Register scale = panel.scales[span];
        if constexpr (SCALES_ARE_WORDS) {
            Register dots[COUNT] = {};
#pragma GCC unroll 8
            for (u32 i = 0; i < FOURS; ++i)
#pragma GCC unroll 16
                for (u32 v = 0; v < COUNT; ++v)
                    dots[v] = dot(dots[v], words[i], ys[v].four(span * Panel::SPAN + 4 * i));
#pragma GCC unroll 16
            for (u32 v = 0; v < COUNT; ++v)
                made[v] = sum_of_words(made[v], product_of_words(dots[v], scale));
        } else {
#pragma GCC unroll 8
            for (u32 i = 0; i < FOURS; i += CHAIN)
#pragma GCC unroll 16
                for (u32 v = 0; v < COUNT; ++v) {
                    Register sums = {};
#pragma GCC unroll 8
                    for (u32 j = i; j < i + CHAIN; ++j)
                        sums = sum_of_halves(
                            sums, pairs(words[j], ys[v].four(span * Panel::SPAN + 4 * j)));
                    made[v] = add_pairs(made[v], sums, scale);
                }
        }
    }
#pragma GCC unroll 16
    for (u32 v = 0; v < COUNT; ++v)
        to[v].sums += (panel.d * everywhere(ys[v].d)) * floats(made[v]);
}

template <class Panel, u32 COUNT = IN_TILE>
DEVICE_FUNCTION void multiply_tile_of(u64 count, const Panel &panel, const SharedByLanes *ys,
                                      const Ahead &ahead, SumsByLanes *to) {
    if (count == COUNT)
        multiply_tile<Panel, COUNT>(panel, ys, ahead, to);
    else if constexpr (COUNT > 2)
        multiply_tile_of<Panel, COUNT - 1>(count, panel, ys, ahead, to);
}

// Specialized for formats with `LanesOf256`: see lanes_of_256.h.
template <class Block> struct Lanes;

// Several vectors: parts[i * count + v] is of block i of vector v.
template <class Block> class VectorsByLanes {
    typedef Lanes<Block> Here;
    typedef typename Here::Panel Panel;
    // The least number of bytes by which prefetches run ahead.
    enum : u64 { AHEAD = 40 * 1024 };

  public:
    VectorsByLanes(const Vectors &vectors, u64 count, u64 blocks)
        : count_(count), blocks_(blocks), parts_(hold<SharedByLanes>(blocks * count)),
          sums_(hold<SumsByLanes>(count)) {
        for (u64 v = 0; v < count; ++v) {
            const auto y = vectors.vector<Side256>(v);
            for (u64 i = 0; i < blocks; ++i)
                parts_[i * count + v].take(y, i, Block::SPAN);
        }
    }

    // Neighboring rows times all vectors: results[v * length + row].
    DEVICE_METHOD void multiply(const Block *rows, u64 length, f32 *results) const {
        for (u64 row = 0; row < length; row += LANES)
            multiply_some(rows + row * blocks_, length - row, results + row, length);
    }

  private:
    // LANES rows, of `left` rows; the last row replaces missing rows.
    __attribute__((noinline)) void multiply_some(const Block *rows, u64 left, f32 *results,
                                                 u64 step) const {
        SumsByLanes *const sums = sums_.get();
        memset(sums, 0, count_ * sizeof *sums);
        LinesOfMemory lines;
        for (u32 i = 0; i < LANES; ++i)
            lines.at[i] = reinterpret_cast<const u8 *>(rows + smaller(i, left - 1) * blocks_);
        constexpr u64 BYTES = LANES * sizeof(Block);
        const u64 all = BYTES * blocks_;
        const u8 *soon = reinterpret_cast<const u8 *>(rows) + (all < AHEAD ? AHEAD : all);
        const u64 tiles = (count_ + IN_TILE - 1) / IN_TILE;
        Here panel;
        for (u64 i = 0; i < blocks_; ++i, soon += BYTES) {
            Here::unpack(panel, lines);
            lines.move(sizeof(Block));
            for (u64 tile = 0; tile < tiles; ++tile) {
                const u64 first = count_ * tile / tiles, end = count_ * (tile + 1) / tiles;
                multiply_tile_of<Panel>(end - first, panel, &parts_[i * count_ + first],
                                        {soon, tile == 0 ? BYTES : 0}, sums + first);
            }
        }
        for (u64 v = 0; v < count_; ++v) {
            const FloatRegister made = Here::HAS_MINIMUM ? sums[v].sums - sums[v].taken
                                                         : sums[v].sums;
            memcpy(results + v * step, &made, smaller(left, LANES) * sizeof(f32));
        }
    }

    const u64 count_, blocks_;
    const Held<SharedByLanes> parts_;
    const Held<SumsByLanes> sums_;
};

#endif

#endif
