"""Launches of Ubridge's kernels on GCUs, with what those kernels do not do themselves.

They know no strides: operands are made contiguous first, and broadcasts are materialized except of
a single element. Some write past few elements, some are wrong with repeated ids or several axes:
those get room, or another path.
"""

from __future__ import annotations

from ubridge.core.layout import Layout
from ubridge.core.op_table import OPS, Op
from ubridge.core.rows import rows_of
from ubridge.prepare.gcu.composed import GcuComposed
from ubridge.prepare.gcu.indexing import GcuIndexing
from ubridge.prepare.gcu.products import GcuProducts
from ubridge.prepare.gcu.rows import GcuRows
from uhal import DeviceBuffer, DType
from uhal.dtypes import f16, i8, i16, i32, i64, u8, u16, u32, u64
from uhal.errors import NotSupportedError
from uhal.interop import StreamLike

_AFFINE = OPS["affine"]
_ASTYPE = OPS["astype"]
_COPY = OPS["copy"]
_FILL = OPS["fill"]
_NOT_EQUAL = OPS["not_equal"]
_WHERE = OPS["where"]

_CHOSEN_AS = {i8: u8, i16: f16, u16: f16, i32: u32, u64: i64}
_THROUGH = {(u8, i32): u32, (u8, i16): u16, (u16, i32): u32}
"""Casts without a kernel that another one does, but for the sign no value of these has."""


class GcuLowering(GcuRows, GcuIndexing, GcuProducts, GcuComposed):
    """How operations become launches of Ubridge's kernels on one GCU."""

    beyond_launches = frozenset({"argsort", "copy2d", "scatter"})

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
        filled = self._executor.allocate(size, x.dtype, stream)
        kernel.launch((size, 1, None, value, filled), stream)
        written = rows_of(Layout(layout.shape, layout.strides))
        each = written.rows * written.columns
        for number, start in enumerate(written.starts):
            self.copy2d(
                filled[number * each :], x[start:],
                written.rows, written.columns, written.columns, written.pitch, stream,
            )  # fmt: skip

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


__all__ = ["GcuLowering"]
