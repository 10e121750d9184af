"""Rows of a profile: the time of each kernel, each kind of copy, each range."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from uhal.profiler.records import COPIES, KINDS, Columns, Kernel, Records


@dataclass(frozen=True)
class Times:
    """Durations of a repeated event, in nanoseconds."""

    calls: int
    total: int
    mean: float
    p50: float
    p99: float
    most: int

    @classmethod
    def of(cls, spent: npt.NDArray[np.int64]) -> Times | None:
        """Sum up durations; `None` without any."""
        if not len(spent):
            return None
        p50, p99 = np.percentile(spent, (50, 99))
        return cls(
            len(spent),
            int(spent.sum()),
            float(spent.mean()),
            float(p50),
            float(p99),
            int(spent.max()),
        )


@dataclass(frozen=True)
class Work:
    """Work enqueued on one device under one name."""

    kind: str
    """`launch`, `work` of a library, `h2d`, `d2h`, `d2d`, `peer` or `fill`."""
    name: str
    device: str
    calls: int
    """Number of enqueued calls; a lost device has times for fewer calls."""
    host: Times
    """Host time of the call, including the profile's events."""
    on_device: Times | None
    """Time from begin to end on the device; `None` if unknown."""
    nbytes: int
    """Bytes of a kernel's buffers, each argument counted once, or bytes of a copy.

    A kernel that reads a part of a buffer moves less; a kernel that reads it repeatedly may move
    more. 0: unknown.
    """
    gigabytes_per_second: float | None
    """`nbytes` divided by the time on the device."""
    share_of_copy: float | None
    """Rate relative to a measured copy on the device, which reads and writes each byte."""
    registers: int | None
    """Registers of each thread of a kernel; `None` if the vendor does not report it."""
    static_shared_bytes: int | None
    occupancy: float | None
    """Share of a processor's threads that the kernel's blocks can fill: mean over the launches."""
    signature: str
    lines: tuple[tuple[str, int], ...]
    """The five most frequent calling lines in Python, with their counts."""


@dataclass(frozen=True)
class RangeRow:
    """Summary of the ranges with one name inside the same outer ranges."""

    path: str
    """The range's name, after the names of the enclosing ranges."""
    calls: int
    host: Times | None
    device_total: int
    """Nanoseconds of device work that was enqueued in the range and its inner ranges."""
    launches: int


def work(records: Records) -> list[Work]:
    """Return a row for each kernel, kind of copy and work of a library, by device."""
    rows = records.of("launch", "work", *COPIES)
    found = [_row(records, part) for part in _grouped(records, rows)]
    return sorted(found, key=_time_taken, reverse=True)


def _time_taken(row: Work) -> tuple[int, int]:
    return (row.on_device.total if row.on_device else 0, row.host.total)


def _grouped(records: Records, rows: Columns) -> Iterator[Columns]:
    """Yield the rows that have one kind, name and device."""
    names: dict[tuple[str, str], int] = {}
    numbers = np.empty(len(records.subjects), np.int64)
    for number, subject in enumerate(records.subjects):
        kernel = isinstance(subject, Kernel)
        key = (subject.name, subject.signature) if isinstance(subject, Kernel) else (subject, "")
        numbers[number] = names.setdefault((f"{key[0]} {kernel}", key[1]), len(names))
    key = (numbers[rows["what"]] * 256 + rows["kind"]) * 65536 + rows["device"]
    order = np.argsort(key, kind="stable")
    for part in np.split(order, np.flatnonzero(np.diff(key[order])) + 1):
        if len(part):
            yield rows[part]


def _row(records: Records, rows: Columns) -> Work:
    first = rows[0]
    device = records.devices[int(first["device"])]
    subject = records.subjects[int(first["what"])]
    kernel = subject if isinstance(subject, Kernel) else None
    timed = rows[rows["device_end"] != 0]
    on_device = Times.of(timed["device_end"] - timed["device_begin"])
    host = Times.of(rows["host_end"] - rows["host_begin"])
    kind = KINDS[int(first["kind"])]
    rate = share = None
    if on_device is not None and on_device.total > 0 and timed["bytes"].any():
        rate = float(timed["bytes"].sum()) / on_device.total
        # A copy within the device reads and writes each of its bytes.
        moved = 2.0 if kind == "d2d" else 1.0
        if device.copy_bandwidth and kind not in ("h2d", "d2h", "peer"):
            share = moved * rate * 1e9 / device.copy_bandwidth
    assert host is not None
    return Work(
        kind,
        records.name_of(first),
        device.name,
        len(rows),
        host,
        on_device,
        int(rows["bytes"].sum()),
        rate,
        share,
        kernel.attributes.registers if kernel else None,
        kernel.attributes.static_shared_bytes if kernel else None,
        _mean_occupancy(records, rows) if kernel else None,
        kernel.signature if kernel else "",
        _most_frequent(records, rows),
    )


def _mean_occupancy(records: Records, rows: Columns) -> float | None:
    shapes, counts = np.unique(
        rows[["what", "block_x", "block_y", "block_z", "shared"]], return_counts=True
    )
    total = 0.0
    for (what, x, y, z, shared), count in zip(shapes.tolist(), counts, strict=True):
        known = records.occupancy.get((what, x * y * z, shared))
        if known is None:
            return None
        total += known * float(count)
    return total / len(rows)


def _most_frequent(records: Records, rows: Columns) -> tuple[tuple[str, int], ...]:
    numbers, counts = np.unique(rows["line"], return_counts=True)
    order = np.argsort(counts)[::-1][:5]
    return tuple((records.lines[int(numbers[at])], int(counts[at])) for at in order)


def ranges(records: Records) -> list[RangeRow]:
    """Return a row for each range in order of begin, each followed by its inner ranges."""
    own = records.of("range")
    given = records.of("launch", "work", *COPIES)
    spent = given["device_end"] - given["device_begin"]
    launches = given["kind"] == KINDS.index("launch")
    found = []
    for number in range(1, len(records.ranges)):
        inside = np.array([number in _way(records, one) for one in range(len(records.ranges))])
        here = inside[given["range"]]
        rows = own[own["range"] == number]
        host = Times.of(rows["host_end"] - rows["host_begin"])
        spent_here, launched = int(spent[here].sum()), int((launches & here).sum())
        path = records.range_path(number)
        found.append(RangeRow(path, len(rows), host, spent_here, launched))
    order = [_way(records, number) for number in range(1, len(records.ranges))]
    return [row for _, row in sorted(zip(order, found, strict=True), key=lambda pair: pair[0])]


def _way(records: Records, number: int) -> tuple[int, ...]:
    """The numbers of the enclosing ranges and its own, outermost first."""
    way = []
    while number:
        way.append(number)
        number = records.ranges[number][0]
    return tuple(reversed(way))
