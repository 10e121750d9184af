// A tile of a product of matrices: the sums over l of a(i, l) b(l, j), for any two operands.
//
// A block makes TILE x TILE results and goes DEPTH deep at a time. On a GPU a work-item keeps
// PART x PART sums in registers; a CPU runs along the rows of the tile.
//
// An operand has `is_deep()`, whether neighbors in memory lie along the summed dim, and
// `line(outer)`, a row of a or a column of b, with the element `at(depth)`. Results have
// `store(row, column, sum)`.
#ifndef UBRIDGE_PRODUCT_TILES_H
#define UBRIDGE_PRODUCT_TILES_H

#include "number.h"

#include <uhal/vector.h>

enum : u32 { TILE = 64, DEPTH = 16, PART = 4, PARTS = (TILE / PART) * (TILE / PART) };

// The type in which products are added; unsigned where integers wrap.
template <class T, bool is_integer = Number<T>::is_integer> struct Sums {
    typedef Compute<T> Type;
};
template <class T> struct Sums<T, true> {
    typedef Modular<T> Type;
};

// DEPTH lines of TILE elements in shared memory. The padding puts an element of eight lines, for four
// neighboring places, into different banks.
template <class C> struct TileOf {
    static constexpr u32 AT_ONCE = 16 / sizeof(C);
    static constexpr u32 PITCH = TILE + AT_ONCE;
    static constexpr u32 SIZE = DEPTH * PITCH / AT_ONCE; // vectors
    typedef vec<C, AT_ONCE> Vector;
};

// Elements `depth` to `depth + DEPTH - 1` of lines `outer` to `outer + TILE - 1`; zeros past the end.
template <class C, class Matrix>
DEVICE_FUNCTION void load_tile(BLOCK block, u32 threads, C *tile, const Matrix &matrix, u64 outer,
                               u64 outer_end, u64 depth, u64 depth_end) {
    constexpr u32 PITCH = TileOf<C>::PITCH;
    if (matrix.is_deep()) {
        // A warp takes eight neighbors of four lines.
        THREADS_OF(block, t) {
            for (u32 i = t; i < DEPTH * TILE; i += threads) {
                const u32 down = i % 8 + i / 32 % (DEPTH / 8) * 8;
                const u32 across = i / 8 % 4 + i / (4 * DEPTH) * 4;
                const bool inside = outer + across < outer_end && depth + down < depth_end;
                tile[down * PITCH + across] =
                    inside ? C(widen(matrix.line(outer + across).at(depth + down))) : C(0);
            }
        }
        return;
    }
    const u32 lanes = threads < TILE ? threads : u32(TILE);
    THREADS_OF(block, t) {
        const bool takes_part = t < threads / lanes * lanes;
        ROLLED for (u32 across = t % lanes; across < TILE && takes_part; across += lanes) {
            const bool inside = outer + across < outer_end;
            const auto line = matrix.line(inside ? outer + across : outer);
            for (u32 down = t / lanes; down < DEPTH; down += threads / lanes)
                tile[down * PITCH + across] =
                    inside && depth + down < depth_end ? C(widen(line.at(depth + down))) : C(0);
        }
    }
}

// m rows, n columns and depth k in all. All work-items call `prepare(block, threads, depth)` and pass a
// barrier before elements from this depth on are loaded; the caller does so for depth 0. A small block
// goes through the depth several times, so a `prepare` that does something needs blocks of PARTS.
template <class T, class Left, class Right, class Results, class Prepare>
DEVICE_FUNCTION void multiply_tile(BLOCK block, u32 threads, const Left &a, const Right &b,
                                   const Results &out, u64 m, u64 n, u64 k, u64 first_row,
                                   u64 first_column, Prepare prepare) {
    typedef typename Sums<T>::Type C;
    typedef TileOf<C> Tile;
    SHARED(typename Tile::Vector, a_vectors, Tile::SIZE);
    SHARED(typename Tile::Vector, b_vectors, Tile::SIZE);
    C *const a_tile = reinterpret_cast<C *>(a_vectors);
    C *const b_tile = reinterpret_cast<C *>(b_vectors);
    const auto load = [&](u64 depth) {
        load_tile(block, threads, a_tile, a, first_row, m, depth, k);
        load_tile(block, threads, b_tile, b, first_column, n, depth, k);
        prepare(block, threads, depth + DEPTH);
    };
#if KERNEL_ON_GPU
    constexpr u32 AT_ONCE = Tile::AT_ONCE;
    // A small block makes the tile in several rounds. The region holds the barriers, too: with t set in a
    // region of its own, Intel's OpenCL runtime for CPUs loses results of 8 bytes.
    THREADS_OF(block, t)
    ROLLED for (u32 round = 0; round < PARTS; round += threads) {
        const u32 part = round + t;
        const u32 down = part / (TILE / PART) * PART;
        const u32 across = part % (TILE / PART) * PART;
        const u64 row = first_row + down;
        const u64 column = first_column + across;
        // Parts without a result wait for the others.
        const bool inside = part < PARTS && row < m && column < n;
        C sums[PART][PART] = {};
        ROLLED for (u64 depth = 0; depth < k; depth += DEPTH) {
            load(depth);
            BARRIER();
            if (inside)
#pragma unroll 4
                for (u32 line = 0; line < DEPTH; ++line) {
                    vec<C, AT_ONCE> left[PART / AT_ONCE], right[PART / AT_ONCE];
                    for (u32 i = 0; i < PART / AT_ONCE; ++i) {
                        const u32 place = line * Tile::PITCH + i * AT_ONCE;
                        left[i] = load_vector<AT_ONCE>(a_tile + place + down);
                        right[i] = load_vector<AT_ONCE>(b_tile + place + across);
                    }
                    for (u32 i = 0; i < PART; ++i)
                        for (u32 j = 0; j < PART; ++j)
                            sums[i][j] +=
                                left[i / AT_ONCE][i % AT_ONCE] * right[j / AT_ONCE][j % AT_ONCE];
                }
            BARRIER();
        }
        if (inside)
            for (u32 i = 0; i < PART; ++i)
                for (u32 j = 0; j < PART; ++j)
                    if (row + i < m && column + j < n)
                        out.store(row + i, column + j, narrow<T>(Compute<T>(sums[i][j])));
    }
#else
    alignas(64) C sums[TILE][TILE] = {};
    const u64 rows = m - first_row < TILE ? m - first_row : u64(TILE);
    const u64 columns = n - first_column < TILE ? n - first_column : u64(TILE);
    for (u64 depth = 0; depth < k; depth += DEPTH) {
        load(depth);
        for (u64 i = 0; i < rows; ++i)
            for (u32 line = 0; line < DEPTH; ++line) {
                const C factor = a_tile[line * Tile::PITCH + i];
                for (u32 j = 0; j < TILE; ++j)
                    sums[i][j] += factor * b_tile[line * Tile::PITCH + j];
            }
    }
    for (u64 i = 0; i < rows; ++i)
        for (u64 j = 0; j < columns; ++j)
            out.store(first_row + i, first_column + j, narrow<T>(Compute<T>(sums[i][j])));
#endif
}

#endif
