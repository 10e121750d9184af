"""Geometry of a launch, and the usual choice for n elements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from uhal._refusal import as_int, call_site, describe
from uhal.contract import DeviceLimits
from uhal.device import Device, DeviceLike, as_device
from uhal.errors import ArgumentTypeError, ArgumentValueError

if TYPE_CHECKING:
    from uhal._lane import Dim3


@dataclass(frozen=True)
class LaunchConfig:
    """A launch's geometry and its other settings.

    A launch checks the configuration against the device and the kernel.
    """

    grid: Dim3
    """Blocks along x, y, z."""
    block: Dim3
    """Threads of a block along x, y, z."""
    shared: int = 0
    """Bytes of dynamic shared memory of a block."""
    cluster: Dim3 | None = None
    """Blocks of a cluster along x, y, z; the grid must be a multiple of the cluster."""
    cooperative: bool = False
    """Whether all blocks must run at once, so that they may wait for each other."""
    priority: int | None = None
    """Replaces the stream's priority; a smaller number runs first."""

    @classmethod
    def for_num_elems(
        cls, n: int, block: int | None = None, *, device: DeviceLike | None = None
    ) -> LaunchConfig:
        """Choose a one-dimensional geometry for a kernel that strides over `n` elements.

        `block` is by default the device's block size for elements. The grid has a thread for each
        element, up to the device's limit. n = 0 gives an empty configuration, which launches
        nothing. `device` is by default the current device. Raises `ArgumentValueError` for a
        negative `n`.
        """
        named = as_device(device) if isinstance(device, str) else device
        limits = (Device.current() if named is None else named).limits
        count = _count("n", n, 0)
        threads = limits.block_for_elements if block is None else _count("block", block, 1)
        return cls((_blocks(count, threads, limits),), (threads,))

    @property
    def is_plain(self) -> bool:
        """True if the launch has no settings besides geometry."""
        return self.cluster is None and not self.cooperative and self.priority is None

    @property
    def is_empty(self) -> bool:
        """True when there is nothing to launch."""
        return self.grid == 0 or self.grid == (0,)


def _blocks(count: int, threads: int, limits: DeviceLimits) -> int:
    blocks = -(-count // threads)
    cap = limits.max_grid[0]
    if limits.max_blocks_for_elements is not None:
        cap = min(cap, limits.max_blocks_for_elements)
    return min(blocks, cap)


def _count(what: str, value: object, least: int) -> int:
    site = call_site()
    expected = f"LaunchConfig.for_num_elems, {what}: expected an int of at least {least}"
    count = as_int(value)
    if count is None:
        raise ArgumentTypeError(f"{expected}, got {describe(value)}. [{site}]")
    if count < least:
        raise ArgumentValueError(f"{expected}, got {count}. [{site}]")
    return count
