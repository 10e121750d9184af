"""Resources of kernels as text for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from uhal.profiler.resources import KernelResources
from uhal.profiler.table import percent, section


def text(rows: Sequence[KernelResources], threads: int) -> str:
    """Return a table; occupancy is for blocks of `threads` threads."""
    head = ("kernel", "target", "registers", "spilled", "stack", "shared", f"occ. of {threads}")
    lines = [
        (
            one.kernel,
            one.target,
            _said(one.registers),
            _said(one.spill_stores),
            _said(one.stack),
            _said(one.shared),
            percent(one.occupancy(threads)),
        )
        for one in rows
    ]
    return section("Resources of kernels", head, lines) + "\n"


def _said(value: int | None) -> str:
    return "—" if value is None else str(value)


__all__ = ["text"]
