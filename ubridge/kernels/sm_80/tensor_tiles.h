// Tiles of a matrix product on tensor cores: their layout in shared memory, and a step of the product.
//
// ldmatrix loads tiles into registers in the layout of mma.m16n8k16 (PTX ISA, "Warp-level Matrix
// Fragment").
#ifndef UBRIDGE_TENSOR_TILES_H
#define UBRIDGE_TENSOR_TILES_H

#include "fragments.h"

enum : u32 { DEPTH = 32, CHUNK = 8 };

// A work-item moves 16 bytes at once.
struct alignas(16) Chunk {
    u16 values[CHUNK];
};

// A tile of an operand in shared memory: lines of chunks, as in the matrix. `deep` lines go along
// the summed dim, others along the outer one. Chunks of a line are permuted, so that the eight
// lines that ldmatrix reads at once lie in different banks.
template <u32 OUTER, bool deep> struct Tile {
    static constexpr u32 LINES = deep ? OUTER : DEPTH;
    static constexpr u32 CHUNKS = (deep ? DEPTH : OUTER) / CHUNK;
    static constexpr u32 SIZE = LINES * CHUNKS;

    DEVICE_METHOD static u32 place(u32 line, u32 chunk)
    {
        // Two lines of four chunks fill all banks; a longer line fills them alone.
        return line * CHUNKS + (chunk ^ (CHUNKS == 4 ? line / 2 % 4 : line % 8));
    }
};

// Four matrices of 8 x 8 for the 16 outer indices from `outer` and the 16 summed ones from
// `deepest`, both multiples of 16; `tile` is an address of shared memory. For a, matrices of equal
// depth come first; for b, matrices of the same outer half come first.
template <class Tile, bool deep, bool of_b>
DEVICE_FUNCTION void load_part(u32 *fragments, u32 tile, u32 outer, u32 deepest)
{
    const u32 lane = threadIdx.x % WARP;
    const u32 first = lane / 8 % 2 * 8, second = lane / 16 * 8;
    const u32 place = of_b ? second : first, depth = of_b ? first : second;
    // Whole groups of eight lines come before a lane's line, which decides how chunks are permuted.
    const u32 before = (deep ? outer : deepest) * Tile::CHUNKS;
    const u32 line = (deep ? place : depth) + lane % 8;
    const u32 chunk = (deep ? deepest + depth : outer + place) / CHUNK;
    load_fragments<deep>(fragments, tile + u32(sizeof(Chunk)) * (before + Tile::place(line, chunk)));
}

// The sums of WARPS_DOWN x WARPS_ACROSS warps, which make a tile of TILE x TILE.
template <class T, u32 TILE, u32 WARPS_DOWN, u32 WARPS_ACROSS, bool a_is_deep, bool b_is_deep>
struct TensorSums {
    static constexpr u32 THREADS = WARPS_DOWN * WARPS_ACROSS * WARP;
    static constexpr u32 DOWN = TILE / WARPS_DOWN / 16;     /* parts of 16 rows a warp makes */
    static constexpr u32 ACROSS = TILE / WARPS_ACROSS / 16; /* parts of 16 columns */
    typedef Tile<TILE, a_is_deep> TileA;
    typedef Tile<TILE, b_is_deep> TileB;

    f32 sums[DOWN][2 * ACROSS][4];

    static DEVICE_METHOD u32 first_row() { return threadIdx.x / WARP / WARPS_ACROSS * (DOWN * 16); }
    static DEVICE_METHOD u32 first_column()
    {
        return threadIdx.x / WARP % WARPS_ACROSS * (ACROSS * 16);
    }

    // Adds the product of two tiles.
    DEVICE_METHOD void add(const Chunk *a_tile, const Chunk *b_tile)
    {
        const u32 a_address = shared_address(a_tile), b_address = shared_address(b_tile);
#pragma unroll
        for (u32 depth = 0; depth < DEPTH; depth += 16) {
            u32 down[DOWN][4];
            u32 across[ACROSS][4];
#pragma unroll
            for (u32 i = 0; i < DOWN; ++i)
                load_part<TileA, a_is_deep, false>(down[i], a_address, first_row() + 16 * i, depth);
            // ldmatrix gives b's fragments from lines along the summed dim without a transposition.
#pragma unroll
            for (u32 j = 0; j < ACROSS; ++j)
                load_part<TileB, b_is_deep, true>(across[j], b_address, first_column() + 16 * j,
                                                  depth);
#pragma unroll
            for (u32 i = 0; i < DOWN; ++i)
#pragma unroll
                for (u32 j = 0; j < 2 * ACROSS; ++j)
                    multiply_add(sums[i][j], down[i], across[j / 2] + 2 * (j % 2), T());
        }
    }

    // Passes each lane's pairs of neighboring sums with their row and first column of the tile.
    template <class Store> DEVICE_METHOD void pass_to(Store store) const
    {
        const u32 lane = threadIdx.x % WARP;
#pragma unroll
        for (u32 i = 0; i < DOWN; ++i)
#pragma unroll
            for (u32 half = 0; half < 2; ++half)
#pragma unroll
                for (u32 j = 0; j < 2 * ACROSS; ++j)
                    store(first_row() + 16 * i + 8 * half + lane / 4,
                          first_column() + 8 * j + lane % 4 * 2, sums[i][j][2 * half],
                          sums[i][j][2 * half + 1]);
    }
};

#endif
