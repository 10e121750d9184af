"""Copies for Ubridge's kernels on GCUs: of strided operands, and of operands that are too short.

Most kernels take no strides, so strided operands are first copied to row-major order by the one
kernel that does. Some always read or write an element for each thread, so short operands are given
room for that.
"""

from __future__ import annotations

from ubridge.core.layout import Layout, merged_axes
from ubridge.core.op_table import OPS
from ubridge.core.prepared import Elements, Words
from ubridge.device.executor import DeviceExecutor
from ubridge.prepare.convention import Convention
from ubridge.prepare.steps import Arguments, Memory, Steps
from uhal.dtypes import f16, f64, u8, u32

_STRIDED_COPY = OPS["strided_copy"]
_MOST_AXES = 5
_COPIED_AS = {1: u8, 2: f16, 4: u32, 8: f64}
"""Bytes of an element to a type whose kernel moves the same bits."""
_GENERIC = 0
"""The operation of `ucopy` that takes any strides."""


class GcuCopies(Convention):
    """Copies of operands that every part of the GCU's convention uses."""

    def __init__(self, executor: DeviceExecutor) -> None:
        super().__init__(executor)
        limits = executor.device.limits
        self._threads = limits.processors * limits.block_for_elements

    def whole(self, x: Memory, layout: Layout, steps: Steps) -> Memory:
        """Return the elements in row-major order, copied unless they are already."""
        if layout.is_contiguous:
            return x
        out = steps.scratch(layout.size, x.dtype)
        self.copy_strided(x, layout, out, steps)
        return out

    def copy_strided(self, x: Memory, layout: Layout, out: Memory, steps: Steps) -> None:
        """A copy of a layout, which begins with `x`, to row-major order."""
        moved = _COPIED_AS[x.dtype.itemsize]
        source, target = x.view(moved), out.view(moved)
        axes = merged_axes(layout.shape, layout.strides) or [(1, 1)]
        inner = axes[-_MOST_AXES:]
        shape = tuple(length for length, _ in inner)
        strides = tuple(stride for _, stride in inner)
        # Shape, strides, axis order and the operand's own shape; the walk needs the first two.
        info = Words((*shape, *strides, *range(len(shape)), *shape))
        size = Layout.contiguous(shape).size
        taken = 0
        for start in _starts(axes[:-_MOST_AXES]):
            arguments: Arguments = {
                **{"in_size": size, "out_size": size},
                **{"num_dims": len(shape), "origin_num_dims": len(shape)},
                **{"dims_and_strides": info, "in": source[start:], "out": target[taken:]},
                "op_type": _GENERIC,
            }
            steps.launch(_STRIDED_COPY, moved, (), arguments)
            taken += size

    def copy_kept(self, kept: Elements, out: Memory, steps: Steps) -> None:
        """Copy bytes that are kept on the device to where kernels take an operand."""
        info = Words((out.size, 1, 0, out.size))
        arguments: Arguments = {
            **{"in_size": out.size, "out_size": out.size, "num_dims": 1, "origin_num_dims": 1},
            **{"dims_and_strides": info, "in": kept, "out": out, "op_type": _GENERIC},
        }
        steps.launch(_STRIDED_COPY, u8, (), arguments)

    def roomy(self, x: Memory, size: int, steps: Steps) -> Memory:
        """Return few elements with room for as many as there are threads: each takes one."""
        if size >= self._threads:
            return x
        room = steps.scratch(self._threads, x.dtype)
        self.copy_strided(x, Layout.contiguous(size), room, steps)
        return room

    def _into(self, out: Memory, size: int, steps: Steps) -> Memory:
        """Return memory with room for an element for each thread to write."""
        if size >= self._threads:
            return out
        return steps.scratch(self._threads, out.dtype)

    def _deliver(self, found: Memory, out: Memory, size: int, steps: Steps) -> None:
        if found is not out:
            self.copy_strided(found, Layout.contiguous(size), out, steps)


def _starts(axes: list[tuple[int, int]]) -> list[int]:
    """The offset of each combination of indices of the outer axes."""
    starts = [0]
    for length, stride in axes:
        starts = [start + step * stride for start in starts for step in range(length)]
    return starts


__all__ = ["GcuCopies"]
