// Rows of blocks times a vector of bytes, for CPUs with AVX2 or more, in integers.
//
// `Way<Block>` multiplies a format, BLOCKS blocks at a time: `Shared` holds the vector's part,
// `add` adds a row's share to its sums. IN_FOURS: when four rows use one `Shared`. VECTORS: number
// of vectors that use one unpacking.
#ifndef UBRIDGE_BLOCK_ROWS_H
#define UBRIDGE_BLOCK_ROWS_H

#include "rows_of_256.h"
#include "rows_of_32.h"

// Specialized for formats with their own code; BLOCKS is 0 for other formats.
template <class Block> struct Way {
    enum : u32 { BLOCKS = 0, VECTORS = 1 };
};

#if HAS_WIDE

template <> struct Way<BlockQ4_0> : FourOf<Nibbles<BlockQ4_0>> {};
template <> struct Way<BlockQ4_1> : FourOf<Nibbles<BlockQ4_1>> {};
template <> struct Way<BlockQ5_0> : FourOf<NibblesAndBits<BlockQ5_0>> {};
template <> struct Way<BlockQ5_1> : FourOf<NibblesAndBits<BlockQ5_1>> {};
template <> struct Way<BlockQ8_0> : TwoOfQ8_0 {};
template <> struct Way<BlockIQ4_NL> : FourOf<LookedUp<BlockIQ4_NL>> {};
template <> struct Way<BlockMXFP4> : FourOf<LookedUp<BlockMXFP4>> {};

template <> struct Way<BlockQ2_K> : WayOf256<BlockQ2_K, NEVER> {};
template <> struct Way<BlockQ3_K> : WayOf256<BlockQ3_K, NEVER> {};
template <> struct Way<BlockQ4_K> : WayOf256<BlockQ4_K, WHERE_CPUS_LOOK_FAR> {};
template <> struct Way<BlockQ5_K> : WayOf256<BlockQ5_K, WHERE_CPUS_LOOK_FAR> {};
template <> struct Way<BlockQ6_K> : WayOf256<BlockQ6_K, WHERE_CPUS_LOOK_FAR> {};
template <> struct Way<BlockIQ4_XS> : WayOfIQ4_XS {};

// The last blocks of a row. If there are fewer than BLOCKS, missing blocks and their factors are
// zeros.
template <class Block, class Side>
ONE_FUNCTION f32 multiply_rest(const Block *last, u64 left, const i8 *quants, const Side *sides)
{
    typedef Way<Block> Here;
    Block blocks[Here::BLOCKS] = {};
    i8 all_quants[Here::BLOCKS * Block::ELEMENTS] = {};
    Side all_sides[Here::BLOCKS] = {};
    memcpy(blocks, last, left * sizeof *last);
    memcpy(all_quants, quants, left * Block::ELEMENTS);
    memcpy(all_sides, sides, left * sizeof *sides);
    Here sums;
    sums.add(blocks, typename Here::Shared({all_quants, all_sides}, 0));
    return sums.result();
}

// The sums of ROWS rows, which lie `apart` blocks from each other.
template <class Block, u32 ROWS> struct Pass {
    Way<Block> sums[ROWS];

    template <class Shared> DEVICE_METHOD void add(const Block *b, u64 apart, const Shared &shared) {
#pragma GCC unroll 4
        for (u32 row = 0; row < ROWS; ++row)
            sums[row].add(b + row * apart, shared);
    }
    DEVICE_METHOD f32 result(u32 row) const { return sums[row].result(); }
};

#if defined(__AVX512BW__)
template <> struct Pass<BlockQ4_K, 4> : FourRowsOf256<BlockQ4_K> {};
template <> struct Pass<BlockQ5_K, 4> : FourRowsOf256<BlockQ5_K> {};
#endif

// A row times COUNT vectors: results[v * step]. A vector gets the same sums as from
// `multiply_rows`.
template <class Block, u32 COUNT>
DEVICE_FUNCTION void multiply_together(const Block *row, u64 blocks, const Vectors &vectors,
                                       u64 index, f32 *results, u64 step) {
    typedef Way<Block> Here;
    Here sums[COUNT];
    for (u64 i = 0; i < blocks; ++i) {
        look_ahead<sizeof(Block)>(row + i, looked_ahead(1));
        typename Here::Shared ys[COUNT];
#pragma GCC unroll 4
        for (u32 v = 0; v < COUNT; ++v)
            ys[v] = {vectors.vector<typename Here::Side>(index + v), i};
        Here::template add<COUNT>(sums, row + i, ys);
    }
    for (u32 v = 0; v < COUNT; ++v)
        results[v * step] = sums[v].result();
}

// ROWS rows, which lie `apart` rows from each other, times a vector: results[row * apart].
template <class Block, u32 ROWS>
DEVICE_FUNCTION void multiply_rows(const Block *rows, u64 apart, u64 blocks, const Vectors &vectors,
                                   u64 index, f32 *results) {
    typedef Way<Block> Here;
    constexpr u32 STEP = Here::BLOCKS * sizeof(Block);
    const u32 ahead = looked_ahead(ROWS);
    const Vector<typename Here::Side> y = vectors.vector<typename Here::Side>(index);
    Pass<Block, ROWS> pass;
    u64 i = 0;
    for (; i + Here::BLOCKS <= blocks; i += Here::BLOCKS) {
#pragma GCC unroll 4
        for (u32 row = 0; row < ROWS; ++row)
            look_ahead<STEP>(rows + row * apart * blocks + i, ahead);
        pass.add(rows + i, apart * blocks, typename Here::Shared(y, i));
    }
#pragma GCC unroll 4
    for (u32 row = 0; row < ROWS; ++row) {
        f32 result = pass.result(row);
        if (Here::BLOCKS > 1 && i < blocks)
            result += multiply_rest(rows + row * apart * blocks + i, blocks - i,
                                    y.quants + i * Block::ELEMENTS, y.sides + i);
        results[row * apart] = result;
    }
}

#endif

#endif
