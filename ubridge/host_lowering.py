"""Launches on the host: Candle's, but large products of matrices go to a BLAS."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from ubridge.candle_lowering import CandleLowering
from ubridge.candle_products import batch_stride
from ubridge.host_blas import Blas, find_blas
from ubridge.layout import Layout
from ubridge.op_table import OPS
from ubridge.product_choice import ProductChoice
from uhal import DeviceBuffer, DType, Function, launch
from uhal.dtypes import f32
from uhal.interop import StreamLike

if TYPE_CHECKING:
    from ubridge.executor import DeviceExecutor

_COPY = OPS["copy"]

_LONGEST = 2**31 - 1
"""What a BLAS with 32-bit integers can count."""
_WIDENING_PAYS = 32**3
"""Multiplications from which on halves are widened for the BLAS."""
_PIECE = 2**21
"""Multiplications that are worth a piece of their own."""
_PER_THREAD = 2**12
"""Multiplications a work-item stands for: the runtime tells the short launches by their number."""


class Operand(NamedTuple):
    """Matrices as a BLAS takes them."""

    buffer: DeviceBuffer
    batch: int
    leading: int
    transposed: bool


class HostLowering(CandleLowering):
    """How operations become launches on the host."""

    def __init__(self, executor: DeviceExecutor) -> None:
        super().__init__(executor)
        self._products: dict[str, Function] = {}

    def matmul_choice(self, dtype: DType, m: int, n: int, k: int) -> ProductChoice:
        """Return who multiplies (m, k) by (k, n). Looks for the BLAS when asked first."""
        blas = find_blas()
        if not blas.gemm:
            return ProductChoice("tiled", blas.reason)
        if max(m, n, k) > _LONGEST:
            return ProductChoice("tiled", f"an axis is longer than {_LONGEST}")
        if dtype.name in blas.gemm:
            return ProductChoice("blas", blas.reason)
        if m * n * k < _WIDENING_PAYS:
            return ProductChoice("tiled", f"too small for widening {dtype} to pay")
        return ProductChoice("blas in f32", blas.reason)

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
        dtype = a.dtype
        choice = self.matmul_choice(dtype, m, n, k)
        if choice.name == "tiled":
            super().matmul(a, left, b, right, out, stream)
            return
        computed = dtype if choice.name == "blas" else f32
        x = self._for_blas(a, left, computed, stream)
        y = self._for_blas(b, right, computed, stream)
        products = prod(batch)
        if computed is dtype:
            self._multiply(find_blas(), x, y, out, (products, m, n, k), stream)
            return
        wide = self._executor.allocate(products * m * n, computed, stream)
        self._multiply(find_blas(), x, y, wide, (products, m, n, k), stream)
        self.cast(wide, Layout.contiguous(products * m * n), dtype, out, stream)

    def _for_blas(
        self, x: DeviceBuffer, layout: Layout, dtype: DType, stream: StreamLike | None
    ) -> Operand:
        """The operand with one stride from product to product and one in each; a copy if need be.

        What is broadcast is copied once.
        """
        form = _form(layout)
        if form is not None and x.dtype is dtype:
            return Operand(x, *form)
        whole, batch, layout = self._batched(x, layout, stream)
        rows, columns = layout.shape[-2:]
        matrices = layout.size // (rows * columns) if batch else 1
        compact = Layout((matrices, rows, columns), (batch, *layout.strides[-2:]))
        copied = self._executor.allocate(compact.size, dtype, stream)
        if x.dtype is dtype:
            self.unary(_COPY, whole, compact, copied, None, stream)
        else:
            self.cast(whole, compact, dtype, copied, stream)
        return Operand(copied, rows * columns if batch else 0, columns, False)

    def _multiply(
        self,
        blas: Blas,
        x: Operand,
        y: Operand,
        out: DeviceBuffer,
        counts: tuple[int, int, int, int],
        stream: StreamLike | None,
    ) -> None:
        products, m, n, k = counts
        dtype = out.dtype.name
        function = self._products.get(dtype)
        if function is None:
            function = self._executor.get_or_load_func(f"blas_matmul_{dtype}", "blas")
            self._products[dtype] = function
        limits = self._executor.device.limits
        columns, rows = _pieces(limits.processors, products, m, n, k)
        work = m * n * k // (columns * rows) // _PER_THREAD
        threads = min(max(work, 1), limits.max_threads_per_block)
        most = limits.max_grid[2]
        gemm = blas.gemm[dtype]
        sizes = (m, n, k, x.batch, x.leading, x.transposed, y.batch, y.leading, y.transposed)
        a, b = x.buffer, y.buffer
        while products > most:
            launch(function, (columns, rows, most), threads, (gemm, a, b, out, *sizes), 0, stream)
            products -= most
            a, b, out = a[most * x.batch :], b[most * y.batch :], out[most * m * n :]
        grid = (columns, rows, products)
        launch(function, grid, threads, (gemm, a, b, out, *sizes), 0, stream)


@lru_cache(maxsize=4096)
def _form(layout: Layout) -> tuple[int, int, bool] | None:
    """(batch stride, leading stride, transposed) for a BLAS; `None` for what it does not take."""
    batch = batch_stride(layout)
    if batch is None:
        return None
    rows, columns = layout.shape[-2:]
    row_stride, column_stride = layout.strides[-2:]
    # An axis of one element is never stepped along.
    if column_stride == 1 or columns == 1:
        leading = row_stride if rows > 1 else columns
        if columns <= leading <= _LONGEST:
            return batch, leading, False
    if row_stride == 1 or rows == 1:
        leading = column_stride if columns > 1 else rows
        if rows <= leading <= _LONGEST:
            return batch, leading, True
    return None


@lru_cache(maxsize=4096)
def _pieces(threads: int, products: int, m: int, n: int, k: int) -> tuple[int, int]:
    """How many pieces of columns and of rows the threads share out: one cut costs the least."""
    wanted = -(-2 * threads // products) if threads > 1 else 1
    pieces = max(1, min(wanted, m * n * k // _PIECE))
    return (pieces, 1) if n >= m else (1, pieces)
