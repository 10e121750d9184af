"""Launches in Candle's calling convention: CUDA, ROCm and the host.

Kernels walk strides themselves and are told of them by an array of lengths and strides, or by null
where everything is contiguous.
"""

from __future__ import annotations

from typing import Any

from ubridge.core.layout import Layout
from ubridge.core.op_table import OPS, Op
from ubridge.device.executor import DeviceExecutor
from ubridge.device.slice_ptr import joined_words
from ubridge.prepare.candle_products import CandleProducts
from ubridge.prepare.candle_rows import CandleRows
from ubridge.prepare.matmul.table import MatmulKernels
from uhal import DeviceBuffer, DType
from uhal.interop import StreamLike

_AFFINE = OPS["affine"]
_ASTYPE = OPS["astype"]
_COPY2D = OPS["copy2d"]
_FILL = OPS["fill"]
_GATHER = OPS["gather"]
_INDEX_ADD = OPS["index_add"]
_INDEX_SELECT = OPS["index_select"]
_MASKED_FILL = OPS["masked_fill"]
_WHERE = OPS["where"]


class CandleLowering(CandleRows, CandleProducts):
    """How operations become launches of Candle's kernels on one device."""

    is_planned = True

    def __init__(self, executor: DeviceExecutor) -> None:
        self._executor = executor
        self._layouts = executor.layouts
        self.matmuls = MatmulKernels(executor)

    def for_graphs(self, executor: DeviceExecutor) -> CandleLowering:
        """Return one that multiplies without cuBLASLt."""
        own = type(self)(executor)
        own.matmuls.leave_out_library()
        return own

    def unary(
        self,
        op: Op,
        x: DeviceBuffer,
        layout: Layout,
        out: DeviceBuffer,
        parameter: float | None,
        stream: StreamLike | None,
    ) -> None:
        size = layout.size
        info = None if layout.is_contiguous else self._layouts.get(layout.words)
        arguments: tuple[Any, ...] = (size, len(layout.shape), info, x, out)
        if parameter is not None:
            arguments = (*arguments, parameter)
        self._executor.kernel(op, x.dtype).launch(arguments, stream, size)

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
        size = x_layout.size
        if x_layout.is_contiguous and y_layout.is_contiguous:
            info = None
        else:
            info = self._layouts.get(joined_words(x_layout, y_layout))
        arguments = (size, len(x_layout.shape), info, x, y, out)
        self._executor.kernel(op, x.dtype).launch(arguments, stream, size)

    def where(
        self,
        operands: tuple[DeviceBuffer, DeviceBuffer, DeviceBuffer],
        layouts: tuple[Layout, Layout, Layout],
        out: DeviceBuffer,
        stream: StreamLike | None,
    ) -> None:
        condition, x, y = operands
        size = layouts[0].size
        # The kernels read it even where everything is contiguous.
        info = self._layouts.get(joined_words(*layouts))
        arguments = (size, layouts[0].rank, info, condition, x, y, out)
        kernel = self._executor.kernel(_WHERE, x.dtype, condition.dtype)
        kernel.launch(arguments, stream, size)

    def masked_fill(
        self,
        mask: DeviceBuffer,
        mask_layout: Layout,
        x: DeviceBuffer,
        x_layout: Layout,
        value: float,
        out: DeviceBuffer,
        stream: StreamLike | None,
    ) -> None:
        size = x_layout.size
        if mask_layout.is_contiguous and x_layout.is_contiguous:
            info = None
        else:
            info = self._layouts.get(joined_words(mask_layout, x_layout))
        arguments = (size, x_layout.rank, info, mask, x, value, out)
        self._executor.kernel(_MASKED_FILL, x.dtype).launch(arguments, stream, size)

    def gated(
        self,
        op: Op,
        gate: DeviceBuffer,
        up: DeviceBuffer,
        size: int,
        out: DeviceBuffer,
        stream: StreamLike | None,
    ) -> None:
        self._executor.kernel(op, gate.dtype).launch((size, gate, up, out), stream, size)

    def affine(
        self,
        x: DeviceBuffer,
        layout: Layout,
        out: DeviceBuffer,
        multiplier: float,
        addend: float,
        stream: StreamLike | None,
    ) -> None:
        size = layout.size
        info = None if layout.is_contiguous else self._layouts.get(layout.words)
        arguments = (size, len(layout.shape), info, x, out, multiplier, addend)
        self._executor.kernel(_AFFINE, x.dtype).launch(arguments, stream, size)

    def cast(
        self,
        x: DeviceBuffer,
        layout: Layout,
        dtype: DType,
        out: DeviceBuffer,
        stream: StreamLike | None,
    ) -> None:
        size = layout.size
        info = None if layout.is_contiguous else self._layouts.get(layout.words)
        kernel = self._executor.kernel(_ASTYPE, x.dtype, dtype)
        kernel.launch((size, len(layout.shape), info, x, out), stream, size)

    def fill(
        self, x: DeviceBuffer, layout: Layout, value: float, stream: StreamLike | None
    ) -> None:
        info = None if layout.is_contiguous else self._layouts.get(layout.words)
        arguments = (layout.size, len(layout.shape), info, value, x)
        self._executor.kernel(_FILL, x.dtype).launch(arguments, stream, layout.size)

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
        arguments = (source, destination, rows, columns, source_pitch, destination_pitch)
        self._executor.kernel(_COPY2D, source.dtype).launch(arguments, stream, rows * columns)

    def reduce(
        self,
        op: Op,
        x: DeviceBuffer,
        ordered: Layout,
        results: int,
        elements: int,
        out: DeviceBuffer,
        stream: StreamLike | None,
    ) -> None:
        # Never null: the kernels read it even where everything is contiguous.
        info = self._layouts.get(ordered.words)
        arguments = (ordered.size, elements, ordered.rank, info, x, out)
        kernel = self._executor.kernel(op, x.dtype)
        kernel.launch(arguments, stream, results, elements, ordered.is_contiguous)

    def index_select(
        self,
        x: DeviceBuffer,
        ids: DeviceBuffer,
        sizes: tuple[int, int, int, int],
        out: DeviceBuffer,
        stream: StreamLike | None,
    ) -> None:
        left, length, count, right = sizes
        size = left * count * right
        # The layout the kernel asks for is that of the ids, which are contiguous.
        arguments = (size, 1, None, ids, x, out, left, length, count, right)
        kernel = self._executor.kernel(_INDEX_SELECT, x.dtype, ids.dtype)
        kernel.launch(arguments, stream, size)

    def gather(
        self,
        x: DeviceBuffer,
        ids: DeviceBuffer,
        sizes: tuple[int, int, int, int],
        out: DeviceBuffer,
        stream: StreamLike | None,
    ) -> None:
        left, length, count, right = sizes
        size = left * count * right
        arguments = (size, ids, x, out, left, length, count, right)
        self._executor.kernel(_GATHER, x.dtype, ids.dtype).launch(arguments, stream, size)

    def scatter(
        self,
        op: Op,
        ids: DeviceBuffer,
        source: DeviceBuffer,
        target: DeviceBuffer,
        sizes: tuple[int, int, int, int],
        stream: StreamLike | None,
    ) -> None:
        left, source_length, length, right = sizes
        arguments = (ids, source, target, left, source_length, length, right)
        kernel = self._executor.kernel(op, target.dtype, ids.dtype)
        kernel.launch(arguments, stream, left * right)

    def index_add(
        self,
        ids: DeviceBuffer,
        source: DeviceBuffer,
        target: DeviceBuffer,
        sizes: tuple[int, int, int, int],
        stream: StreamLike | None,
    ) -> None:
        left, count, length, right = sizes
        arguments = (ids, count, source, target, left, count, length, right)
        kernel = self._executor.kernel(_INDEX_ADD, target.dtype, ids.dtype)
        kernel.launch(arguments, stream, left * right)
