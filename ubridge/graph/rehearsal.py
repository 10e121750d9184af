"""A run of a graph in which nothing is launched: it finds kernels, uploads layouts, and counts.

It also notes the memory kernels are given, for that is what the slots of a plan can stand for.

A capture must not upload anything, so what its launches need is brought to the device before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ubridge.core.op_table import Op
from ubridge.device.executor import DeviceExecutor
from ubridge.device.kernels import Kernel
from ubridge.graph.calls import without_memory
from uhal import DeviceBuffer, DType, Function
from uhal.interop import StreamLike


class Rehearsal(DeviceExecutor):
    """An executor whose kernels count instead of being launched."""

    def __init__(self, real: DeviceExecutor) -> None:
        self.__dict__.update(real.__dict__)
        self._real = real
        self.launches = 0
        """Launches since it was made."""
        # The bytes of a buffer, from the first to behind the last, that kernels are given.
        self._given: dict[DeviceBuffer, set[tuple[int, int]]] = {}
        self.lowering = real.lowering.for_graphs(self)

    def kernel(self, op: Op, dtype: DType, other: DType | None = None) -> Kernel:
        """Return what counts in place of the kernel, which is loaded."""
        return _Silent(self._real.kernel(op, dtype, other), self._count)

    def allocate(self, size: int, dtype: DType, stream: StreamLike | None = None) -> DeviceBuffer:
        """Return a buffer without memory, which nothing is launched with."""
        return without_memory(size, dtype, self.device)

    def launch(
        self,
        function: Function,
        grid: tuple[int, int, int],
        block: int,
        arguments: tuple[Any, ...],
        stream: StreamLike | None,
    ) -> None:
        """Count it."""
        self._count(arguments)

    def reads(self, memory: DeviceBuffer) -> bool:
        """Return whether a launch was given the memory, or a part of it: what a slot follows."""
        root, start = memory._place
        stop = start + memory.nbytes
        given = self._given.get(root, ())
        return start < stop and any(start <= first and last <= stop for first, last in given)

    def _count(self, arguments: tuple[Any, ...]) -> None:
        self.launches += 1
        for one in arguments:
            if isinstance(one, DeviceBuffer):
                root, start = one._place
                self._given.setdefault(root, set()).add((start, start + one.nbytes))


class _Silent(Kernel):
    """A kernel that is not launched."""

    __slots__ = ("_count",)

    def __init__(self, real: Kernel, count: Callable[[tuple[Any, ...]], None]) -> None:
        self._function = real.function
        self._count = count

    def launch(self, arguments: tuple[Any, ...], stream: StreamLike | None, *work: int) -> None:
        """Count it."""
        self._count(arguments)


__all__ = ["Rehearsal"]
