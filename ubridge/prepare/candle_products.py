"""Launches of ubridge's own kernels where Candle has none: products, attention, joins."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from math import prod

from ubridge.core.layout import Layout, Shape
from ubridge.core.op_table import OPS, Op
from ubridge.core.product import MatmulChoice, MatmulKernel, Product
from ubridge.device.executor import DeviceExecutor
from ubridge.device.lowering import Lowering, Sizes
from ubridge.prepare.matmul.table import MatmulKernels
from uhal import DeviceBuffer, DType
from uhal.interop import StreamLike

_ATTENTION = OPS["attention"]
_COPY = OPS["copy"]
_KV_APPEND = OPS["kv_append"]
_KV_CONCAT = OPS["kv_concat"]


class CandleProducts(Lowering):
    """The part of the launches on CUDA, ROCm and the host that multiplies."""

    _executor: DeviceExecutor

    matmuls: MatmulKernels

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
        a, a_batch, left = self._batched(a, left, stream)
        b, b_batch, right = self._batched(b, right, stream)
        self.matmuls.launch(_product(a.dtype, left, a_batch, right, b_batch), a, b, out, stream)

    def matmul_planned(
        self, dtype: DType, left: Layout, right: Layout
    ) -> Callable[..., DeviceBuffer] | None:
        """Return what enqueues products of matrices in one launch, as `Plan.launch`, or `None`."""
        a_batch, b_batch = (_batch_stride(one) for one in (left, right))
        if a_batch is None or b_batch is None:
            return None
        return self.matmuls.planned(_product(dtype, left, a_batch, right, b_batch))

    def matmul_choice(self, dtype: DType, left: Layout, right: Layout) -> MatmulChoice:
        a_batch, b_batch = (_batch_stride(one) for one in (left, right))
        # Those with several strides are copied first.
        if a_batch is None:
            a_batch, left = prod(left.shape[-2:]), Layout.contiguous(left.shape)
        if b_batch is None:
            b_batch, right = prod(right.shape[-2:]), Layout.contiguous(right.shape)
        return self.matmuls.choose(_product(dtype, left, a_batch, right, b_batch))

    def matmul_launches(self) -> Mapping[str, int]:
        """Return how many products each kernel took, by name."""
        return dict(self.matmuls.launched)

    def matmul_kernels(self) -> Sequence[MatmulKernel]:
        """Return the kernels products may go to, in order of preference."""
        return self.matmuls.table

    def close(self) -> None:
        """Give back what it holds besides memory. The device is still there."""
        self.matmuls.close()

    def _batched(
        self, x: DeviceBuffer, layout: Layout, stream: StreamLike | None
    ) -> tuple[DeviceBuffer, int, Layout]:
        """The operand with one stride from product to product: copied where it has several."""
        stride = _batch_stride(layout)
        if stride is not None:
            return x, stride, layout
        whole = Layout.contiguous(layout.shape)
        out = self._executor.allocate(layout.size, x.dtype, stream)
        self.unary(_COPY, x, layout, out, None, stream)
        return out, prod(layout.shape[-2:]), whole

    def quantized_matvec(
        self,
        op: Op,
        weight: DeviceBuffer,
        x: DeviceBuffer,
        out: DeviceBuffer,
        sizes: tuple[int, int, int],
        stream: StreamLike | None,
    ) -> None:
        """Enqueue products of a weight of blocks; sizes are (vectors, rows, columns)."""
        vectors, rows, columns = sizes
        kernel = self._executor.kernel(op, x.dtype)
        most = self._executor.device.limits.max_grid[1]
        for first in range(0, vectors, most):
            arguments = (weight, x[first * columns :], out[first * rows :], columns, rows)
            kernel.launch(arguments, stream, rows, min(most, vectors - first))

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

    def kv_append(
        self,
        source: DeviceBuffer,
        target: DeviceBuffer,
        position: DeviceBuffer,
        sizes: Sizes,
        stream: StreamLike | None,
    ) -> None:
        """Enqueue a write at a place; sizes are (rows, tokens, target's length, width)."""
        rows, tokens, capacity, width = sizes
        size = rows * tokens * width
        arguments = (size, position, source, target, tokens, capacity, width)
        self._executor.kernel(_KV_APPEND, target.dtype).launch(arguments, stream, size)


@lru_cache(maxsize=4096)
def _batch_stride(layout: Layout) -> int | None:
    """From one matrix to the next; `None` where there are several such strides."""
    merged: list[tuple[int, int]] = []
    for length, stride in zip(layout.shape[:-2], layout.strides[:-2], strict=True):
        if length == 1:
            continue
        if merged and merged[-1][1] == length * stride:
            merged[-1] = (merged[-1][0] * length, stride)
        else:
            merged.append((length, stride))
    if len(merged) > 1:
        return None
    return merged[0][1] if merged else 0


@lru_cache(maxsize=4096)
def _product(dtype: DType, left: Layout, a_batch: int, right: Layout, b_batch: int) -> Product:
    *batch, m, k = left.shape
    a_row, a_column = left.strides[-2:]
    b_row, b_column = right.strides[-2:]
    n = right.shape[-1]
    return Product(dtype, prod(batch), m, n, k, a_batch, a_row, a_column, b_batch, b_row, b_column)
