// Elementwise operations: out[i] = function(operands[i]...) for every i, each value widened to the
// type it is computed in and the result rounded once. `out` is contiguous and may be an operand.
//
//     map(THIS_BLOCK, numel, out, Negate{}, Operand<f16>(inp, num_dims, dims, strides));
//
// On a GPU a work-item takes packs of contiguous elements (packs.h), others singly. On a CPU strided or 16-bit operands are
// brought into short contiguous runs first (runs.h): one vector loop then serves every layout and
// all the types that are computed alike.
#ifndef UBRIDGE_ELEMENTWISE_H
#define UBRIDGE_ELEMENTWISE_H

#include "layout.h"
#include "number.h"

#if KERNEL_ON_GPU

#include "packs.h"

template <class Out, class Function, class... In>
DEVICE_FUNCTION void map(BLOCK block, u64 numel, Out *out, Function function,
                         const Operand<In> &...operands)
{
    u64 done = 0;
    if ((operands.contiguous && ...))
        done = map_packs(uhal_first(), uhal_step(), numel, out, function, operands.data...);
    GRID_STRIDE_OF(block, i, numel - done) {
        out[done + i] = narrow<Out>(function(widen(operands[done + i])...));
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

template <class Out, class Function, class... In>
inline void apply_to_runs(u64 first, u64 last, Out *out, Function function, Reader<In>... readers)
{
    Writer<Out> writer(out);
    const bool whole = writer.in_place && (readers.in_place && ...);
    const u64 longest = whole ? last - first : RUN;
    for (u64 i = first; i < last; i += longest) {
        const u64 count = last - i < longest ? last - i : longest;
        apply(count, writer.begin(i), function, readers.read(i, count)...);
        writer.end(i, count);
    }
}

template <class Out, class Function, class... In>
DEVICE_FUNCTION void map(BLOCK block, u64 numel, Out *out, Function function,
                         const Operand<In> &...operands)
{
    const u64 first = block.uhal_first(numel);
    const u64 last = block.uhal_last(numel);
    if (first < last)
        apply_to_runs(first, last, out, function, Reader<In>(operands)...);
}

#endif

#endif
