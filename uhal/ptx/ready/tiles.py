"""Tiles of matrices in shared memory, for the other kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from uhal import ptx
from uhal.ptx import Pointer, Variable, f32, loop, minimum, thread_index, u32, u64, variable
from uhal.ptx.ready.blocks import dot
from uhal.ptx.ready.vectors import load


def swizzled(row: Any, chunk: Any) -> Any:
    """Return the position of 8 elements of 16 bits in a tile with rows of 32.

    The four chunks of a row are permuted, so that 8 rows share no banks.
    """
    return row * 32 + (chunk ^ (row >> 1 & 3)) * 8


def fetch(tile: Pointer, source: Pointer, first: Any, limit: Any) -> None:
    """Copy rows, beginning with `first`, to a tile of f32 by a block of 128 threads.

    Rows of the source are contiguous and begin at multiples of 16 bytes; row `limit` - 1 replaces
    rows beyond it. Rows of the tile may have 4 more elements to avoid bank conflicts.
    """
    count, (rows, pitch) = 16 // source.of.bytes, tile.extents
    width = pitch // 32 * 32
    for at in loop(thread_index() * count, rows * width, 128 * count):
        row, column = at // width, at % width
        of_source = u64(minimum(first + row, limit - 1)) * width + u64(column)
        values = load(source, of_source, count)
        for i in range(0, count, 4):
            tile.at(row * pitch + column).store(i, values[i : i + 4])


def row_products(mine: Pointer, theirs: Pointer, width: int, count: int) -> list[Variable]:
    """Return the products of this lane's row of f32 with `count` rows of another tile."""
    sums = [variable(f32, 0) for _ in range(count)]
    for column in loop(u32(0), width, 16):
        own, other = mine.at(column), theirs.at(column)
        for i in range(0, 16, 4):
            part = own.load(i, 4)
            for row, total in enumerate(sums):
                total.set(dot(part, other.load(row * width + i, 4), total))
    return sums


def add_rows(sums: Sequence[Sequence[Variable]], weights: Pointer, rows: Pointer) -> None:
    """Add the 32 rows of a tile, each times its weight, to a sum for each row of `weights`."""
    ptx.warp_barrier()
    width = 32 * len(sums[0])
    for row in loop(u32(0), 32, 4):
        own, factors = rows.at(row * width + (thread_index() & 31)), weights.at(row)
        for part in range(len(sums[0])):
            values = [own[i * width + 32 * part] for i in range(4)]
            for one, total in enumerate(sums):
                total[part].set(dot(factors.load(one * 32, 4), values, total[part]))
