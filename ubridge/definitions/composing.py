"""Steps that compositions of operations share."""

from __future__ import annotations

from collections.abc import Iterator

from ubridge.core.layout import Layout
from ubridge.core.lowering import Memory, Steps
from ubridge.definitions.elementwise import ASTYPE, COPY
from uhal.dtypes import DType, f32

PIECE_BYTES = 1 << 26
"""Most bytes of an operand that are converted at once; a larger operand is converted in pieces."""


def accumulated(dtype: DType) -> DType:
    """Return the dtype in which a composition computes: f32 for f16 and bf16."""
    return f32 if dtype.kind == "float" and dtype.itemsize < 4 else dtype


def cut(layout: Layout, most: int) -> Iterator[Layout]:
    """Yield parts of at most `most` elements, in row-major order; leading axes may be missing."""
    if layout.size <= most:
        yield layout
        return
    length = layout.shape[0]
    step = max(1, most * length // layout.size)
    for start in range(0, length, step):
        part = layout.narrow(0, start, min(step, length - start))
        yield from cut(part if part.size <= most else part.selected(0, 0), most)


def converted(source: Memory, layout: Layout, target: Memory, steps: Steps) -> None:
    """Add a contiguous copy in the target's dtype."""
    op = COPY if source.dtype is target.dtype else ASTYPE
    steps.run(op, [(source, layout)], (target, Layout.contiguous(layout.shape)))


def widened(source: Memory, layout: Layout, steps: Steps) -> Memory:
    """Return a contiguous copy in scratch, in f32 for f16 and bf16."""
    made = steps.scratch(layout.size, accumulated(source.dtype))
    converted(source, layout, made, steps)
    return made
