"""Limits of a launch on a GCU. Pure functions over the properties of a device.

A thread is a SIP, a vector processor with its own L1. A block is a group of SIPs of one cluster,
and the cluster's L2 is the block's shared memory. A grid spreads over the clusters. Kernels divide
their elements among all threads, so a launch fills the device for any data size.
"""

from __future__ import annotations

from dataclasses import dataclass

from uhal.contract import DeviceLimits

SHARED_CAP = 60 << 20
"""Bytes of a cluster's L2 that a launch may take, Ubridge's value; the device reports 64 MiB."""
SHARED_GRANULE = 4096
"""Ubridge rounds a request up to a multiple of this number of bytes, and adds this number."""

_MOST_THREADS_OF_AN_AXIS = (1 << 32) - 1
_MOST_INT = (1 << 31) - 1


@dataclass(frozen=True)
class Architecture:
    """Facts about an architecture, from public code and documents."""

    target: str
    product: str
    clusters: int | None
    sips: int
    """SIPs of a cluster."""
    shared_bytes: int | None = None
    """L2 of a cluster."""
    max_grid: tuple[int, int, int] | None = None
    sub_threads: int = 0
    """Threads of a SIP that a launch may request through the third axis; blocks have two axes."""


_ARCHITECTURES = {
    one.target: one
    for one in (
        Architecture("gcu200", "T20", None, 6),
        # 12 SIPs by the vendor's documents; Ubridge launched 6.
        Architecture("gcu210", "i20", 2, 12, 24 << 20, (65536, 256, 256)),
        Architecture("gcu300", "S60", 2, 12, 64 << 20),
        Architecture("gcu400", "Libra", None, 6, sub_threads=8),
        Architecture("gcu410", "Libra", None, 6, sub_threads=8),
    )
}
_UNKNOWN = Architecture("", "", None, 6)


def architecture(target: str | None) -> Architecture:
    """Return facts about an architecture; an unknown device's own values count."""
    return _ARCHITECTURES.get(target or "", _UNKNOWN)


@dataclass(frozen=True)
class Told:
    """A device's properties from the runtime; 0 for an unknown property."""

    target: str | None = None
    clusters: int = 0
    sips: int = 0
    """SIPs of a cluster. The vendor's header says that the value may be 0."""
    max_threads_per_block: int = 0
    max_block: tuple[int, int, int] = (0, 0, 0)
    max_grid: tuple[int, int, int] = (0, 0, 0)
    shared_bytes: int = 0


def device_limits(reported: Told) -> DeviceLimits:
    """Return the limits of a device: its own values, else its architecture's."""
    known = architecture(reported.target)
    sips = reported.sips or known.sips
    threads = reported.max_threads_per_block or sips
    block = _filled(reported.max_block, (threads, threads, threads))
    if known.sub_threads:
        block = (block[0], 1, known.sub_threads)
    grid = _filled(reported.max_grid, known.max_grid or (_MOST_INT, _MOST_INT, _MOST_INT))
    clusters = reported.clusters or known.clusters or 1
    return DeviceLimits(
        # Documented: blocks times threads of an axis stay below 2^32.
        max_grid=(
            min(grid[0], _MOST_THREADS_OF_AN_AXIS // block[0]),
            min(grid[1], _MOST_THREADS_OF_AN_AXIS // block[1]),
            min(grid[2], _MOST_THREADS_OF_AN_AXIS // block[2]),
        ),
        max_block=block,
        max_threads_per_block=threads * max(known.sub_threads, 1),
        max_shared_bytes_per_block=min(
            reported.shared_bytes or known.shared_bytes or SHARED_CAP, SHARED_CAP
        ),
        warp_size=1,
        processors=clusters,
        max_cluster_blocks=1,
        block_for_elements=min(sips, threads),
        max_blocks_for_elements=clusters,
        shared_granule=SHARED_GRANULE,
    )


def _filled(reported: tuple[int, int, int], known: tuple[int, int, int]) -> tuple[int, int, int]:
    return (
        reported[0] if reported[0] > 0 else known[0],
        reported[1] if reported[1] > 0 else known[1],
        reported[2] if reported[2] > 0 else known[2],
    )
