"""A device's memory pool: limit, owners, statistics, and messages when it is full.

The lane keeps the counts; this module reads the environment and formats the counts as text and
tables.
"""

from __future__ import annotations

import re
from collections import defaultdict

from uhal import _lane, environment, registry
from uhal._refusal import describe
from uhal.errors import ArgumentTypeError, ArgumentValueError
from uhal.faults import describe_site
from uhal.records import MemoryOwner as MemoryOwner

LIMIT_VARIABLE = "UHAL_MEMORY_LIMIT"
MOST_LISTED = 5
_UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}
_ENTRY = re.compile(
    r"(?:(?P<backend>[a-z]+)(?::(?P<ordinal>\d{1,9}))?=)?(?P<size>\d+)(?P<unit>[KMGT]?)"
)

# PyTorch's names of the counts of `Context.pool_statistics`.
_TORCH_NAMES = {
    "allocated_bytes.all.current": "bytes_in_use",
    "allocated_bytes.all.peak": "peak_bytes_in_use",
    "reserved_bytes.all.current": "bytes_reserved",
    "reserved_bytes.all.peak": "peak_bytes_reserved",
    "requested_bytes.all.current": "bytes_requested",
    "allocation.all.current": "blocks_in_use",
    "allocation.all.allocated": "allocations",
    "segment.all.current": "segments",
    "num_device_alloc": "driver_allocations",
    "num_device_free": "driver_frees",
    "num_alloc_retries": "retries",
    "num_ooms": "out_of_memory",
}


def owners(context: _lane.Context) -> list[MemoryOwner]:
    """Return the owners of the device's memory, the largest first."""
    totals: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for nbytes, _, code, offset in context.pool_owners():
        total = totals[describe_site(code, offset)]
        total[0] += nbytes
        total[1] += 1
    found = [MemoryOwner(site, nbytes, buffers) for site, (nbytes, buffers) in totals.items()]
    return sorted(found, key=lambda owner: (-owner.nbytes, owner.site))


def statistics(context: _lane.Context) -> dict[str, int]:
    """Return the pool's statistics under PyTorch's names."""
    counts = context.pool_statistics()
    counts["bytes_requested"] = sum(requested for _, requested, _, _ in context.pool_owners())
    return {name: counts[own] for name, own in _TORCH_NAMES.items()}


def full_device_note(context: _lane.Context, nbytes: int) -> str:
    """Text for OutOfMemoryError: request, free memory, and lines that own the used memory."""
    counts = context.pool_statistics()
    unused = counts["bytes_reserved"] - counts["bytes_in_use"]
    lines = [
        f"Asked for {nbytes} bytes; {counts['blocks_in_use']} live buffers hold "
        f"{counts['bytes_in_use']} bytes and {unused} more are reserved by the pool"
    ]
    found = owners(context)
    if found:
        lines[0] += ". The largest owners:"
    for owner in found[:MOST_LISTED]:
        buffers = "1 buffer" if owner.buffers == 1 else f"{owner.buffers} buffers"
        lines.append(f"  {owner.nbytes} bytes in {buffers} [{owner.site}]")
    if len(found) > MOST_LISTED:
        rest = sum(owner.nbytes for owner in found[MOST_LISTED:])
        lines.append(f"  {rest} bytes of {len(found) - MOST_LISTED} other lines")
    return "\n".join(lines)


def limit_note(context: _lane.Context, nbytes: int) -> str:
    """Return the message of an OutOfMemoryError caused by the limit."""
    return (
        f"the memory limit of {context.backend_name}:{context.ordinal} is {context.memory_limit} "
        f"bytes; raise it by Device.memory_limit or {LIMIT_VARIABLE}. "
        f"{full_device_note(context, nbytes)}"
    )


def require_limit(limit: object) -> None:
    """Refuse a value that is no valid memory limit."""
    if limit is None:
        return
    if isinstance(limit, bool) or not isinstance(limit, int):
        raise ArgumentTypeError(
            f"memory_limit: expected a number of bytes or None, got {describe(limit)}"
        )
    if not 0 < limit < 2**63:
        raise ArgumentValueError(f"memory_limit: expected 1…2**63-1 bytes or None, got {limit}")


def limit_from_environment(backend: str, ordinal: int) -> int | None:
    """Return a device's limit in bytes from `UHAL_MEMORY_LIMIT`; `None` without a limit.

    The value is `4G` for every device, or a list like `cuda:0=4G,cuda=8G,host=512M`, in which the
    most specific entry counts. K, M, G and T are powers of 1024. Raises `ArgumentValueError` for
    any other value, an unknown backend, and 2**63 bytes or more, which no pool counts.
    """
    text = environment.read(LIMIT_VARIABLE)
    variable = environment.VARIABLES[LIMIT_VARIABLE]
    best: tuple[int, int] | None = None
    for part in text.split(",") if text else ():
        entry = _ENTRY.fullmatch(part.strip())
        digits = "" if entry is None else entry["size"].lstrip("0")
        if entry is None or not digits:
            raise ArgumentValueError(variable.message(text))
        # Digits are counted first: Python refuses numbers of several thousand digits.
        size = int(digits) << _UNITS[entry["unit"]] if len(digits) < 20 else 1 << 63
        if size >= 1 << 63:
            values = "less than 2**63 bytes (8388608T)"
            raise ArgumentValueError(variable.message(part.strip(), values))
        if entry["backend"] not in (None, backend):
            # The registry knows the backends of other distributions by their entry points.
            if entry["backend"] not in registry.names():
                values = f"one of the backends {', '.join(registry.names())} before each ="
                raise ArgumentValueError(variable.message(text, values))
            continue
        if entry["ordinal"] is not None and int(entry["ordinal"]) != ordinal:
            continue
        rank = (entry["backend"] is not None) + (entry["ordinal"] is not None)
        if best is None or rank >= best[0]:
            best = rank, size
    return None if best is None else best[1]
