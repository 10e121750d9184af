"""The layout of results that live only inside a graph: memory is reused after its last read."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

ALIGNMENT = 256
"""Bytes; what device allocators align to, and more than any kernel's widest load."""


class Lifetime(NamedTuple):
    """When a storage is used, in steps of the order the operations run in."""

    storage: int
    nbytes: int
    first: int
    last: int


@dataclass(frozen=True)
class MemoryPlan:
    """The arena of a graph."""

    peak_bytes: int
    """Bytes of the arena: the most that results take at once, as they are laid out."""
    unplanned_bytes: int
    """Bytes the same results would take if each had memory of its own."""
    offsets: Mapping[int, int]
    """Storage to its first byte in the arena."""

    @property
    def ratio(self) -> float:
        """The arena's bytes over those without a plan; 1 if there are no results to plan."""
        return self.peak_bytes / self.unplanned_bytes if self.unplanned_bytes else 1.0


class _Placed(NamedTuple):
    """Bytes of the arena that a storage takes, up to its last step."""

    start: int
    stop: int
    last: int


def plan_memory(lifetimes: Iterable[Lifetime]) -> MemoryPlan:
    """Lay storages out so that none overlaps another one in both time and memory.

    Steps run one after the other, so memory read last in one step may be written in the next. Each
    storage gets the smallest gap that holds it.
    """
    alive: list[_Placed] = []
    offsets: dict[int, int] = {}
    total = peak = 0
    for one in sorted(lifetimes, key=lambda one: (one.first, one.storage)):
        length = -(-one.nbytes // ALIGNMENT) * ALIGNMENT
        alive = [placed for placed in alive if placed.last >= one.first]
        ends = [0, *(placed.stop for placed in alive)]
        starts = [*(placed.start for placed in alive), peak]
        gaps = [(start - end, end) for end, start in zip(ends, starts, strict=True)]
        # Without a gap the arena grows at its end.
        _, offset = min([gap for gap in gaps if gap[0] >= length], default=gaps[-1])
        insort(alive, _Placed(offset, offset + length, one.last))
        offsets[one.storage] = offset
        total += length
        peak = max(peak, offset + length)
    return MemoryPlan(peak, total, offsets)


__all__ = ["ALIGNMENT", "Lifetime", "MemoryPlan", "plan_memory"]
