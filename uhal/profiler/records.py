"""A profile's records as columns, and the meaning of their numbers."""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from uhal import _lane
from uhal.contract import FunctionAttributes
from uhal.errors import DeviceError, NotSupportedError
from uhal.faults import describe_site

Columns = npt.NDArray[Any]
"""A structured array with the fields of `cython_src/profile/records.h`."""

KINDS = tuple(_lane.profile_kinds())
COPIES = ("h2d", "d2h", "d2d", "peer", "fill")


@dataclass(frozen=True)
class Kernel:
    """Facts of a kernel, whose module may be unloaded by now."""

    name: str
    signature: str
    attributes: FunctionAttributes


@dataclass(frozen=True)
class Watched:
    """A device that was profiled."""

    name: str
    """Its name, such as `cuda:0`."""
    product: str
    processors: int
    threads_per_processor: int | None
    bytes_before: int
    """Bytes in use when the profile began."""
    owners_before: tuple[tuple[int, str], ...]
    """(bytes, `file.py:line`) of each allocation alive at that time."""
    copy_bandwidth: float | None = None
    """Measured bytes per second that a copy within the device reads and writes, or `None`."""


@dataclass(frozen=True)
class Records:
    """All records of a profile. Times are nanoseconds since the profile began."""

    rows: Columns
    """Events in the order of their begin, without refused calls."""
    subjects: Sequence[Kernel | str]
    """Kernels, and the names of other work, by index `what` of a row."""
    ranges: Sequence[tuple[int, str]]
    """Pairs (enclosing range, name), by index `range` of a row; 0 is outside of any range."""
    lines: Sequence[str]
    """Texts `file.py:line`, by index `line` of a row."""
    devices: Sequence[Watched]
    """Devices, by index `device` of a row."""
    threads: dict[int, str]
    """Names of the threads that still exist, by thread id."""
    duration: int
    dropped: dict[str, int]
    """Number of dropped records, by kind."""
    broken: dict[str, str]
    """Reasons for incomplete records, by device name."""
    occupancy: dict[tuple[int, int, int], float]
    """Share of a processor's threads, by (what, threads of a block, dynamic shared bytes)."""

    def of(self, *kinds: str) -> Columns:
        """Return the rows of these kinds."""
        return self.rows[np.isin(self.rows["kind"], [KINDS.index(kind) for kind in kinds])]

    def name_of(self, row: Any) -> str:
        """Return a row's name: a kernel, a kind of copy, or other work."""
        subject = self.subjects[int(row["what"])]
        if isinstance(subject, Kernel):
            return subject.name
        return subject or KINDS[int(row["kind"])]

    def range_path(self, number: int) -> str:
        """Return the names of a range and its enclosing ranges, outermost first, joined by `/`."""
        names = []
        while number:
            number, name = self.ranges[number]
            names.append(name)
        return " / ".join(reversed(names))


def read(session: _lane.ProfileSession) -> Records:
    """Read the records of an ended session. Kernels' modules may be unloaded afterwards."""
    lines = ["", *(describe_site(*found) for found in session.lines()[1:])]
    rows = _numbered(session.columns())
    rows = rows[rows["state"] == 1]
    begun = session.begun or 0
    for name in ("host_begin", "host_end"):
        rows[name] -= begun
    timed = rows["device_end"] != 0
    for name in ("device_begin", "device_end"):
        # A row without device times keeps 0 in both.
        rows[name] = np.where(timed, rows[name] - begun, 0)
    _move_behind_calls(rows, timed)
    found = session.subject_list
    return Records(
        rows=rows,
        subjects=[_kept(one) for one in found],
        ranges=[(0, ""), *session.range_list[1:]],
        lines=[short(line) for line in lines],
        devices=tuple(_watched(*one) for one in session.contexts),
        threads={thread.ident or 0: thread.name for thread in threading.enumerate()},
        duration=(session.ended or begun) - begun,
        dropped=session.dropped_by_kind,
        broken=dict(session.broken_devices),
        occupancy=_occupancy(rows, found),
    )


def _numbered(rows: Columns) -> Columns:
    """Return the rows with a column `number`, which child rows use as their parent."""
    numbered = np.zeros(len(rows), _with_number(rows.dtype))
    for name in rows.dtype.names or ():
        numbered[name] = rows[name]
    numbered["number"] = np.arange(1, len(rows) + 1)
    return numbered


@functools.cache
def _with_number(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype([*((name, dtype[name]) for name in dtype.names or ()), ("number", "u4")])


def _move_behind_calls(rows: Columns, timed: npt.NDArray[np.bool_]) -> None:
    """Shift a device's times so that no work begins before its call on the host.

    The comparison of clocks is exact to half of a wait. No work begins on a device before its call
    on the host. Work that seems to begin earlier shows a minimum of the comparison's error.
    """
    for device in np.unique(rows["device"][timed]).tolist():
        own = timed & (rows["device"] == device)
        ahead = int((rows["host_begin"][own] - rows["device_begin"][own]).max())
        if ahead > 0:
            for name in ("device_begin", "device_end"):
                rows[name][own] += ahead


def _kept(subject: Any) -> Kernel | str:
    if not isinstance(subject, _lane.Function):
        return subject or ""
    signature = "" if subject.signature is None else subject.signature.declaration
    return Kernel(subject.name, signature, subject.attributes)


def _watched(context: _lane.Context, in_use: int, owners: list[Any]) -> Watched:
    name = f"{context.backend_name}:{context.ordinal}"
    return Watched(
        name,
        context.backend.device_name(context.ordinal),
        context.limits.processors,
        context.limits.max_threads_per_processor,
        in_use,
        tuple((size, short(describe_site(code, at))) for size, _, code, at in owners),
    )


def _occupancy(rows: Columns, subjects: Sequence[Any]) -> dict[tuple[int, int, int], float]:
    """Ask how many blocks of each kernel, in the launched shapes, a processor holds."""
    found: dict[tuple[int, int, int], float] = {}
    launches = rows[rows["kind"] == KINDS.index("launch")]
    shapes = np.unique(launches[["what", "block_x", "block_y", "block_z", "shared"]])
    for what, x, y, z, shared in shapes.tolist():
        function = subjects[what]
        threads = x * y * z
        most = function.context.limits.max_threads_per_processor
        if most is None or (what, threads, shared) in found:
            continue
        try:
            blocks = function.max_active_blocks((x, y, z), shared)
        except (DeviceError, NotSupportedError):
            continue  # its module is closed, or the device lost
        found[what, threads, shared] = min(1.0, blocks * threads / most)
    return found


def short(line: str) -> str:
    """Return `folder/file.py:line` of a longer path."""
    path, _, number = line.rpartition(":")
    return f"{'/'.join(Path(path).parts[-2:])}:{number}" if path else line
