"""Launches of ubridge's own kernels where Candle has none: products, attention, joins."""

from __future__ import annotations

from math import prod

from ubridge.layout import Layout, Shape
from ubridge.lowering import Lowering
from ubridge.op_table import OPS
from uhal import DeviceBuffer
from uhal.interop import StreamLike

_ATTENTION = OPS["attention"]
_COPY = OPS["copy"]
_KV_CONCAT = OPS["kv_concat"]
_MATMUL = OPS["matmul"]


class CandleProducts(Lowering):
    """The part of the launches on CUDA, ROCm and the host that multiplies."""

    def matmul(
        self,
        a: DeviceBuffer,
        left: Layout,
        b: DeviceBuffer,
        right: Layout,
        out: DeviceBuffer,
        stream: StreamLike | None,
    ) -> None:
        """Enqueue products of matrices; the layouts have one batch, and begin with a and b."""
        *batch, m, k = left.shape
        n = right.shape[-1]
        a, left_stride, left = self._batched(a, left, stream)
        b, right_stride, right = self._batched(b, right, stream)
        kernel = self._executor.kernel(_MATMUL, a.dtype)
        most = self._executor.device.limits.max_grid[2]
        products = prod(batch)
        for first in range(0, products, most):
            some = min(most, products - first)
            arguments = (
                *(a[first * left_stride :], b[first * right_stride :], out[first * m * n :]),
                *(m, n, k, left_stride, *left.strides[-2:], right_stride, *right.strides[-2:]),
                m * n,
            )
            kernel.launch(arguments, stream, m, n, some)

    def _batched(
        self, x: DeviceBuffer, layout: Layout, stream: StreamLike | None
    ) -> tuple[DeviceBuffer, int, Layout]:
        """The operand with one stride from product to product: copied where it has several."""
        merged: list[tuple[int, int]] = []
        for length, stride in zip(layout.shape[:-2], layout.strides[:-2], strict=True):
            if length == 1:
                continue
            if merged and merged[-1][1] == length * stride:
                merged[-1] = (merged[-1][0] * length, stride)
            else:
                merged.append((length, stride))
        if len(merged) <= 1:
            return x, merged[0][1] if merged else 0, layout
        whole = Layout.contiguous(layout.shape)
        out = self._executor.allocate(layout.size, x.dtype, stream)
        self.unary(_COPY, x, layout, out, None, stream)
        return out, prod(layout.shape[-2:]), whole

    def attention(
        self,
        query: DeviceBuffer,
        key: DeviceBuffer,
        value: DeviceBuffer,
        mask: DeviceBuffer | None,
        out: DeviceBuffer,
        sizes: tuple[int, ...],
        scale: float,
        causal: bool,
        batch: int,
        stream: StreamLike | None,
    ) -> None:
        """Enqueue attention; sizes are heads, kv heads, queries, keys, width, mask's strides."""
        heads, _, queries, keys, _, *_ = sizes
        arguments = (query, key, value, mask, out, *sizes, scale, causal)
        kernel = self._executor.kernel(_ATTENTION, query.dtype)
        kernel.launch(arguments, stream, batch * heads * queries, keys)

    def kv_concat(
        self,
        x: DeviceBuffer,
        y: DeviceBuffer,
        shapes: tuple[Shape, Shape],
        axis: int,
        out: DeviceBuffer,
        stream: StreamLike | None,
    ) -> None:
        """Enqueue a join of two contiguous tensors."""
        rows = prod(shapes[0][:axis])
        left, right = (prod(shape[axis:]) for shape in shapes)
        arguments = (x, y, out, None, 0, 0, rows, left, right)
        kernel = self._executor.kernel(_KV_CONCAT, x.dtype)
        kernel.launch(arguments, stream, rows * (left + right))
