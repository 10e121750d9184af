// Running sums along the middle axis of (left, length, right), in an order that only these sizes
// decide. Sums of f16 and bf16 are f32.
//
// Long lines are cut into pieces of `part` elements: scan_totals_<type> adds each piece, scan_<type>
// scans the totals as (left, pieces, right), and then scans the pieces, each from the total before.
// Blocks have at most 512 work-items, for which a GPU has enough registers.
#include "number.h"

#include <uhal/warp.h>

struct Plus {
    template <class C> DEVICE_METHOD C operator()(C a, C b) const { return add(a, b); }
};

// The value that changes no sum: -0 for floats, because 0 + -0 would lose a sign.
template <class C> DEVICE_FUNCTION C nothing()
{
    return Number<C>::is_integer ? C(0) : -C(0);
}

// A piece of a line, or of `right` lines side by side. All pieces of a line follow each other.
struct PieceOfLine {
    u64 first;
    u64 count;

    // `index` counts pieces.
    DEVICE_METHOD PieceOfLine(u64 index, u64 pieces, u64 length, u64 part)
    {
        const u64 start = index % pieces * part;
        first = index / pieces * length + start;
        count = length - start < part ? length - start : part;
    }
};

// A block's index, the number of blocks, and the number of work-items in a block.
struct Grid {
    u64 index;
    u64 blocks;
    u32 threads;
};

// body(index, piece, column) for a block's share of pieces, where a thread takes a column.
template <class Body>
DEVICE_FUNCTION void each_column(BLOCK block, u64 left, u64 length, u64 right, u64 part, Body body)
{
    const u64 pieces = (length + part - 1) / part;
    GRID_STRIDE_OF(block, i, left * pieces * right) {
        body(i, PieceOfLine(i / right, pieces, length, part), i % right);
    }
}

// body(index, piece) for a block's share of pieces, where a line is contiguous and a block takes a
// piece.
template <class Body>
DEVICE_FUNCTION void each_piece(const Grid &grid, u64 left, u64 length, u64 part, Body body)
{
    const u64 pieces = (length + part - 1) / part;
    ROLLED for (u64 i = grid.index; i < left * pieces; i += grid.blocks)
        body(i, PieceOfLine(i, pieces, length, part));
}

// The running sums of a block's values of a row; returns the total. Missing values are nothing.
template <class T, class Register>
DEVICE_FUNCTION Compute<T> scan_row(BLOCK block, const T *row, u64 left, Register &value)
{
    THREADS_OF(block, t) {
        value(t) = t < left ? widen(row[t]) : nothing<Compute<T>>();
    }
    return block_scan(block, value, Plus());
}

template <class T>
DEVICE_FUNCTION void add_pieces(BLOCK block, const Grid &grid, const T *src, Compute<T> *totals,
                                u64 left, u64 length, u64 right, u64 part)
{
    typedef Compute<T> C;
    if (right == 1) {
        each_piece(grid, left, length, part, [&](u64 index, PieceOfLine piece) {
            REGISTER_OF(block, C, value, MAX_THREADS);
            THREADS_OF(block, t) {
                C sum = nothing<C>();
                ROLLED for (u64 i = t; i < piece.count; i += grid.threads)
                    sum = add(sum, widen(src[piece.first + i]));
                value(t) = sum;
            }
            const C total = block_reduce(block, value, Plus());
            THREADS_OF(block, t) {
                if (t == 0)
                    totals[index] = total;
            }
        });
    } else {
        each_column(block, left, length, right, part, [&](u64 index, PieceOfLine piece, u64 column) {
            C sum = nothing<C>();
            ROLLED for (u64 i = 0; i < piece.count; ++i)
                sum = add(sum, widen(src[(piece.first + i) * right + column]));
            totals[index] = sum;
        });
    }
}

// `totals` null: a line is one piece. Otherwise `totals` holds inclusive running sums of the
// pieces.
template <class T>
DEVICE_FUNCTION void scan(BLOCK block, const Grid &grid, const T *src, T *dst,
                          const Compute<T> *totals, u64 left, u64 length, u64 right, u64 part)
{
    typedef Compute<T> C;
    const u64 pieces = (length + part - 1) / part;
    if (right == 1) {
        each_piece(grid, left, length, part, [&](u64 index, PieceOfLine piece) {
            C before = index % pieces == 0 ? nothing<C>() : totals[index - 1];
            ROLLED for (u64 at = 0; at < piece.count; at += grid.threads) {
                REGISTER_OF(block, C, value, MAX_THREADS);
                const u64 rest = piece.count - at;
                const C total = scan_row(block, src + piece.first + at, rest, value);
                THREADS_OF(block, t) {
                    if (t < rest)
                        dst[piece.first + at + t] = narrow<T>(add(before, value(t)));
                }
                before = add(before, total);
            }
        });
    } else {
        each_column(block, left, length, right, part, [&](u64 index, PieceOfLine piece, u64 column) {
            C sum = index / right % pieces == 0 ? nothing<C>() : totals[index - right];
            ROLLED for (u64 i = 0; i < piece.count; ++i) {
                const u64 place = (piece.first + i) * right + column;
                sum = add(sum, widen(src[place]));
                dst[place] = narrow<T>(sum);
            }
        });
    }
}

#define THIS_GRID                                                                                  \
    Grid                                                                                           \
    {                                                                                              \
        blockIdx.x + gridDim.x * (blockIdx.y + u64(gridDim.y) * blockIdx.z),                       \
            u64(gridDim.x) * gridDim.y * gridDim.z, blockDim.x *blockDim.y *blockDim.z             \
    }

#define SCAN(T, C)                                                                                 \
    KERNEL_BOUNDED(scan_totals_##T, 512,                                                           \
                   (const T *src, C *totals, u64 left, u64 length, u64 right, u64 part))           \
    {                                                                                              \
        add_pieces(THIS_BLOCK, THIS_GRID, src, totals, left, length, right, part);                 \
    }                                                                                              \
    KERNEL_BOUNDED(scan_##T, 512,                                                                  \
                   (const T *src, T *dst, const C *totals, u64 left, u64 length, u64 right,        \
                    u64 part))                                                                     \
    {                                                                                              \
        scan(THIS_BLOCK, THIS_GRID, src, dst, totals, left, length, right, part);                  \
    }

SCAN(bf16, f32)
SCAN(f16, f32)
SCAN(f32, f32)
SCAN(f64, f64)
SCAN(u8, u8)
SCAN(u32, u32)
SCAN(i16, i16)
SCAN(i32, i32)
SCAN(i64, i64)
