"""Products of matrices on the host by ubridge's own kernels: all halves, and f32 without a BLAS.

OpenBLAS's wheel multiplies no halves. The kernels take operands at any strides, pack what they need
of them, and multiply by the best instructions of the CPU: `matmul_packed` is compiled for levels
that other kernels are not (`uhal/images/cpu_level.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from ubridge.core.product import MatmulKernel, Product
from ubridge.device.executor import DeviceExecutor
from ubridge.device.images import load_module
from uhal import DeviceBuffer, Function
from uhal._lane import ResultLaunch
from uhal.errors import NotFoundError
from uhal.interop import StreamLike

MATRICES = "matmul_packed"
VECTORS = "matvec"

_DTYPES = ("bf16", "f16", "f32")
_PIECE = 2**20
"""Multiplications that are worth a piece of their own."""
_PER_THREAD = 2**16
"""Multiplications a work-item stands for: the runtime tells the short launches by their number."""


class _Call(NamedTuple):
    """A launch of a kernel."""

    function: Function
    grid: tuple[int, int, int]
    threads: int
    numbers: tuple[int, ...]
    swapped: bool
    """Whether the kernel takes the second operand first: it multiplies a matrix by a vector."""


class PackedProducts(MatmulKernel):
    """Matrices in parts that are packed for the cache; by a vector, as they lie."""

    name = "packed"

    def __init__(self, executor: DeviceExecutor) -> None:
        self._executor = executor
        self._functions: dict[str, Function] = {}
        self._missing: str | None = None
        self._level = ""

    @property
    def reason(self) -> str:  # type: ignore[override]
        """Which instruction level it is compiled for."""
        return f"sums in f32, {self._level}"

    def refusal(self, product: Product) -> str:
        """Say what keeps a product from the kernels: its dtype, or that they are not built."""
        if product.dtype.name not in _DTYPES:
            return f"for {', '.join(_DTYPES)}, not {product.dtype}"
        if self._missing is None:
            self._find()
        return self._missing or ""

    def launch(
        self,
        product: Product,
        a: DeviceBuffer,
        b: DeviceBuffer,
        out: DeviceBuffer,
        stream: StreamLike | None,
    ) -> bool:
        """Enqueue products."""
        call = self._call(product)
        first, second = (b, a) if call.swapped else (a, b)
        arguments = (first, second, out, *call.numbers)
        self._executor.launch(call.function, call.grid, call.threads, arguments, stream)
        return True

    def planned(self, product: Product) -> Callable[..., DeviceBuffer]:
        """Return what enqueues a product."""
        call = self._call(product)
        size = product.batch * product.m * product.n
        bound = call.function[call.grid, call.threads]
        launch = ResultLaunch(bound, (), 2, size, product.dtype, call.numbers)
        if not call.swapped:
            return launch
        return lambda stream, out, a, b: launch(stream, out, b, a)

    def _call(self, product: Product) -> _Call:
        batch, m, n, k = product.batch, product.m, product.n, product.k
        limits = self._executor.device.limits
        columns, rows = _pieces(limits.processors, batch, m, n, k)
        work = m * n * k // (columns * rows) // _PER_THREAD
        threads = min(max(work, 1), limits.max_threads_per_block)
        numbers: tuple[int, ...]
        if m > 1 and n > 1:
            numbers = (*(m, n, k, product.a_batch, product.a_row, product.a_column),
                       *(product.b_batch, product.b_row, product.b_column))  # fmt: skip
            function = self._function(MATRICES, product)
            return _Call(function, (columns, rows, batch), threads, numbers, False)
        if n == 1:
            numbers = (*(m, k, product.a_batch, product.a_row, product.a_column),
                       *(product.b_batch, product.b_row))  # fmt: skip
        else:
            numbers = (*(n, k, product.b_batch, product.b_column, product.b_row),
                       *(product.a_batch, product.a_column))  # fmt: skip
        function = self._function(VECTORS, product)
        return _Call(function, (columns * rows, 1, batch), threads, numbers, n > 1)

    def _function(self, module: str, product: Product) -> Function:
        entry = f"{module}_{product.dtype}"
        found = self._functions.get(entry)
        if found is None:
            found = self._functions[entry] = self._executor.get_or_load_func(entry, module)
        return found

    def _find(self) -> None:
        try:
            chosen = load_module(MATRICES, device=self._executor.device).chosen
        except NotFoundError as error:
            self._missing = " ".join(str(error).split())
            return
        self._missing = ""
        self._level = chosen.description if chosen is not None else ""


@lru_cache(maxsize=4096)
def _pieces(threads: int, products: int, m: int, n: int, k: int) -> tuple[int, int]:
    """How many pieces of columns and of rows the threads share out.

    Each piece packs the rows and columns it needs, so those pieces are taken that pack the least.
    """
    wanted = -(-2 * threads // products) if threads > 1 else 1
    wanted = max(1, min(wanted, m * n * k // _PIECE))
    cuts = ((-(-wanted // rows), rows) for rows in range(1, wanted + 1))
    return min(cuts, key=lambda cut: cut[0] * m + cut[1] * n)
