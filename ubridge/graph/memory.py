"""The layout of results that live only inside a graph: memory is reused after its last read."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
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


def plan_memory(lifetimes: Iterable[Lifetime]) -> MemoryPlan:
    """Lay storages out so that none overlaps another one in both time and memory.

    Steps run one after the other, so memory read last in one step may be written in the next. Each
    storage gets the smallest gap that holds it.
    """
    by_start = sorted(lifetimes, key=lambda one: (one.first, one.storage))
    ends: defaultdict[int, list[Lifetime]] = defaultdict(list)
    arena = _Arena()
    offsets: dict[int, int] = {}
    pending: list[int] = []
    for one in by_start:
        while pending and pending[0] < one.first:
            for gone in ends.pop(pending.pop(0)):
                arena.free(offsets[gone.storage], _rounded(gone.nbytes))
        offsets[one.storage] = arena.take(_rounded(one.nbytes))
        if one.last not in ends:
            insort(pending, one.last)
        ends[one.last].append(one)
    total = sum(_rounded(one.nbytes) for one in by_start)
    return MemoryPlan(arena.size, total, offsets)


def _rounded(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


class _Arena:
    """Memory that grows at its end, and the gaps in it."""

    def __init__(self) -> None:
        self.size = 0
        self._starts: list[int] = []
        self._lengths: dict[int, int] = {}

    def take(self, length: int) -> int:
        """Return the start of the smallest gap of at least `length`, or of new memory."""
        fitting = [start for start in self._starts if self._lengths[start] >= length]
        if fitting:
            start = min(fitting, key=self._lengths.__getitem__)
            self._remove(start, length)
            return start
        # A gap at the end of the arena can be extended.
        start = self.size
        if self._starts and self._starts[-1] + self._lengths[self._starts[-1]] == self.size:
            start = self._starts.pop()
            del self._lengths[start]
        self.size = start + length
        return start

    def _remove(self, start: int, length: int) -> None:
        rest = self._lengths.pop(start) - length
        at = bisect_left(self._starts, start)
        if rest:
            self._starts[at] = start + length
            self._lengths[start + length] = rest
        else:
            del self._starts[at]

    def free(self, start: int, length: int) -> None:
        """Make a gap, joined with its neighbors."""
        at = bisect_left(self._starts, start)
        if at < len(self._starts) and self._starts[at] == start + length:
            length += self._lengths.pop(self._starts.pop(at))
        if at and self._starts[at - 1] + self._lengths[self._starts[at - 1]] == start:
            self._lengths[self._starts[at - 1]] += length
        elif length:
            self._starts.insert(at, start)
            self._lengths[start] = length


__all__ = ["ALIGNMENT", "Lifetime", "MemoryPlan", "plan_memory"]
