"""A layout as groups of rows, each of which one 2-D copy can write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ubridge.core.layout import Layout, merged_axes


class Rows(NamedTuple):
    """Rows of `columns` adjacent elements, `pitch` apart; all in elements."""

    rows: int
    columns: int
    pitch: int
    starts: list[int]
    """Offset of each group of `rows`, in the order of the elements."""


def rows_of(layout: Layout) -> Rows:
    """Return the rows of a layout: two axes a group, a group for each index of the other axes."""
    axes = merged_axes(layout.shape, layout.strides) or [(1, 1)]
    columns, column_stride = axes.pop()
    if column_stride == 1:
        rows, pitch = axes.pop() if axes else (1, columns)
    else:
        rows, pitch, columns = columns, column_stride, 1
    starts = [layout.start_offset + start for start in starts_of(axes)]
    return Rows(rows, columns, pitch, starts)


def starts_of(axes: Sequence[tuple[int, int]]) -> list[int]:
    """Return the offset of each combination of indices, for axes of (length, stride)."""
    starts = [0]
    for length, stride in axes:
        starts = [start + step * stride for start in starts for step in range(length)]
    return starts
