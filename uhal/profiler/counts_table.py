"""Counts of kernels as text for a terminal."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

from uhal.profiler.counts import KernelCounts, LineCounts
from uhal.profiler.resources import KernelResources
from uhal.profiler.table import percent, section

_LINES_MOST = 12
_TEXT = 60

_COLUMNS: tuple[tuple[str, Callable[[KernelCounts], str]], ...] = (
    ("kernel", lambda one: one.kernel),
    ("launches", lambda one: str(one.launches)),
    ("grid", lambda one: _extent(one.grid)),
    ("block", lambda one: _extent(one.block)),
    ("ld s/req", lambda one: _number(one.sectors_per_request("load"))),
    ("st s/req", lambda one: _number(one.sectors_per_request("store"))),
    ("coalesced", lambda one: _share(one.coalescing)),
    ("moved", lambda one: _number(one.moved)),
    ("banks", lambda one: _number(one.bank_factor)),
    ("lanes", lambda one: _share(one.thread_instructions / max(32 * one.warp_instructions, 1))),
    ("atomics", lambda one: _number(one.lanes_on_one_address)),
    ("PTX instr.", lambda one: _count(one.thread_instructions)),
    ("tensor", lambda one: _count(one.classes.get("tensor", 0.0) / 32)),
)

LEGEND = """\
  s/req: sectors of 32 bytes a request; coalesced: the fewest that hold the bytes, in those touched
  moved: sectors requested per sector touched; banks: turns of shared memory, 1 without conflicts
  lanes: threads that work in an instruction of a warp; atomics: lanes of a warp on one address
  Instructions are PTX's, not machine code; caches are not modelled."""


def text(
    kernels: Sequence[KernelCounts],
    lines_most: int = _LINES_MOST,
    resources: Mapping[tuple[str, str], KernelResources] | None = None,
) -> str:
    """Return a row for each kernel, then for each kernel its most expensive lines.

    With `resources` also a kernel's resources on their target.
    """
    if not kernels:
        return "No kernel was counted.\n"
    rows = [[said(one) for _, said in _COLUMNS] for one in kernels]
    head = [name for name, _ in _COLUMNS]
    if resources:
        head += ["regs", "spilled", "occup."]
        rows = [
            [*row, *_taken(one, resources.get((one.ptx, one.kernel)))]
            for row, one in zip(rows, kernels, strict=True)
        ]
    parts = [section("Counted kernels", head, rows), LEGEND]
    parts += [_sampled(one) for one in kernels if one.counted_blocks != one.blocks]
    parts += [_lines(one, lines_most) for one in kernels]
    return "\n".join(part for part in parts if part) + "\n"


def _taken(one: KernelCounts, reported: KernelResources | None) -> Sequence[str]:
    if reported is None:
        return ("—",) * 3
    occupancy = reported.occupancy(math.prod(one.block), one.dynamic_shared)
    return str(reported.registers), str(reported.spill_stores), _share(occupancy)


def _sampled(one: KernelCounts) -> str:
    kinds: tuple[Literal["instructions", "sectors"], ...] = ("instructions", "sectors")
    errors = (f"{percent(one.error(what), 1)} in {what}" for what in kinds)
    return (
        f"  {one.kernel}: {one.counted_blocks} of {one.blocks} blocks were counted; "
        f"standard error {', '.join(errors)}. UHAL_SIM_COUNT_EVERY=1 counts all."
    )


def _lines(one: KernelCounts, most: int) -> str:
    worst = [line for line in one.lines if line.accesses or line.advice]
    worst.sort(key=_weight, reverse=True)
    if not worst:
        return ""
    head = ("line", "sectors", "s/req", "ideal", "shared turns", "ideal", "text")
    chosen = sorted(worst[:most], key=lambda line: line.location)
    rows: list[Sequence[str]] = []
    for line in chosen:
        rows.append(_line(line))
        if line.advice:
            rows.append((f"    {line.advice}", *("",) * (len(head) - 1)))
    return section(f"{one.kernel} by line", head, rows, name_most=120, last_left=True)


def _weight(line: LineCounts) -> float:
    return sum(one.sectors + one.wavefronts for one in line.accesses) + sum(
        one.divergent for one in line.branches
    )


def _line(line: LineCounts) -> Sequence[str]:
    memory, shared = line.total("global"), line.total("shared")
    written = line.location.text
    return (
        str(line.location),
        _count(line.scale * memory.sectors) if memory else "",
        _number(memory.sectors / memory.requests) if memory else "",
        _count(line.scale * memory.ideal_sectors) if memory else "",
        _count(line.scale * shared.wavefronts) if shared else "",
        _count(line.scale * shared.ideal_wavefronts) if shared else "",
        written if len(written) <= _TEXT else f"{written[: _TEXT - 1]}…",
    )


def _extent(extent: Iterable[int]) -> str:
    return "x".join(map(str, extent))


def _number(value: float | None) -> str:
    return "—" if value is None else f"{value:.2f}" if value < 100 else f"{value:.0f}"


def _share(value: float | None) -> str:
    return "—" if value is None else f"{100 * value:.0f} %"


def _count(value: float) -> str:
    return "—" if value == 0 else f"{value:,.0f}"


__all__ = ["text"]
