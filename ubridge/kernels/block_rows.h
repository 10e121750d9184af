// Rows of blocks times vectors of bytes, for CPUs with AVX2 or more, in integers.
//
// `Way<Block>` multiplies a format, BLOCKS blocks at a time. `Shared` is a vector's part, made once
// for all rows. `Weights` are unpacked blocks, made once for several vectors. `add` adds their
// product to sums. IN_FOURS: when four rows are multiplied together. IN_LANES: whether `Lanes<Block>`
// multiplies several vectors.
#ifndef UBRIDGE_BLOCK_ROWS_H
#define UBRIDGE_BLOCK_ROWS_H

#include "lanes_of_256.h"
#include "rows_of_256.h"
#include "rows_of_32.h"
#include "scratch.h"

// Specialized for formats with their own code; BLOCKS is 0 for other formats.
template <class Block> struct Way {
    enum : u32 { BLOCKS = 0 };
};

// Number of vectors for which panels of unpacked rows are slower.
template <class Block> constexpr u64 few_of = Way<Block>::BLOCKS != 0 ? 12 : 3;

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

// The parts of all vectors: parts[i * count + v] is of group i of vector v.
template <class Block> struct SharedParts {
    typedef Way<Block> Here;
    typedef typename Here::Shared Shared;
    const u64 count, groups;
    const Held<Shared> parts;

    SharedParts(const Vectors &vectors, u64 count, u64 blocks)
        : count(count), groups((blocks + Here::BLOCKS - 1) / Here::BLOCKS),
          parts(hold<Shared>(groups * count)) {
        for (u64 v = 0; v < count; ++v)
            for (u64 i = 0; i < groups; ++i)
                make(&parts[i * count + v], vectors.vector<typename Here::Side>(v),
                     i * Here::BLOCKS, blocks);
    }

  private:
    // Blocks beyond the vector's end are zeros.
    ONE_FUNCTION void make(Shared *to, Vector<typename Here::Side> y, u64 i, u64 blocks) {
        i8 quants[Here::BLOCKS * Block::ELEMENTS];
        typename Here::Side sides[Here::BLOCKS];
        if (i + Here::BLOCKS > blocks) {
            memset(quants, 0, sizeof quants);
            memset(sides, 0, sizeof sides);
            memcpy(quants, y.quants + i * Block::ELEMENTS, (blocks - i) * Block::ELEMENTS);
            memcpy(sides, y.sides + i, (blocks - i) * sizeof *sides);
            y = {quants, sides};
            i = 0;
        }
        new (to) Shared(y, i);
    }
};

// The sums of ROWS rows, which lie `apart` blocks from each other.
template <class Block, u32 ROWS> struct Pass {
    Way<Block> sums[ROWS];

    template <class Shared>
    DEVICE_METHOD void add(const Block *b, u64 apart, const Shared &shared) {
#pragma GCC unroll 4
        for (u32 row = 0; row < ROWS; ++row)
            sums[row].add(typename Way<Block>::Weights(b + row * apart), shared);
    }
    DEVICE_METHOD f32 result(u32 row) const { return sums[row].result(); }
};

#if defined(__AVX512BW__)
template <> struct Pass<BlockQ4_K, 4> : FourRowsOf256<BlockQ4_K> {};
template <> struct Pass<BlockQ5_K, 4> : FourRowsOf256<BlockQ5_K> {};
#endif

// ROWS rows, which lie `apart` rows from each other, times vector v: results[row * apart].
template <class Block, u32 ROWS>
ONE_FUNCTION void multiply_rows(const Block *rows, u64 apart, u64 blocks,
                                const SharedParts<Block> &shared, u64 v, f32 *results) {
    typedef Way<Block> Here;
    constexpr u32 STEP = Here::BLOCKS * sizeof(Block);
    const u32 ahead = looked_ahead(ROWS);
    const typename Here::Shared *y = shared.parts.get() + v;
    Pass<Block, ROWS> pass;
    u64 i = 0;
    for (; i + Here::BLOCKS <= blocks; i += Here::BLOCKS, y += shared.count) {
#pragma GCC unroll 4
        for (u32 row = 0; row < ROWS; ++row)
            look_ahead<STEP>(rows + row * apart * blocks + i, ahead);
        pass.add(rows + i, apart * blocks, *y);
    }
    if (Here::BLOCKS > 1 && i < blocks) {
        Block last[ROWS * Here::BLOCKS] = {};
        for (u32 row = 0; row < ROWS; ++row)
            memcpy(last + row * Here::BLOCKS, rows + row * apart * blocks + i,
                   (blocks - i) * sizeof *last);
        pass.add(last, Here::BLOCKS, *y);
    }
#pragma GCC unroll 4
    for (u32 row = 0; row < ROWS; ++row)
        results[row * apart] = pass.result(row);
}

enum : u64 { ROWS_TOGETHER = 4, VECTORS_TOGETHER = 8 };

// `some` neighboring rows, at most ROWS_TOGETHER, times `places` vectors, at most VECTORS_TOGETHER,
// from `first` on: results[v * step + row]. The rows use the vectors' parts while these are in a
// core's nearest cache. A vector gets the same sums as from `multiply_rows`.
template <class Block>
ONE_FUNCTION void multiply_together(const Block *rows, u64 some, u64 blocks,
                                    const SharedParts<Block> &shared, u64 first, u64 places,
                                    f32 *results, u64 step) {
    typedef Way<Block> Here;
    Here sums[ROWS_TOGETHER][VECTORS_TOGETHER];
    const typename Here::Shared *ys = shared.parts.get() + first;
    for (u64 group = 0; group < blocks; group += Here::BLOCKS, ys += shared.count)
#pragma GCC unroll 1
        for (u64 row = 0; row < some; ++row) {
            const Block *here = rows + row * blocks + group;
            Block last[Here::BLOCKS];
            if (Here::BLOCKS > 1 && group + Here::BLOCKS > blocks) {
                memset(last, 0, sizeof last);
                memcpy(last, here, (blocks - group) * sizeof *last);
                here = last;
            } else {
                look_ahead<Here::BLOCKS * sizeof(Block)>(here, looked_ahead(1));
            }
            const typename Here::Weights weights(here);
#pragma GCC unroll 1
            for (u64 v = 0; v < places; ++v)
                sums[row][v].add(weights, ys[v]);
        }
    for (u64 row = 0; row < some; ++row)
        for (u64 v = 0; v < places; ++v)
            results[v * step + row] = sums[row][v].result();
}

// Neighboring rows times several vectors: results[v * length + row].
template <class Block>
DEVICE_FUNCTION void multiply_all(const Block *rows, u64 length, u64 blocks,
                                  const SharedParts<Block> &shared, f32 *results) {
    for (u64 row = 0; row < length; row += ROWS_TOGETHER)
        for (u64 v = 0; v < shared.count; v += VECTORS_TOGETHER)
            multiply_together(rows + row * blocks, smaller(ROWS_TOGETHER, length - row), blocks,
                              shared, v, smaller(VECTORS_TOGETHER, shared.count - v),
                              results + v * length + row, length);
}

#endif

#endif
