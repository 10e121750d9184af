"""Steps that compositions of operations share."""

from __future__ import annotations

from ubridge.core.layout import Layout
from ubridge.core.lowering import Memory, Steps
from ubridge.definitions.elementwise import ASTYPE, COPY
from uhal.dtypes import f32


def converted(source: Memory, layout: Layout, target: Memory, steps: Steps) -> None:
    """Add a contiguous copy in the target's dtype."""
    op = COPY if source.dtype is target.dtype else ASTYPE
    steps.run(op, [(source, layout)], (target, Layout.contiguous(layout.shape)))


def widened(source: Memory, layout: Layout, steps: Steps) -> Memory:
    """Return a contiguous copy in scratch, in f32 for f16 and bf16."""
    is_half = source.dtype.kind == "float" and source.dtype.itemsize < 4
    made = steps.scratch(layout.size, f32 if is_half else source.dtype)
    converted(source, layout, made, steps)
    return made
