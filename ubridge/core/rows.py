"""A layout as groups of rows, each of which one 2-D copy can write."""

from __future__ import annotations

from typing import NamedTuple

from ubridge.core.layout import Layout, merged_axes


class Rows(NamedTuple):
    """Rows of `columns` adjacent elements, `pitch` apart; all in elements."""

    rows: int
    columns: int
    pitch: int
    starts: list[int]
    """Where each group of `rows` begins, in the order of the elements."""


def rows_of(layout: Layout) -> Rows:
    """Return the rows of a layout: two axes at a time, beginning at each element of the others."""
    axes = merged_axes(layout.shape, layout.strides) or [(1, 1)]
    columns, column_stride = axes.pop()
    if column_stride == 1:
        rows, pitch = axes.pop() if axes else (1, columns)
    else:
        rows, pitch, columns = columns, column_stride, 1
    starts = [layout.start_offset]
    for length, stride in axes:
        starts = [start + step * stride for start in starts for step in range(length)]
    return Rows(rows, columns, pitch, starts)


__all__ = ["Rows", "rows_of"]
