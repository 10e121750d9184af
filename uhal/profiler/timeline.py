"""Timeline of devices: busy times, reasons for idle times, and memory in use."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from uhal.profiler.records import COPIES, KINDS, Columns, Records

_LISTED = 10


@dataclass(frozen=True)
class Gap:
    """An idle interval of a device after its first work, in nanoseconds."""

    begin: int
    length: int
    after: str
    before: str
    host_part: int
    """Part of the gap before the next work was enqueued."""
    host_waited: bool
    """Whether the host waited for the device in the gap, which left the device without work."""
    line: str
    """Python line that enqueued the next work."""


@dataclass(frozen=True)
class Use:
    """Busy and idle time of a device from its first work to its last, in nanoseconds."""

    device: str
    first: int
    last: int
    busy: int
    gaps: int
    """Number of gaps."""
    idle_host: int
    """The part of the idle time before the host enqueued the next work."""
    idle_device: int
    """The remaining idle time: the device's launch latency, or its wait for another stream."""
    longest: tuple[Gap, ...]


@dataclass(frozen=True)
class Memory:
    """Memory of a device's pool that was in use, over time."""

    device: str
    times: npt.NDArray[np.int64]
    """Nanoseconds since the profile began; the first is 0."""
    in_use: npt.NDArray[np.int64]
    """Bytes in use from each time on."""
    peak: int
    peak_at: int
    owners: tuple[tuple[str, int, int], ...]
    """(`file.py:line`, bytes, blocks) at the peak, most bytes first."""
    allocations: int
    frees: int


def uses(records: Records) -> list[Use]:
    """Return busy and idle times of each device that did any work."""
    rows = records.of("launch", "work", "replay", *COPIES)
    rows = rows[rows["device_end"] != 0]
    # A replay is the sum of its parts if these have times.
    whole = rows["kind"] == KINDS.index("replay")
    parts = np.unique(rows["parent"])
    rows = rows[~(whole & np.isin(rows["number"], parts))]
    waits = records.of("wait")
    return [
        _use(records, number, rows[rows["device"] == number], waits)
        for number in range(len(records.devices))
        if (rows["device"] == number).any()
    ]


def _use(records: Records, device: int, rows: Columns, waits: Columns) -> Use:
    rows = rows[np.argsort(rows["device_begin"], kind="stable")]
    reached = np.maximum.accumulate(rows["device_end"])
    lengths = rows["device_begin"][1:] - reached[:-1]
    at = np.flatnonzero(lengths > 0)
    # Work counts as enqueued when its call returned; the call itself is the host's time.
    given = np.minimum(rows["host_end"][1:][at], rows["device_begin"][1:][at])
    host = np.clip(given - reached[at], 0, None)
    lengths = lengths[at]
    longest = []
    for index in np.argsort(lengths)[::-1][:_LISTED]:
        before, after = rows[at[index]], rows[at[index] + 1]
        begin = int(reached[at[index]])
        end = begin + int(lengths[index])
        overlap = (waits["host_end"] >= begin) & (waits["host_begin"] <= end)
        longest.append(
            Gap(
                begin,
                int(lengths[index]),
                records.name_of(before),
                records.name_of(after),
                int(host[index]),
                bool(overlap.any()),
                records.lines[int(after["line"])],
            )
        )
    first, last = int(rows["device_begin"][0]), int(reached[-1])
    idle = int(lengths.sum())
    return Use(
        records.devices[device].name,
        first,
        last,
        last - first - idle,
        len(at),
        int(host.sum()),
        idle - int(host.sum()),
        tuple(longest),
    )


def memory(records: Records) -> list[Memory]:
    """Return the bytes in use on each device over time."""
    rows = records.of("allocate", "free")
    return [
        _memory(records, number, rows[rows["device"] == number])
        for number in range(len(records.devices))
    ]


def _memory(records: Records, device: int, rows: Columns) -> Memory:
    watched = records.devices[device]
    rows = rows[np.argsort(rows["host_end"], kind="stable")]
    taken = rows["kind"] == KINDS.index("allocate")
    steps = np.where(taken, 1, -1) * rows["bytes"].astype(np.int64)
    in_use = watched.bytes_before + np.concatenate([[0], np.cumsum(steps)]).astype(np.int64)
    times = np.concatenate([[0], rows["host_end"]]).astype(np.int64)
    peak = int(np.argmax(in_use))
    return Memory(
        watched.name,
        times,
        in_use,
        int(in_use[peak]),
        int(times[peak]),
        _owners(records, device, rows[:peak]),
        int(taken.sum()),
        int((~taken).sum()),
    )


def _owners(records: Records, device: int, rows: Columns) -> tuple[tuple[str, int, int], ...]:
    """Owners of memory after these rows; allocations before the profile are only counted."""
    live: dict[int, tuple[str, int]] = {}
    freed_before = 0
    for row in rows:
        address = int(row["address"])
        if KINDS[int(row["kind"])] == "allocate":
            live[address] = (records.lines[int(row["line"])], int(row["bytes"]))
        elif live.pop(address, None) is None:
            freed_before += int(row["bytes"])
    sums: dict[str, tuple[int, int]] = {}
    for line, size in live.values():
        bytes_, blocks = sums.get(line, (0, 0))
        sums[line] = (bytes_ + size, blocks + 1)
    before = records.devices[device].owners_before
    left = sum(size for size, _ in before) - freed_before
    found = [(line, *counted) for line, counted in sums.items()]
    if left > 0:
        found.append(("before the profile", left, len(before)))
    return tuple(sorted(found, key=lambda one: one[1], reverse=True))
