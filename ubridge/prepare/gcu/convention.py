"""Launches of Ubridge's kernels on GCUs, and the work that those kernels leave to callers.

They know no strides: operands are made contiguous first, and broadcasts are materialized except of
a single element. Some write past few elements, some are wrong with repeated ids or several axes:
those get room, or another path.
"""

from __future__ import annotations

from functools import partial

from ubridge.core.layout import Layout
from ubridge.core.op_table import OPS, Op
from ubridge.core.prepared import Words
from ubridge.core.question import Question
from ubridge.core.rows import rows_of
from ubridge.device.executor import DeviceExecutor
from ubridge.prepare.gcu.composed import GcuComposed
from ubridge.prepare.gcu.indexing import GcuIndexing
from ubridge.prepare.gcu.products import GcuProducts
from ubridge.prepare.gcu.rows import GcuRows
from ubridge.prepare.steps import Arguments, Given, Memory, Steps
from uhal import DeviceBuffer
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
"""Casts without a kernel, to the cast that does the same: these values have no sign."""


class GcuConvention(GcuRows, GcuIndexing, GcuProducts, GcuComposed):
    """How operations become launches of Ubridge's kernels on one GCU."""

    def others(self, question: Question, steps: Steps) -> None:
        """Add a convolution, or an operation that only GCUs have."""
        family = question.op.family.name
        if family in ("conv1d", "conv2d"):
            self.convolution(question, steps)
        elif family == "quantized_matmul":
            self.quantized_matmul(question, steps)
        elif family in ("rotary", "cache", "paged_attention", "quantize", "dequantize"):
            self.of_gcus(question, steps)
        else:
            super().others(question, steps)

    # -- elementwise -----------------------------------------------------------------------------

    def unary(
        self,
        op: Op,
        x: Memory,
        layout: Layout,
        out: Memory,
        parameter: Given,
        steps: Steps,
    ) -> None:
        if op is _COPY:
            self.copy_strided(x, layout, out, steps)
            return
        refuse_wrong(op)
        size = layout.size
        source = self.whole(x, layout, steps)
        arguments: Arguments
        if parameter is None:
            arguments = {"numel": size, "in": source, "out": out}
            steps.launch(op, x.dtype, (), arguments)
            return
        source = self.roomy(source, size, steps)
        target = self._into(out, size, steps)
        arguments = {"numel": size, "in": source, "out": target, "extValue": parameter}
        steps.launch(op, x.dtype, (), arguments)
        self._deliver(target, out, size, steps)

    def binary(
        self,
        op: Op,
        x: Memory,
        x_layout: Layout,
        y: Memory,
        y_layout: Layout,
        out: Memory,
        steps: Steps,
    ) -> None:
        size = x_layout.size
        left = self.whole(x, x_layout, steps)
        one_element = size > 1 and y_layout.extent == y_layout.start_offset + 1
        right = y if one_element else self.whole(y, y_layout, steps)
        # A stride of 0 on the right means one element for all.
        info = Words((size, 1, 0 if one_element else 1))
        arguments: Arguments = {
            **{"numel": size, "num_dims": 1, "dims_and_strides": info},
            **{"in_a": left, "in_b": right, "out": out},
        }
        steps.launch(op, x.dtype, (), arguments)

    def where(
        self,
        operands: tuple[Memory, Memory, Memory],
        layouts: tuple[Layout, Layout, Layout],
        out: Memory,
        steps: Steps,
    ) -> None:
        size = layouts[0].size
        condition, on_true, on_false = (
            self.roomy(self.whole(buffer, layout, steps), size, steps)
            for buffer, layout in zip(operands, layouts, strict=True)
        )
        moved = _CHOSEN_AS.get(out.dtype, out.dtype)
        if condition.dtype is not u8 and moved.itemsize == 2:
            condition = self._as_bytes(condition, size, steps)
        target = self._into(out, size, steps)
        arguments: Arguments = {
            **{"ids": condition, "in1": on_true.view(moved), "in2": on_false.view(moved)},
            **{"out": target.view(moved), "element_num": size},
        }
        steps.launch(_WHERE, moved, (), arguments, condition.dtype)
        self._deliver(target, out, size, steps)

    def _as_bytes(self, condition: Memory, size: int, steps: Steps) -> Memory:
        """The condition as u8, which alone chooses halves."""
        room = max(size, self._threads)
        chosen = [steps.scratch(room, u8) for _ in range(3)]
        for value, buffer in ((1, chosen[0]), (0, chosen[1])):
            self.fill(buffer, Layout.contiguous(room), value, steps)
        arguments: Arguments = {
            **{"ids": condition, "in1": chosen[0], "in2": chosen[1]},
            **{"out": chosen[2], "element_num": size},
        }
        steps.launch(_WHERE, u8, (), arguments, condition.dtype)
        return chosen[2]

    def affine(
        self,
        x: Memory,
        layout: Layout,
        out: Memory,
        multiplier: Given,
        addend: Given,
        steps: Steps,
    ) -> None:
        """Enqueue `x * multiplier + addend`; both roundings are the kernel's."""
        source = self.whole(x, layout, steps)
        arguments: Arguments = {
            **{"numel": layout.size, "inp": source, "out": out},
            **{"mulv": multiplier, "addv": addend},
        }
        steps.launch(_AFFINE, x.dtype, (), arguments)

    def cast(self, x: Memory, layout: Layout, out: Memory, steps: Steps) -> None:
        through = _THROUGH.get((x.dtype, out.dtype), out.dtype)
        size = layout.size
        source = self.roomy(self.whole(x, layout, steps), size, steps)
        target = self._into(out, size, steps)
        arguments: Arguments = {"numel": size, "inp": source, "out": target.view(through)}
        steps.launch(_ASTYPE, x.dtype, (), arguments, through)
        self._deliver(target, out, size, steps)

    def fill(self, x: Memory, layout: Layout, value: Given, steps: Steps) -> None:
        """Set every element; rows of a strided layout one after the other."""
        size = layout.size
        target = x if layout.is_contiguous else steps.scratch(size, x.dtype)
        arguments: Arguments = {"output": target, "total_size": size, "value": value}
        steps.launch(_FILL, x.dtype, (), arguments)
        if layout.is_contiguous:
            return
        written = rows_of(layout)
        each = written.rows * written.columns
        for number, start in enumerate(written.starts):
            self.copy2d(
                target[number * each :], x[start:],
                written.rows, written.columns, written.columns, written.pitch, steps,
            )  # fmt: skip

    def copy2d(
        self,
        source: Memory,
        destination: Memory,
        rows: int,
        columns: int,
        source_pitch: int,
        destination_pitch: int,
        steps: Steps,
    ) -> None:
        """Copy rows by the runtime, as there is no kernel; waits."""
        pitches = (source_pitch, destination_pitch)
        steps.work(partial(_copy_rows, rows, columns, pitches), source, destination)


def _copy_rows(
    rows: int,
    columns: int,
    pitches: tuple[int, int],
    at: DeviceExecutor,
    stream: StreamLike | None,
    source: DeviceBuffer,
    destination: DeviceBuffer,
) -> None:
    destination[: (rows - 1) * pitches[1] + columns].copy_2d_from(
        source[: (rows - 1) * pitches[0] + columns],
        (rows, columns),
        pitch=pitches[1],
        source_pitch=pitches[0],
        stream=stream,
    )


def refuse_wrong(op: Op) -> None:
    """Refuse an operation if the kernel computes something else."""
    if op.name == "gelu_erf":
        raise NotSupportedError(f"gelu_erf: {GELU_ERF_REASON}", backend="tops")


GELU_ERF_REASON = "the kernel is the tanh form under another name; gelu is that form"


__all__ = ["GcuConvention"]
