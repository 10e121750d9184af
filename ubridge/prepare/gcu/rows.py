"""Rows and windows on GCUs: reductions, softmax, norms, sorting, rotary positions, convolutions."""

from __future__ import annotations

from typing import Any

import numpy as np

from ubridge.core.launch_rows import power_of_two
from ubridge.core.layout import Layout, Shape
from ubridge.core.op_table import OPS, Op
from ubridge.prepare.gcu.copies import GcuCopies
from uhal import DeviceBuffer
from uhal.dtypes import i64
from uhal.errors import NotSupportedError
from uhal.interop import StreamLike

_ROTARY = OPS["rotary"]
_SOFTMAX = OPS["softmax"]
_MOST_ROWS = 32768
"""Results of a reduction that the kernel keeps besides."""
_MOST_INPUT_BYTES = 60 << 20
_MOST_KERNEL_ELEMENTS = 4096
"""What the convolutions' kernels hold; beyond it they do nothing, without a word."""


class GcuRows(GcuCopies):
    """The part of the GCU's launches that takes rows or windows."""

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
        kernel = self._executor.kernel(op, x.dtype)
        source = self.whole(x, ordered, stream)
        for start in range(0, results, _MOST_ROWS):
            rows = min(_MOST_ROWS, results - start)
            arguments = (rows * elements, elements, 1, None, source[start * elements :],
                         out[start:])  # fmt: skip
            kernel.launch(arguments, stream)

    def softmax(
        self,
        x: DeviceBuffer,
        out: DeviceBuffer,
        rows: int,
        columns: int,
        stream: StreamLike | None,
    ) -> None:
        arguments = (x, out, columns, rows, 1)
        self._executor.kernel(_SOFTMAX, x.dtype).launch(arguments, stream)

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
        """Enqueue a norm of each row: one kernel with two flags does both."""
        with_mean = int(bias is not None)
        # Without the flag the bias is not read.
        addend = weight if bias is None else bias
        flags = (with_mean, with_mean)
        arguments = (x, out, weight, addend, columns, 0, epsilon, rows, 1, *flags)
        self._executor.kernel(op, x.dtype).launch(arguments, stream)

    def argsort(
        self,
        op: Op,
        x: DeviceBuffer,
        out: DeviceBuffer,
        rows: int,
        columns: int,
        stream: StreamLike | None,
    ) -> None:
        """Enqueue a sort of each row's places.

        The kernel fills rows up to a power of two with 10000, which other elements may exceed: rows
        of another length are sorted on the host, and that waits.
        """
        padded = power_of_two(columns)
        if padded == columns:
            arguments = (x, out, columns, padded, rows, False)
            self._executor.kernel(op, x.dtype).launch(arguments, stream)
            return
        values = x[: rows * columns].to_numpy(stream=stream).reshape(rows, columns)
        if values.dtype.kind not in "iu":
            values = values.astype(np.float64)
        if op.name == "argsort_descending":
            places = columns - 1 - np.argsort(values[:, ::-1], -1, kind="stable")[:, ::-1]
        else:
            places = np.argsort(values, -1, kind="stable")
        target = out[: rows * columns]
        target.copy_from(places.astype(np.uint32).reshape(-1), stream=stream)

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
        """Enqueue rotations by position.

        The kernel works in place on (tokens, heads, width) and takes cosines and sines as one
        array's rows, so operands are brought into that order and the result back.
        """
        at = self._executor
        heads_last = op.name == "rope_thd"
        batch, positions, heads, width = shape if heads_last else (
            shape[0], shape[2], shape[1], shape[3])  # fmt: skip
        rows = positions * (batch if per_batch else 1)
        angles = at.allocate(rows * width, x.dtype, stream)
        halves = Shape((rows, width // 2))
        self.kv_concat(cos, sin, (halves, halves), 1, angles, stream)
        # The same few for every step of a model: kept with the layouts, as u64.
        places = at.layouts.get(tuple(place % rows for place in range(batch * positions))).view(i64)
        own = Layout.contiguous(shape)
        tokens = own if heads_last else own.permute((0, 2, 1, 3))
        turned = at.allocate(own.size, x.dtype, stream)
        self.copy_strided(x, tokens, turned, stream)
        unused = at.allocate(batch * positions * width, x.dtype, stream)
        self.copy_strided(x, Layout.contiguous(unused.size), unused, stream)
        arguments = (
            *(turned, unused, angles, rows, width, places, batch * positions, heads, 1, width),
            *(width, int(op.name != "rope_i")),
        )
        at.kernel(_ROTARY, x.dtype).launch(arguments, stream)
        whole = Layout.contiguous((batch, positions, heads, width))
        back = whole if heads_last else whole.permute((0, 2, 1, 3))
        self.copy_strided(turned, back, out, stream)

    def windows(
        self, op: Op, arguments: tuple[Any, ...], threads: int, stream: StreamLike | None
    ) -> None:
        """Enqueue a convolution; of what exceeds the kernel's memory nothing would come."""
        kernel = self._executor.kernel(op, arguments[-1].dtype)
        *_, x, weight, _out = arguments
        if op.name == "conv1d" and arguments[4] != 1:
            raise NotSupportedError(
                "conv1d: on a GCU with a dilation of 1 only; its kernel spreads the results too",
                backend="tops",
            )
        if arguments[0] * x.dtype.itemsize > _MOST_INPUT_BYTES:
            raise NotSupportedError(
                f"{op.name}: on a GCU of inputs up to {_MOST_INPUT_BYTES} bytes, got "
                f"{arguments[0] * x.dtype.itemsize}",
                backend="tops",
            )
        if op.name == "conv1d" and weight.size > _MOST_KERNEL_ELEMENTS:
            raise NotSupportedError(
                f"conv1d: on a GCU with kernels up to {_MOST_KERNEL_ELEMENTS} elements, got "
                f"{weight.size}",
                backend="tops",
            )
        kernel.launch(arguments, stream)
