"""A run of a graph in which nothing is launched: it finds kernels, uploads layouts, and counts.

A capture must not upload anything, so what its launches need is brought to the device before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ubridge.executor import DeviceExecutor, Kernel
from ubridge.graph_calls import without_memory
from ubridge.op_table import Op
from uhal import DeviceBuffer, DType
from uhal.interop import StreamLike


class Rehearsal(DeviceExecutor):
    """An executor whose kernels count instead of being launched."""

    def __init__(self, real: DeviceExecutor) -> None:
        self.__dict__.update(real.__dict__)
        self._real = real
        self.launches = 0
        """Launches since it was made."""
        self.lowering = real.lowering.for_graphs(self)

    def kernel(self, op: Op, dtype: DType, other: DType | None = None) -> Kernel:
        """Return what counts in place of the kernel, which is loaded."""
        return _Silent(self._real.kernel(op, dtype, other), self._count)

    def launch(self, *launch: Any) -> None:
        """Count it."""
        self._count()

    def allocate(self, size: int, dtype: DType, stream: StreamLike | None = None) -> DeviceBuffer:
        """Return a buffer without memory, which nothing is launched with."""
        return without_memory(size, dtype, self.device)

    def _count(self) -> None:
        self.launches += 1


class _Silent(Kernel):
    """A kernel that is not launched."""

    __slots__ = ("_count",)

    def __init__(self, real: Kernel, count: Callable[[], None]) -> None:
        self._function = real.function
        self._count = count

    def launch(self, arguments: tuple[Any, ...], stream: StreamLike | None, *work: int) -> None:
        """Count it."""
        self._count()


__all__ = ["Rehearsal"]
