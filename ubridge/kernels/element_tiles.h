// A copy of elements, bit by bit: copy(THIS_BLOCK, numel, out, operand).
//
// An operand that lies across the result, as a transposed matrix does, is taken in square tiles on
// GPUs, except AMD's. A tile is read along the operand's lines, turned in shared memory, and written
// along the result's lines.
#ifndef UBRIDGE_ELEMENT_TILES_H
#define UBRIDGE_ELEMENT_TILES_H

#include "elementwise.h"

struct Copy {
    template <class T> DEVICE_METHOD T operator()(T x) const { return x; }
};

#if KERNEL_ON_GPU && !defined(__AMDGCN__)

// Lines and columns of a tile; fewer lines or columns are not worth turning.
enum : u32 { SIDE = 32, FEW = 8 };

// Two dims of the result: the innermost, and the dim along which the operand's elements are
// adjacent.
struct Across {
    // Elements along the second dim, 0 without one, and their distance in the result.
    u64 lines = 0;
    u64 pitch = 1;
    // Elements along the innermost dim, and their distance in the operand.
    u64 columns = 1;
    u64 apart = 0;

    DEVICE_METHOD explicit Across(const Layout &layout)
    {
        ROLLED for (u64 d = layout.num_dims; d-- > 0;) {
            const u64 length = layout.dims[d];
            if (length == 1)
                continue;
            if (columns == 1) {
                columns = length;
                apart = layout.strides[d];
                if (apart <= 1 || columns < FEW)
                    return;
            } else if (layout.strides[d] == 1) {
                lines = length < FEW ? 0 : length;
                return;
            }
            pitch *= length;
        }
    }
};

template <class W>
DEVICE_FUNCTION void copy_tiles(BLOCK block, u64 numel, W *out, const Operand<W> &operand,
                                const Across &across)
{
    // Lines of an odd number of words, so that neither lines nor columns meet in a bank.
    SHARED(W, turned, SIDE, SIDE + (sizeof(W) < 4 ? 4 / sizeof(W) : 1));
    const u64 down = (across.lines + SIDE - 1) / SIDE;
    const u64 beside = (across.columns + SIDE - 1) / SIDE;
    const u64 tiles = numel / (across.lines * across.columns) * down * beside;
    const u32 threads = blockDim.x * blockDim.y * blockDim.z;
    const u64 blocks = u64(gridDim.x) * gridDim.y * gridDim.z;
    u64 tile = blockIdx.x + gridDim.x * (blockIdx.y + u64(gridDim.y) * blockIdx.z);
    ROLLED for (; tile < tiles; tile += blocks) {
        u64 line = tile;
        u64 column = split_off(line, down);
        u64 between = split_off(column, beside);
        // `outer` counts the dims outside of both, `between` the dims between them.
        const u64 outer = split_off(between, across.pitch / across.columns);
        line *= SIDE;
        column *= SIDE;
        const u64 first = (outer * across.lines + line) * across.pitch +
                          between * across.columns + column;
        const u64 lines = across.lines - line, columns = across.columns - column;
        const W *const from = operand.data + operand.layout.at(first);
        THREADS_OF(block, t) {
            for (u32 n = t; n < SIDE * SIDE; n += threads) {
                const u32 x = n % SIDE, y = n / SIDE;
                if (x < lines && y < columns)
                    turned[y][x] = from[x + y * across.apart];
            }
        }
        BARRIER();
        THREADS_OF(block, t) {
            ROLLED for (u32 n = t; n < SIDE * SIDE; n += threads) {
                const u32 x = n % SIDE, y = n / SIDE;
                if (y < lines && x < columns)
                    out[first + y * across.pitch + x] = turned[x][y];
            }
        }
        BARRIER();
    }
}

#endif

template <class W>
DEVICE_FUNCTION void copy(BLOCK block, u64 numel, W *out, const Operand<W> &operand)
{
#if KERNEL_ON_GPU && !defined(__AMDGCN__)
    if (!operand.contiguous) {
        const Across across(operand.layout);
        if (across.lines != 0)
            return copy_tiles(block, numel, out, operand, across);
    }
#endif
    map(block, numel, out, Copy{}, operand);
}

#endif
