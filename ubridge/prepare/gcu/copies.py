"""Copies of strided and of short operands, for Ubridge's kernels on GCUs.

Most kernels take no strides, so `ucopy` first copies strided operands to row-major order. Some
kernels read or write an element for each thread, so short operands get memory for all threads.
"""

from __future__ import annotations

from ubridge.core.layout import Layout, merged_axes
from ubridge.core.lowering import Launches, Lowerings, Memory, Steps
from ubridge.core.prepared import Elements, Words
from ubridge.core.question import Question
from ubridge.core.rows import rows_of, starts_of
from ubridge.definitions.elementwise import COPY
from ubridge.definitions.memory import COPY2D
from ubridge.prepare.gcu.kernels import gcu_kernel
from uhal.dtypes import f16, f64, u8, u32

_STRIDED = gcu_kernel("copy", "ucopy_{dtype}", in_l2=True)
_MOST_AXES = 5
_COPIED_AS = {1: u8, 2: f16, 4: u32, 8: f64}
"""Maps the bytes of an element to a type whose kernel moves the same bits."""
_GENERIC = 0
"""Code of `ucopy`'s operation for any strides."""


def threads_of(steps: Steps) -> int:
    """Return the threads of the whole device."""
    return steps.limits.processors * steps.limits.block_for_elements


def whole(x: Memory, layout: Layout, steps: Steps) -> Memory:
    """Return the elements in row-major order, copied unless they are already."""
    if layout.is_contiguous:
        return x
    out = steps.scratch(layout.size, x.dtype)
    copy_strided(x, layout, out, steps)
    return out


def copy_strided(x: Memory, layout: Layout, out: Memory, steps: Steps) -> None:
    """Add a copy of a layout's elements to row-major order; `x` begins at its first element."""
    moved = _COPIED_AS[x.dtype.itemsize]
    source, target = x.view(moved), out.view(moved)
    axes = merged_axes(layout.shape, layout.strides) or [(1, 1)]
    inner = axes[-_MOST_AXES:]
    shape = tuple(length for length, _ in inner)
    strides = tuple(stride for _, stride in inner)
    # Shape, strides, axis order and the operand's own shape; the kernel uses the first two.
    info = Words((*shape, *strides, *range(len(shape)), *shape))
    size = Layout.contiguous(shape).size
    taken = 0
    for start in starts_of(axes[:-_MOST_AXES]):
        _launch(steps, source[start:], target[taken:], size, info, len(shape))
        taken += size


def copy_kept(kept: Elements, out: Memory, steps: Steps) -> None:
    """Add a copy of bytes that are kept on the device to an operand's memory."""
    _launch(steps, kept, out, out.size, Words((out.size, 1, 0, out.size)), 1)


def _launch(
    steps: Steps, x: Memory | Elements, out: Memory, size: int, info: Words, axes: int
) -> None:
    steps.launch(
        (),
        out.dtype,
        None,
        _STRIDED,
        in_size=size,
        out_size=size,
        num_dims=axes,
        origin_num_dims=axes,
        dims_and_strides=info,
        out=out,
        op_type=_GENERIC,
        **{"in": x},
    )


def roomy(x: Memory, size: int, steps: Steps) -> Memory:
    """Return a few elements in memory large enough for one element per thread."""
    threads = threads_of(steps)
    if size >= threads:
        return x
    room = steps.scratch(threads, x.dtype)
    copy_strided(x, Layout.contiguous(size), room, steps)
    return room


def room_for(out: Memory, size: int, steps: Steps) -> Memory:
    """Return memory for at least one element per thread, for writing."""
    threads = threads_of(steps)
    return out if size >= threads else steps.scratch(threads, out.dtype)


def deliver(found: Memory, out: Memory, size: int, steps: Steps) -> None:
    """Add a copy of elements to the result unless they are in it already."""
    if found is not out:
        copy_strided(found, Layout.contiguous(size), out, steps)


def write_rows(source: Memory, out: Memory, layout: Layout, steps: Steps) -> None:
    """Add copies of contiguous elements to a strided layout, two axes at a time."""
    written = rows_of(layout)
    each = written.rows * written.columns
    shape = (written.rows, written.columns)
    for number, start in enumerate(written.starts):
        steps.run(
            COPY2D,
            [(source[number * each :], Layout.contiguous(shape))],
            (out[start:], Layout(shape, (written.pitch, 1))),
        )


def _copy(question: Question, steps: Steps) -> None:
    copy_strided(steps.operands[0], question.layout(0), steps.result, steps)


LOWERINGS: Lowerings = {COPY: Launches(_copy, _STRIDED)}
