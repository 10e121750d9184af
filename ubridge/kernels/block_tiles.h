// Products of a matrix of blocks and many vectors of Q8_1; each block computes a tile.
#ifndef UBRIDGE_BLOCK_TILES_H
#define UBRIDGE_BLOCK_TILES_H

#include "byte_tiles.h"

#if KERNEL_ON_GPU

// Blocks of (32, 4). Both operands pass through shared memory, 32 elements of a row at a time.
template <class Block, Sums sums, u32 ROWS, u32 COLUMNS>
DEVICE_FUNCTION void multiply_part(BLOCK block, const Block *weight, const BlockQ8_1 *y, f32 *dst,
                                   u32 columns, u64 rows, u64 vectors, u64 y_blocks, u64 dst_rows,
                                   u64 first_vector) {
    constexpr u32 THREADS_HERE = 128, WORDS = 8, SPANS = 32 / span_of<Block>;
    typedef Share<ROWS, COLUMNS> Own;
    SHARED(u32, quants, ROWS, Own::ROW_PITCH);
    SHARED(f32, scales, ROWS, SPANS + 1);
    SHARED(f32, minimums, ROWS, SPANS + 1);
    SHARED(u32, others, COLUMNS, Own::COLUMN_PITCH);
    SHARED(f32, ds, COLUMNS, 2);
    SHARED(i32, totals, COLUMNS, SPANS);
    const u64 first_row = u64(blockIdx.x) * ROWS;
    const u64 blocks = columns / Block::ELEMENTS;
    f32 results[Own::ROWS_EACH][Own::COLUMNS_EACH] = {};

    ROLLED for (u32 e = 0; e < columns; e += 32) {
        THREADS_OF(block, t) {
            // Unrolled code would be most of an image.
            ROLLED for (u32 n = 0; n < ROWS * WORDS / THREADS_HERE; ++n) {
                const u32 i = t + n * THREADS_HERE;
                // Rows past the end repeat the last row; their results are dropped.
                const u64 row = first_row + i / WORDS < rows ? first_row + i / WORDS : rows - 1;
                const Block &here = weight[row * blocks + e / Block::ELEMENTS];
                const u32 first = e % Block::ELEMENTS + 4 * (i % WORDS);
                quants[i / WORDS][i % WORDS] = here.template packed<u32>(first);
                if (4 * (i % WORDS) % span_of<Block> == 0) {
                    const Level level = here.level(first);
                    scales[i / WORDS][4 * (i % WORDS) / span_of<Block>] = level.scale;
                    minimums[i / WORDS][4 * (i % WORDS) / span_of<Block>] = level.minimum;
                }
            }
            ROLLED for (u32 n = 0; n < COLUMNS * WORDS / THREADS_HERE; ++n) {
                const u32 i = t + n * THREADS_HERE;
                const u64 vector = first_vector + i / WORDS;
                const u64 known = vector < vectors ? vector : vectors - 1;
                const BlockQ8_1 &here = y[known * y_blocks + e / 32];
                others[i / WORDS][i % WORDS] = here.packed<u32>(4 * (i % WORDS));
                if (i % WORDS == 0) {
                    ds[i / WORDS][0] = f32(here.d);
                    ds[i / WORDS][1] = f32(here.s);
                }
            }
        }
        BARRIER();
        if constexpr (needs_total<Block, sums>) {
            THREADS_OF(block, t) {
                ROLLED for (u32 i = t; i < COLUMNS * SPANS; i += THREADS_HERE) {
                    i32 total = 0;
                    for (u32 j = 0; j < WORDS / SPANS; ++j)
                        total = dot4(0x01010101, others[i / SPANS][i % SPANS * (WORDS / SPANS) + j],
                                     total);
                    totals[i / SPANS][i % SPANS] = total;
                }
            }
            BARRIER();
        }
        THREADS_OF(block, t) {
            ROLLED for (u32 k = 0; k < SPANS; ++k) {
                const auto add = [&](u32 i, u32 c, i32 product) {
                    const u32 row = Own::row(t, i), vector = Own::column(t, c);
                    const i32 total = needs_total<Block, sums> ? totals[vector][k] : 0;
                    results[i][c] +=
                        scaled<Block, sums>({scales[row][k], minimums[row][k]}, product, total,
                                            ds[vector][0], ds[vector][1]);
                };
                Own::template multiply<WORDS / SPANS>(quants, others, t, k * (WORDS / SPANS), add);
            }
        }
        BARRIER();
    }
    THREADS_OF(block, t) {
        const u64 rows_left = rows - first_row, vectors_left = vectors - first_vector;
#pragma unroll
        for (u32 c = 0; c < Own::COLUMNS_EACH; ++c) {
            const u32 vector = Own::column(t, c);
            if (vector >= vectors_left)
                continue;
            f32 *const line = dst + (first_vector + vector) * dst_rows + first_row;
#pragma unroll
            for (u32 i = 0; i < Own::ROWS_EACH; ++i)
                if (Own::row(t, i) < rows_left)
                    line[Own::row(t, i)] = results[i][c];
        }
    }
}

// More columns than 64 are computed in two halves, so that their sums stay in registers.
template <class Block, Sums sums, u32 ROWS, u32 COLUMNS>
DEVICE_FUNCTION void multiply_tile(BLOCK block, const Block *weight, const BlockQ8_1 *y, f32 *dst,
                                   u32 columns, u64 rows, u64 vectors, u64 y_blocks, u64 dst_rows) {
    constexpr u32 PART = COLUMNS < 64 ? COLUMNS : 64;
    const u64 first_vector = u64(blockIdx.y) * COLUMNS;
    ROLLED for (u32 part = 0; part < COLUMNS; part += PART) {
        if (first_vector + part < vectors)
            multiply_part<Block, sums, ROWS, PART>(block, weight, y, dst, columns, rows, vectors,
                                                   y_blocks, dst_rows, first_vector + part);
    }
}

#else

template <class Block, Sums sums, u32 ROWS, u32 COLUMNS>
DEVICE_FUNCTION void multiply_tile(BLOCK block, const Block *weight, const BlockQ8_1 *y, f32 *dst,
                                   u32 columns, u64 rows, u64 vectors, u64 y_blocks, u64 dst_rows) {
    const u64 first_row = u64(block.blockIdx.x) * ROWS;
    const u64 first_vector = u64(block.blockIdx.y) * COLUMNS;
    const u64 count = vectors < first_vector + COLUMNS ? vectors - first_vector : COLUMNS;
    const u64 blocks = columns / Block::ELEMENTS;
    if (first_vector >= vectors || first_row >= rows)
        return;
    const u64 rows_here = rows - first_row < ROWS ? rows - first_row : ROWS;
    for (u64 c = first_vector; c < first_vector + count; c += MOST_VECTORS) {
        const u64 left = first_vector + count - c;
        multiply_rows<Block, sums>(weight + first_row * blocks, blocks, y + c * y_blocks, y_blocks,
                                   left < MOST_VECTORS ? u32(left) : u32(MOST_VECTORS), rows_here,
                                   dst + c * dst_rows + first_row, dst_rows);
    }
}

#endif

#endif
