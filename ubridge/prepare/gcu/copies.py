"""What Ubridge's kernels do not do themselves on GCUs: strides, and room to write too much.

They know no strides, so operands are copied to row-major order first, by the one kernel that walks
strides. Some take an element for each thread whatever they are told, so few elements get room.
"""

from __future__ import annotations

from ubridge.core.layout import Layout, merged_axes
from ubridge.core.op_table import OPS
from ubridge.device.executor import DeviceExecutor
from ubridge.device.lowering import Lowering
from uhal import DeviceBuffer
from uhal.dtypes import f16, f64, u8, u32
from uhal.interop import StreamLike

_STRIDED_COPY = OPS["strided_copy"]
_MOST_AXES = 5
_COPIED_AS = {1: u8, 2: f16, 4: u32, 8: f64}
"""Bytes of an element to a type whose kernel moves the same bits."""
_GENERIC = 0
"""The operation of `ucopy` that walks any strides."""


class GcuCopies(Lowering):
    """What every part of the GCU's launches brings its operands in order with."""

    def __init__(self, executor: DeviceExecutor) -> None:
        self._executor = executor
        self._layouts = executor.layouts
        limits = executor.device.limits
        self._threads = limits.processors * limits.block_for_elements

    def whole(self, x: DeviceBuffer, layout: Layout, stream: StreamLike | None) -> DeviceBuffer:
        """Return the elements in row-major order, copied unless they lie so."""
        if layout.is_contiguous:
            return x
        out = self._executor.allocate(layout.size, x.dtype, stream)
        self.copy_strided(x, layout, out, stream)
        return out

    def copy_strided(
        self, x: DeviceBuffer, layout: Layout, out: DeviceBuffer, stream: StreamLike | None
    ) -> None:
        """Enqueue a copy of a layout, which begins with `x`, to row-major order."""
        moved = _COPIED_AS[x.dtype.itemsize]
        source, target = x.view(moved), out.view(moved)
        axes = merged_axes(layout.shape, layout.strides) or [(1, 1)]
        inner = axes[-_MOST_AXES:]
        shape = tuple(length for length, _ in inner)
        strides = tuple(stride for _, stride in inner)
        # Shape, strides, axis order and the operand's own shape; the walk needs the first two.
        info = self._layouts.get((*shape, *strides, *range(len(shape)), *shape))
        kernel = self._executor.kernel(_STRIDED_COPY, moved)
        size = Layout.contiguous(shape).size
        taken = 0
        for start in _starts(axes[:-_MOST_AXES]):
            sizes = (size, size, len(shape), len(shape))
            arguments = (*sizes, info, source[start:], target[taken:], _GENERIC)
            kernel.launch(arguments, stream)
            taken += size

    def roomy(self, x: DeviceBuffer, size: int, stream: StreamLike | None) -> DeviceBuffer:
        """Return few elements with room for as many as there are threads: each takes one."""
        if size >= self._threads:
            return x
        room = self._executor.allocate(self._threads, x.dtype, stream)
        self.copy_strided(x, Layout.contiguous(size), room, stream)
        return room

    def _into(self, out: DeviceBuffer, size: int, stream: StreamLike | None) -> DeviceBuffer:
        """Return where a kernel that writes an element a thread may write to."""
        if size >= self._threads:
            return out
        return self._executor.allocate(self._threads, out.dtype, stream)

    def _deliver(
        self, found: DeviceBuffer, out: DeviceBuffer, size: int, stream: StreamLike | None
    ) -> None:
        if found is not out:
            self.copy_strided(found, Layout.contiguous(size), out, stream)


def _starts(axes: list[tuple[int, int]]) -> list[int]:
    """Where each combination of the outer axes begins."""
    starts = [0]
    for length, stride in axes:
        starts = [start + step * stride for start in starts for step in range(length)]
    return starts


__all__ = ["GcuCopies"]
