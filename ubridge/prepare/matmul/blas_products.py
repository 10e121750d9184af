"""Products of matrices on the host by a BLAS, as one line of the table."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from ubridge.core.layout import Layout
from ubridge.core.op_table import OPS
from ubridge.core.product import MatmulKernel, Product
from ubridge.device.executor import DeviceExecutor
from ubridge.prepare.matmul.host_blas import find_blas
from uhal import DeviceBuffer, DType, Function
from uhal._lane import ResultLaunch
from uhal.interop import StreamLike

_COPY = OPS["copy"]

_MODULE = "blas"
_LONGEST = 2**31 - 1
"""What a BLAS with 32-bit integers can count."""
_PIECE = 2**21
"""Multiplications that are worth a piece of their own."""
_PER_THREAD = 2**16
"""Multiplications a work-item stands for: the runtime tells the short launches by their number."""


class Operand(NamedTuple):
    """How matrices lie, in a way that a BLAS takes."""

    batch: int
    leading: int
    transposed: bool

    @property
    def column_step(self) -> int:
        """From one element to the next of matrices that are a column each."""
        return 1 if self.transposed else self.leading

    @property
    def row_step(self) -> int:
        """From one element to the next of matrices that are a row each."""
        return self.leading if self.transposed else 1


class _Call(NamedTuple):
    """A launch of a kernel that calls the BLAS."""

    function: Function
    grid: tuple[int, int, int]
    threads: int
    address: int
    numbers: tuple[int, ...]
    swapped: bool
    """Whether the kernel takes the second operand first: it multiplies a matrix by a vector."""


class BlasProducts(MatmulKernel):
    """A BLAS whose calls are kernels of ours, on the host's threads and in the stream's order."""

    name = "blas"
    dtypes = ("f32", "f64")

    def __init__(self, executor: DeviceExecutor) -> None:
        self._executor = executor
        self._functions: dict[tuple[str, DType], Function] = {}

    @property
    def reason(self) -> str:  # type: ignore[override]
        """Which library it is."""
        return find_blas().reason

    def refusal(self, product: Product) -> str:
        """Say what keeps a product from the BLAS, which is looked for when first asked."""
        if product.dtype.name not in self.dtypes:
            return f"for {' and '.join(self.dtypes)}, not {product.dtype}"
        if max(product.m, product.n, product.k) > _LONGEST:
            return f"an axis longer than {_LONGEST}"
        blas = find_blas()
        return "" if blas.gemm else blas.reason

    def launch(
        self,
        product: Product,
        a: DeviceBuffer,
        b: DeviceBuffer,
        out: DeviceBuffer,
        stream: StreamLike | None,
    ) -> bool:
        """Enqueue products, after a copy of what the BLAS does not take as it lies."""
        left, right = _layouts(product)
        a, x = self._operand(a, left, stream)
        b, y = self._operand(b, right, stream)
        call = self._call(product, x, y)
        first, second = (b, a) if call.swapped else (a, b)
        arguments = (call.address, first, second, out, *call.numbers)
        self._executor.launch(call.function, call.grid, call.threads, arguments, stream)
        return True

    def planned(self, product: Product) -> Callable[..., DeviceBuffer] | None:
        """Return what enqueues a product whose operands the BLAS takes as they lie."""
        x, y = (_operand(one) for one in _layouts(product))
        if x is None or y is None:
            return None
        call = self._call(product, x, y)
        size = product.batch * product.m * product.n
        bound = call.function[call.grid, call.threads]
        launch = ResultLaunch(bound, (call.address,), 2, size, product.dtype, call.numbers)
        if not call.swapped:
            return launch
        return lambda stream, out, a, b: launch(stream, out, b, a)

    def _call(self, product: Product, x: Operand, y: Operand) -> _Call:
        """What to tell the BLAS of a product, and how to launch the kernel that calls it."""
        batch, m, n, k = product.batch, product.m, product.n, product.k
        dtype = product.dtype
        limits = self._executor.device.limits
        columns, rows = _pieces(limits.processors, batch, m, n, k)
        work = m * n * k // (columns * rows) // _PER_THREAD
        threads = min(max(work, 1), limits.max_threads_per_block)
        blas = find_blas()
        numbers: tuple[int, ...]
        if n > 1 and m > 1:
            numbers = (*(m, n, k, x.batch, x.leading, x.transposed),
                       *(y.batch, y.leading, y.transposed))  # fmt: skip
            function = self._function("matmul", dtype)
            return _Call(
                function, (columns, rows, batch), threads, blas.gemm[dtype.name], numbers, False
            )
        if n == 1:
            numbers = (m, k, x.batch, x.leading, x.transposed, y.batch, y.column_step)
        else:
            numbers = (n, k, y.batch, y.leading, not y.transposed, x.batch, x.row_step)
        function = self._function("matvec", dtype)
        grid = (columns * rows, 1, batch)
        return _Call(function, grid, threads, blas.gemv[dtype.name], numbers, n > 1)

    def _operand(
        self, x: DeviceBuffer, layout: Layout, stream: StreamLike | None
    ) -> tuple[DeviceBuffer, Operand]:
        """The matrices as the BLAS takes them; those that one stands for are copied once."""
        lies = _operand(layout)
        if lies is not None:
            return x, lies
        batch = layout.strides[0]
        count, rows, columns = layout.shape
        each = rows * columns
        apart = Layout((count if batch else 1, rows, columns), layout.strides)
        copied = self._executor.allocate(apart.size, x.dtype, stream)
        self._executor.lowering.unary(_COPY, x, apart, copied, None, stream)
        return copied, Operand(each if batch else 0, columns, False)

    def _function(self, product: str, dtype: DType) -> Function:
        found = self._functions.get((product, dtype))
        if found is None:
            found = self._executor.get_or_load_func(f"blas_{product}_{dtype}", _MODULE)
            self._functions[product, dtype] = found
        return found


@lru_cache(maxsize=4096)
def _layouts(product: Product) -> tuple[Layout, Layout]:
    """The layouts of both operands; made once, for they cost as much as a small product."""
    batch, m, n, k = product.batch, product.m, product.n, product.k
    return (
        Layout((batch, m, k), (product.a_batch, product.a_row, product.a_column)),
        Layout((batch, k, n), (product.b_batch, product.b_row, product.b_column)),
    )


@lru_cache(maxsize=4096)
def _operand(layout: Layout) -> Operand | None:
    """How matrices lie for a BLAS; `None` for what it does not take."""
    _, rows, columns = layout.shape
    batch, row_stride, column_stride = layout.strides
    # An axis of one element is never stepped along.
    if column_stride == 1 or columns == 1:
        leading = row_stride if rows > 1 else columns
        if columns <= leading <= _LONGEST:
            return Operand(batch, leading, False)
    if row_stride == 1 or rows == 1:
        leading = column_stride if columns > 1 else rows
        if rows <= leading <= _LONGEST:
            return Operand(batch, leading, True)
    return None


@lru_cache(maxsize=4096)
def _pieces(threads: int, products: int, m: int, n: int, k: int) -> tuple[int, int]:
    """How many pieces of columns and of rows the threads share out: one cut costs the least."""
    wanted = -(-2 * threads // products) if threads > 1 else 1
    pieces = max(1, min(wanted, m * n * k // _PIECE))
    return (pieces, 1) if n >= m else (1, pieces)
