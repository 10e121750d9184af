"""A profile as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from uhal.profiler.results import Results
from uhal.profiler.summary import Work
from uhal.terminal import one_line

_NAME = 44


def text(profile: Results, most: int) -> str:
    """Return every part of a profile, with at most `most` rows of kernels."""
    records = profile.records
    parts = [_head(profile)]
    kernels = profile.kernels
    if kernels:
        parts.append(section("Kernels", _KERNEL_HEAD, map(_kernel_row, kernels[:most])))
        if len(kernels) > most:
            parts.append(f"  … and {len(kernels) - most} more: profile.table(rows={len(kernels)})")
        parts.append(
            "  GB/s: of the buffers given, each once; of copy: by the measured rate of a copy"
        )
    if profile.copies:
        parts.append(section("Copies and fills", _COPY_HEAD, map(_copy_row, profile.copies)))
    if profile.ranges:
        rows = [
            (
                row.path,
                str(row.calls),
                time(row.host.total) if row.host else "—",
                time(row.device_total),
                str(row.launches),
            )
            for row in profile.ranges
        ]
        parts.append(section("Ranges", ("name", "calls", "host", "device", "launches"), rows))
    parts.append(_devices(profile))
    parts.append(_memory(profile))
    if records.dropped:
        lost = ", ".join(f"{count} of kind {kind}" for kind, count in records.dropped.items())
        parts.append(f"Not noted, beyond the limit: {lost}; uhal.profile(limit=…) raises it.")
    parts += [f"{name} is broken: {words}" for name, words in records.broken.items()]
    return "\n".join(part for part in parts if part) + "\n"


def _head(profile: Results) -> str:
    records = profile.records
    launches = sum(row.calls for row in profile.work if row.kind == "launch")
    waits = records.of("wait")
    return (
        f"{time(records.duration)} with {launches} launches; the host waited "
        f"{time(int((waits['host_end'] - waits['host_begin']).sum()))} in {len(waits)} waits"
    )


_KERNEL_HEAD = (
    "name",
    "calls",
    "device",
    "mean",
    "p50",
    "p99",
    "launch",
    "bytes",
    "GB/s",
    "of copy",
    "regs",
    "occup.",
    "on",
)
_COPY_HEAD = ("kind", "calls", "device", "mean", "p50", "p99", "call", "bytes", "GB/s", "on")


def _kernel_row(row: Work) -> Sequence[str]:
    name = row.name if row.kind == "launch" else f"{row.name} (library)"
    return (
        name,
        str(row.calls),
        *_times(row),
        time(row.host.mean),
        size(row.nbytes),
        rate(row.gigabytes_per_second),
        percent(row.share_of_copy),
        "—" if row.registers is None else str(row.registers),
        percent(row.occupancy),
        row.device,
    )


def _copy_row(row: Work) -> Sequence[str]:
    return (
        row.kind,
        str(row.calls),
        *_times(row),
        time(row.host.mean),
        size(row.nbytes),
        rate(row.gigabytes_per_second),
        row.device,
    )


def _times(row: Work) -> tuple[str, str, str, str]:
    spent = row.on_device
    if spent is None:
        return ("—",) * 4
    return time(spent.total), time(spent.mean), time(spent.p50), time(spent.p99)


def _devices(profile: Results) -> str:
    lines = []
    for use in profile.devices:
        span = max(use.last - use.first, 1)
        rate_of_copy = next(
            one.copy_bandwidth for one in profile.records.devices if one.name == use.device
        )
        copies = f"; copies {rate(rate_of_copy / 1e9)} GB/s" if rate_of_copy else ""
        lines.append(
            f"{use.device}: at work {time(use.busy)} of {time(span)} ({percent(use.busy / span)}), "
            f"idle in {use.gaps} gaps: {time(use.idle_host)} for want of work, "
            f"{time(use.idle_device)} of its own{copies}"
        )
        for gap in use.longest[:3]:
            if gap.length * 100 < span:
                break
            why = "after the host waited" if gap.host_waited else "the host came late"
            if gap.host_part * 2 < gap.length:
                why = "of the device's own"
            lines.append(
                f"  {time(gap.length)} between {one_line(gap.after)} and {one_line(gap.before)}, "
                f"{why}{f' [{one_line(gap.line)}]' if gap.line else ''}"
            )
    return "\n".join(lines)


def _memory(profile: Results) -> str:
    lines = []
    for one in profile.memory:
        if not one.allocations and not one.peak:
            continue
        lines.append(
            f"{one.device}: at most {size(one.peak)} of memory in use, after {time(one.peak_at)}; "
            f"{one.allocations} allocations, {one.frees} freed"
        )
        lines += [
            f"  {size(nbytes):>9} in {blocks} block{'' if blocks == 1 else 's'} from "
            f"{line or 'an unknown line'}"
            for line, nbytes, blocks in one.owners[:3]
        ]
    return "\n".join(lines)


def section(
    title: str,
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    name_most: int = _NAME,
    last_left: bool = False,
) -> str:
    """Return a table under its title: the first column to the left, the others to the right."""
    lines = [list(head), *(list(map(one_line, row)) for row in rows)]
    for line in lines[1:]:
        if len(line[0]) > name_most:
            line[0] = line[0][: name_most - 1] + "…"
    widths = [max(len(line[at]) for line in lines if any(line[1:])) for at in range(len(head))]
    reported = [f"\n{one_line(title)}"]
    for line in lines:
        first, *rest = line
        cells = [first.ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True)]
        if last_left:
            cells[-1] = rest[-1]
        reported.append("  " + "  ".join(cells).rstrip())
    return "\n".join(reported)


# -- numbers ---------------------------------------------------------------------------------------


def time(nanoseconds: float) -> str:
    """Return a time with three digits and its unit."""
    for unit, factor in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if nanoseconds >= factor:
            return f"{_three(nanoseconds / factor)} {unit}"
    return f"{nanoseconds:.0f} ns"


def size(nbytes: int) -> str:
    """Return bytes with three digits and their unit, in powers of 1024."""
    if nbytes == 0:
        return "—"
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if nbytes >= factor:
            return f"{_three(nbytes / factor)} {unit}"
    return f"{nbytes} B"


def rate(gigabytes: float | None) -> str:
    """Return gigabytes per second with three digits."""
    return "—" if gigabytes is None else _three(gigabytes)


def percent(share: float | None, digits: int = 0) -> str:
    """Return a share in percent."""
    return "—" if share is None else f"{100 * share:.{digits}f} %"


def _three(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
