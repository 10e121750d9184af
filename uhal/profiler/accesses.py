"""Memory cost of a kernel's instructions on a GPU, with advice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

WARP = 32
SECTOR = 32
"""Bytes that memory moves at once."""

Kind = Literal["load", "store", "atomic"]
Space = Literal["global", "shared"]


@dataclass
class Access:
    """An instruction that accesses memory, with sums over its requests.

    A request is one execution by a warp. `sectors` counts the sectors of global memory that a
    request touches, `ideal_sectors` the fewest sectors that hold as many bytes. `wavefronts` counts
    the turns that banks of shared memory need, `ideal_wavefronts` the turns without conflicts.
    """

    line: int
    kind: Kind
    space: Space
    bytes: int
    lanes: int
    requests: int
    sectors: int
    ideal_sectors: int
    used_bytes: int
    wavefronts: int
    ideal_wavefronts: int
    same_address: int
    """Largest number of lanes with the same address in a request; for atomics."""


@dataclass
class Branch:
    """A conditional branch: executions by warps, and divergent executions."""

    line: int
    lanes: int
    executed: int
    taken: int
    divergent: int


@dataclass
class Instructions:
    """A PTX instruction: its class, and its executions by threads and by warps."""

    line: int
    kind: str
    threads: int
    warps: int


def add(to: Any, one: Any, but: Sequence[str]) -> None:
    """Add one record's sums to another's, except the fields `but`."""
    for name in vars(one):
        if name not in but:
            setattr(to, name, getattr(to, name) + getattr(one, name))


def advice(accesses: Iterable[Access], branches: Iterable[Branch]) -> str:
    """Return a text about the worst pattern and its remedy; empty without a bad pattern."""
    found = [said for said in (*map(_of_access, accesses), *map(_of_branch, branches)) if said]
    return max(found, default=(0.0, ""))[1]


def _of_access(one: Access) -> tuple[float, str] | None:
    """Number of cycles that an access wastes, and the reason."""
    if one.kind == "atomic" and one.same_address > 2 * one.requests:
        together = one.same_address / one.requests
        return one.same_address, (
            f"{together:.0f} lanes of a warp update one address: add up within the warp first"
        )
    if one.space == "shared":
        if one.wavefronts <= 1.1 * one.ideal_wavefronts:
            return None
        factor = one.wavefronts / one.ideal_wavefronts
        return one.wavefronts - one.ideal_wavefronts, (
            f"lanes meet in a bank, {factor:.1f} turns for one: pad rows by a word, or permute"
        )
    if one.ideal_sectors < 0.9 * one.sectors:
        per = one.sectors / one.requests
        used = 100 * one.used_bytes / (SECTOR * one.sectors)
        return one.sectors - one.ideal_sectors, (
            f"{per:.1f} sectors a request, {used:.0f} % of their bytes used: neighboring lanes "
            "should access neighboring elements"
        )
    lanes = one.lanes / one.requests
    if one.kind != "atomic" and one.bytes < 16 and one.sectors > one.requests and lanes > WARP / 2:
        return 0.5, (
            f"{one.bytes} bytes a lane: accesses of 16 need {16 // one.bytes} times fewer requests"
        )
    return None


def _of_branch(one: Branch) -> tuple[float, str] | None:
    if one.divergent <= 0.05 * one.executed:
        return None
    part = 100 * one.divergent / one.executed
    return one.divergent, (
        f"lanes part in {part:.0f} % of executions: make the condition the same for a whole warp"
    )


__all__ = ["SECTOR", "WARP", "Access", "Branch", "Instructions", "Kind", "Space", "add", "advice"]
