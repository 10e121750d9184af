"""The layout of results that live only inside a graph: memory is reused after its last read."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

ALIGNMENT = 256
"""Alignment in bytes, as of device allocators, and more than any kernel's widest load."""


class Lifetime(NamedTuple):
    """First and last step that use a storage; steps count operations in the order they run."""

    storage: int
    nbytes: int
    first: int
    last: int


@dataclass(frozen=True)
class MemoryPlan:
    """The arena of a graph."""

    peak_bytes: int
    """Bytes of the arena: the largest use at any time in the plan."""
    unplanned_bytes: int
    """Bytes of the same results without any reuse of memory."""
    offsets: Mapping[int, int]
    """Maps a storage to its first byte in the arena."""

    @property
    def ratio(self) -> float:
        """The arena's bytes divided by the bytes without reuse; 1 without results."""
        return self.peak_bytes / self.unplanned_bytes if self.unplanned_bytes else 1.0


def plan_memory(lifetimes: Iterable[Lifetime]) -> MemoryPlan:
    """Lay storages out so that no two storages overlap in both time and memory.

    Steps run one after the other, so memory read last in one step may be written in the next. Each
    storage gets the smallest gap that holds it.
    """
    # Entries (first byte, end, last step), sorted; gaps (bytes, start), sorted.
    alive: list[tuple[int, int, int]] = []
    gaps: list[tuple[int, int]] = []
    lasts: list[int] = []
    offsets: dict[int, int] = {}
    total = peak = 0
    for one in sorted(lifetimes, key=lambda one: (one.first, one.storage)):
        length = -(-one.nbytes // ALIGNMENT) * ALIGNMENT
        if lasts and lasts[0] < one.first:
            del lasts[: bisect_left(lasts, one.first)]
            alive = [placed for placed in alive if placed[2] >= one.first]
            ends, starts = [0, *(stop for _, stop, _ in alive)], [*(at for at, _, _ in alive), peak]
            gaps = sorted((at - end, end) for end, at in zip(ends, starts, strict=True) if at > end)
        found = bisect_left(gaps, (length, 0))
        if found == len(gaps):
            # A gap at the end of the arena grows with it.
            end = alive[-1][1] if alive else 0
            found = gaps.index((peak - end, end)) if end < peak else found
            gaps[found : found + 1] = [(length, end)]
            peak = end + length
        size, offset = gaps.pop(found)
        if size > length:
            insort(gaps, (size - length, offset + length))
        insort(alive, (offset, offset + length, one.last))
        insort(lasts, one.last)
        offsets[one.storage] = offset
        total += length
    return MemoryPlan(peak, total, offsets)
