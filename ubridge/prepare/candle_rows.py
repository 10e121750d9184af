"""Launches of Candle's kernels along the last axis, and of those on windows."""

from __future__ import annotations

from math import prod
from typing import Any

from ubridge.core.launch_rows import norm_threads, power_of_two
from ubridge.core.layout import Shape
from ubridge.core.op_table import OPS, Op
from ubridge.device.executor import DeviceExecutor
from ubridge.device.lowering import Lowering
from uhal import DeviceBuffer
from uhal.interop import StreamLike

_LOG_SOFTMAX = OPS["log_softmax"]
_SOFTMAX = OPS["softmax"]


class CandleRows(Lowering):
    """The part of Candle's calling convention that takes contiguous rows."""

    _executor: DeviceExecutor

    def softmax(
        self,
        x: DeviceBuffer,
        out: DeviceBuffer,
        rows: int,
        columns: int,
        stream: StreamLike | None,
    ) -> None:
        arguments = (x, out, columns, rows, 1)
        self._executor.kernel(_SOFTMAX, x.dtype).launch(arguments, stream, rows)

    def log_softmax(
        self,
        x: DeviceBuffer,
        out: DeviceBuffer,
        rows: int,
        columns: int,
        compensated: bool,
        stream: StreamLike | None,
    ) -> None:
        """Enqueue a log-softmax of each row, one a block."""
        kernel = self._executor.kernel(_LOG_SOFTMAX, x.dtype)
        kernel.launch((x, out, columns, int(compensated)), stream, rows, columns)

    def norm(
        self,
        op: Op,
        x: DeviceBuffer,
        weight: DeviceBuffer,
        bias: DeviceBuffer | None,
        out: DeviceBuffer,
        rows: int,
        columns: int,
        epsilon: float,
        stream: StreamLike | None,
    ) -> None:
        threads = norm_threads(columns)
        arguments = (x, out, weight, bias, columns, threads, epsilon, rows, 1, 0, 0)
        self._executor.kernel(op, x.dtype).launch(arguments, stream, rows, threads)

    def argsort(
        self,
        op: Op,
        x: DeviceBuffer,
        out: DeviceBuffer,
        rows: int,
        columns: int,
        stream: StreamLike | None,
    ) -> None:
        padded = power_of_two(columns)
        arguments = (x, out, columns, padded, rows, False)
        self._executor.kernel(op, x.dtype).launch(arguments, stream, rows, padded)

    def rope(
        self,
        op: Op,
        x: DeviceBuffer,
        shape: Shape,
        cos: DeviceBuffer,
        sin: DeviceBuffer,
        per_batch: bool,
        out: DeviceBuffer,
        stream: StreamLike | None,
    ) -> None:
        batch, second, third, width = shape
        of_batch = second * third * width if per_batch else 0
        sizes: tuple[int, ...]
        if op.name == "rope_thd":
            sizes = (batch, second, third, width, of_batch)
        elif op.name == "rope_i":
            sizes = (batch * second, third * width, of_batch)
        else:
            sizes = (batch * second, third * width, width, of_batch)
        arguments = (x, cos, sin, out, *sizes)
        self._executor.kernel(op, x.dtype).launch(arguments, stream, prod(shape) // 2)

    def windows(
        self, op: Op, arguments: tuple[Any, ...], threads: int, stream: StreamLike | None
    ) -> None:
        self._executor.kernel(op, arguments[-1].dtype).launch(arguments, stream, threads)
