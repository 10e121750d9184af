// Elementwise operations: out[i] = function(operands[i]...) for every i, each value widened to the
// type it is computed in and the result rounded once. `out` is contiguous and may be an operand.
//
//     map(THIS_BLOCK, numel, out, Negate{}, Operand<f16>(inp, num_dims, dims, strides));
//
// On a GPU a work-item takes elements one after the other. On a CPU strided or 16-bit operands are
// brought into short contiguous runs first (runs.h): one vector loop then serves every layout and
// all the types that are computed alike.
#ifndef UBRIDGE_ELEMENTWISE_H
#define UBRIDGE_ELEMENTWISE_H

#include "layout.h"
#include "number.h"

#if KERNEL_ON_GPU

template <class Out, class Function, class... In>
DEVICE_FUNCTION void map(BLOCK block, u64 numel, Out *out, Function function,
                         const Operand<In> &...operands)
{
    if ((operands.contiguous && ...)) {
        GRID_STRIDE_OF(block, i, numel) {
            out[i] = narrow<Out>(function(widen(operands.data[i])...));
        }
    } else {
        GRID_STRIDE_OF(block, i, numel) { out[i] = narrow<Out>(function(widen(operands[i])...)); }
    }
}

#else

#include "runs.h"

// Out of line: f32, f16 and bf16 share it.
template <class Result, class Function, class... Values>
__attribute__((noinline)) void apply(u64 count, Result *results, Function function,
                                     const Values *...values)
{
    UHAL_INDEPENDENT
    for (u64 i = 0; i < count; ++i)
        results[i] = function(values[i]...);
}

// out[i] = function(readers...) for every i of the tiles.
template <class Out, class Function, class... In>
inline void apply_to_tiles(Tiles tiles, Out *out, Function function, Reader<In> &...readers)
{
    Writer<Out> writer(out);
    for (Tile tile; tiles.next(tile);) {
        (readers.enter(tile, tiles.crossing), ...);
        const u64 count = tile.run_length();
        u64 index = tile.first;
        for (u64 runs = tile.runs(); runs > 0; --runs, index += tile.pitch) {
            apply(count, writer.begin(index), function, readers.read(index, count)...);
            writer.end(index, count);
        }
    }
}

// Elements first … last, without the tiles that a transposed operand would need.
template <class Out, class... In>
inline Tiles lines(u64 first, u64 last, const Reader<In> &...readers)
{
    const bool whole = Writer<Out>::in_place && (readers.in_place && ...);
    return Tiles(first, last, whole ? last - first : RUN);
}

template <class Out, class Function, class... In>
inline void apply_to_row(u64 count, Out *out, Function function, Reader<In>... readers)
{
    apply_to_tiles(lines<Out>(0, count, readers...), out, function, readers...);
}

template <class Out, class Function, class... In>
inline void apply_to_block(BLOCK block, u64 numel, Out *out, Function function,
                           Reader<In>... readers)
{
    Tiles tiles = lines<Out>(block.uhal_first(numel), block.uhal_last(numel), readers...);
    (readers.cross(tiles, block, numel), ...);
    apply_to_tiles(tiles, out, function, readers...);
}

template <class Out, class Function, class... In>
DEVICE_FUNCTION void map(BLOCK block, u64 numel, Out *out, Function function,
                         const Operand<In> &...operands)
{
    if (numel > 0)
        apply_to_block(block, numel, out, function, Reader<In>(operands)...);
}

#endif

#endif
