"""Launches of Ubridge's kernels on GCUs, with what those kernels do not do themselves.

They know no strides: operands are made contiguous first, and broadcasts are materialized except of
a single element. Some write past few elements, some are wrong with repeated ids or several axes:
those get room, or another path. Everything else was checked before, as for Candle's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ubridge.gcu_indexing import GcuIndexing
from ubridge.gcu_products import GcuProducts
from ubridge.gcu_rows import GcuRows
from ubridge.gemm_tuner import AtenGemmTuner
from ubridge.layout import Layout
from ubridge.op_table import OPS, Op
from uhal import DeviceBuffer, DType
from uhal.dtypes import f16, f64, i8, i16, i32, i64, u8, u16, u32, u64
from uhal.errors import NotSupportedError
from uhal.interop import StreamLike

if TYPE_CHECKING:
    from ubridge.executor import DeviceExecutor

_AFFINE = OPS["affine"]
_ASTYPE = OPS["astype"]
_COPY = OPS["copy"]
_FILL = OPS["fill"]
_NOT_EQUAL = OPS["not_equal"]
_STRIDED_COPY = OPS["strided_copy"]
_WHERE = OPS["where"]

_MOST_AXES = 5
_COPIED_AS = {1: u8, 2: f16, 4: u32, 8: f64}
"""Bytes of an element to a type whose kernel moves the same bits."""
_CHOSEN_AS = {i8: u8, i16: f16, u16: f16, i32: u32, u64: i64}
_GENERIC = 0
"""The operation of `ucopy` that walks any strides."""
_THROUGH = {(u8, i32): u32, (u8, i16): u16, (u16, i32): u32}
"""Casts without a kernel that another one does, but for the sign no value of these has."""


class GcuLowering(GcuRows, GcuIndexing, GcuProducts):
    """How operations become launches of Ubridge's kernels on one GCU."""

    def __init__(self, executor: DeviceExecutor) -> None:
        self._executor = executor
        self._layouts = executor.layouts
        self._tuner = AtenGemmTuner()
        limits = executor.device.limits
        self._threads = limits.processors * limits.block_for_elements

    # -- what kernels do not do ------------------------------------------------------------------

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
        axes = _merged(layout)
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

    # -- elementwise -----------------------------------------------------------------------------

    def unary(
        self,
        op: Op,
        x: DeviceBuffer,
        layout: Layout,
        out: DeviceBuffer,
        parameter: float | None,
        stream: StreamLike | None,
    ) -> None:
        """Enqueue an operation on one operand, with its parameter if it has one."""
        if op is _COPY:
            self.copy_strided(x, layout, out, stream)
            return
        refuse_wrong(op)
        kernel = self._executor.kernel(op, x.dtype)
        size = layout.size
        source = self.whole(x, layout, stream)
        if parameter is None:
            kernel.launch((size, layout.rank, None, source, out), stream)
            return
        source = self.roomy(source, size, stream)
        target = self._into(out, size, stream)
        kernel.launch((size, layout.rank, None, source, target, parameter), stream)
        self._deliver(target, out, size, stream)

    def binary(
        self,
        op: Op,
        x: DeviceBuffer,
        x_layout: Layout,
        y: DeviceBuffer,
        y_layout: Layout,
        out: DeviceBuffer,
        stream: StreamLike | None,
    ) -> None:
        """Enqueue an operation on two operands of one shape."""
        kernel = self._executor.kernel(op, x.dtype)
        size = x_layout.size
        left = self.whole(x, x_layout, stream)
        one_element = size > 1 and y_layout.extent == y_layout.start_offset + 1
        right = y if one_element else self.whole(y, y_layout, stream)
        # A stride of 0 on the right means one element for all.
        info = self._layouts.get((size, 1, 0 if one_element else 1))
        kernel.launch((size, 1, info, left, right, out), stream)

    def where(
        self,
        operands: tuple[DeviceBuffer, DeviceBuffer, DeviceBuffer],
        layouts: tuple[Layout, Layout, Layout],
        out: DeviceBuffer,
        stream: StreamLike | None,
    ) -> None:
        """Enqueue a choice by (condition, x, y)."""
        size = layouts[0].size
        condition, on_true, on_false = (
            self.roomy(self.whole(buffer, layout, stream), size, stream)
            for buffer, layout in zip(operands, layouts, strict=True)
        )
        moved = _CHOSEN_AS.get(out.dtype, out.dtype)
        if condition.dtype is not u8 and moved.itemsize == 2:
            condition = self._as_bytes(condition, size, stream)
        target = self._into(out, size, stream)
        kernel = self._executor.kernel(_WHERE, moved, condition.dtype)
        buffers = (condition, on_true.view(moved), on_false.view(moved), target.view(moved))
        kernel.launch((size, 1, None, *buffers), stream)
        self._deliver(target, out, size, stream)

    def _as_bytes(
        self, condition: DeviceBuffer, size: int, stream: StreamLike | None
    ) -> DeviceBuffer:
        """The condition as u8: halves are chosen by no other."""
        room = max(size, self._threads)
        chosen = [self._executor.allocate(room, u8, stream) for _ in range(3)]
        for value, buffer in ((1, chosen[0]), (0, chosen[1])):
            self.fill(buffer, Layout.contiguous(room), value, stream)
        kernel = self._executor.kernel(_WHERE, u8, condition.dtype)
        kernel.launch((size, 1, None, condition, *chosen), stream)
        return chosen[2]

    def affine(
        self,
        x: DeviceBuffer,
        layout: Layout,
        out: DeviceBuffer,
        multiplier: float,
        addend: float,
        stream: StreamLike | None,
    ) -> None:
        """Enqueue `x * multiplier + addend`; both roundings are the kernel's."""
        kernel = self._executor.kernel(_AFFINE, x.dtype)
        source = self.whole(x, layout, stream)
        arguments = (layout.size, 1, None, source, out, float(multiplier), float(addend))
        kernel.launch(arguments, stream)

    def cast(
        self,
        x: DeviceBuffer,
        layout: Layout,
        dtype: DType,
        out: DeviceBuffer,
        stream: StreamLike | None,
    ) -> None:
        """Enqueue a conversion to `dtype`."""
        through = _THROUGH.get((x.dtype, dtype), dtype)
        kernel = self._executor.kernel(_ASTYPE, x.dtype, through)
        size = layout.size
        source = self.roomy(self.whole(x, layout, stream), size, stream)
        target = self._into(out, size, stream)
        kernel.launch((size, 1, None, source, target.view(through)), stream)
        self._deliver(target, out, size, stream)

    def fill(
        self, x: DeviceBuffer, layout: Layout, value: float, stream: StreamLike | None
    ) -> None:
        """Enqueue setting every element; those of a strided layout one row after the other."""
        kernel = self._executor.kernel(_FILL, x.dtype)
        size = layout.size
        if layout.is_contiguous:
            kernel.launch((size, 1, None, value, x), stream)
            return
        from ubridge.launches import launch_copy

        filled = self._executor.allocate(size, x.dtype, stream)
        kernel.launch((size, 1, None, value, filled), stream)
        whole = Layout.contiguous(layout.shape)
        here = Layout(layout.shape, layout.strides)
        launch_copy(filled, whole, x, here, stream=stream, executor=self._executor)

    def copy2d(
        self,
        source: DeviceBuffer,
        destination: DeviceBuffer,
        rows: int,
        columns: int,
        source_pitch: int,
        destination_pitch: int,
        stream: StreamLike | None,
    ) -> None:
        """Copy rows, for which there is no kernel, by the runtime; waits."""
        destination[: (rows - 1) * destination_pitch + columns].copy_2d_from(
            source[: (rows - 1) * source_pitch + columns],
            (rows, columns),
            pitch=destination_pitch,
            source_pitch=source_pitch,
            stream=stream,
        )


def refuse_wrong(op: Op) -> None:
    """Refuse an operation whose kernel computes something else."""
    if op.name == "gelu_erf":
        raise NotSupportedError(f"gelu_erf: {GELU_ERF_REASON}", backend="tops")


GELU_ERF_REASON = "the kernel is the tanh form under another name; gelu is that form"


def _merged(layout: Layout) -> list[tuple[int, int]]:
    """(length, stride) of the axes, neighbors that lie behind each other as one."""
    axes: list[tuple[int, int]] = []
    for length, stride in zip(layout.shape, layout.strides, strict=True):
        if length == 1:
            continue
        if axes and axes[-1][1] == length * stride:
            axes[-1] = (axes[-1][0] * length, stride)
        else:
            axes.append((length, stride))
    return axes or [(1, 1)]


def _starts(axes: list[tuple[int, int]]) -> list[int]:
    """Where each combination of the outer axes begins."""
    starts = [0]
    for length, stride in axes:
        starts = [start + step * stride for start in starts for step in range(length)]
    return starts


__all__ = ["GcuLowering"]
