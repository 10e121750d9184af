"""Products of matrices on the host by a BLAS, as one line of the table."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from ubridge.core.layout import Layout
from ubridge.core.lowering import Memory, Steps
from ubridge.core.product import Product
from ubridge.definitions.elementwise import COPY
from ubridge.device.executor import DeviceExecutor
from ubridge.prepare.matmul.host_blas import Blas, find_blas
from ubridge.prepare.matmul.kernels import ProductKernel
from ubridge.prepare.matmul.packed_products import PackedProducts

_MODULE = "blas"
_LONGEST = 2**31 - 1
"""The largest number that a BLAS with 32-bit integers can count to."""
_PIECE = 2**19
"""Least multiplications of a separate piece."""
_SMALL = 2**21
"""A smaller product has two pieces per thread, for OpenBLAS's kernels of small matrices.
Larger products have one piece each, because every piece packs one operand again."""
_PER_THREAD = 2**16
"""Multiplications of a work-item; the runtime recognizes short launches by their work-items."""


class Operand(NamedTuple):
    """A layout of matrices that a BLAS takes."""

    batch: int
    leading: int
    transposed: bool


class BlasProducts(ProductKernel):
    """A BLAS that host kernels call, on the host's threads, in the stream's order."""

    name = "blas"
    dtypes = ("f32", "f64")

    def __init__(self, executor: DeviceExecutor) -> None:
        self._limits = executor.device.limits
        self._packed = PackedProducts(executor)

    @property
    def reason(self) -> str:  # type: ignore[override]
        """The chosen library, with the reason."""
        return find_blas().reason

    def refusal(self, product: Product) -> str:
        """Say why the BLAS cannot take a product; the first call looks for a BLAS."""
        if product.dtype.name not in self.dtypes:
            return f"for {' and '.join(self.dtypes)}, not {product.dtype}"
        if max(product.m, product.n, product.k) > _LONGEST:
            return f"an axis longer than {_LONGEST}"
        blas = find_blas()
        return self._behind(blas, product) if blas.gemm else blas.reason

    def _behind(self, blas: Blas, product: Product) -> str:
        """Say which instructions, unused by the BLAS, make ubridge's own kernels faster.

        Small products stay with the BLAS, which does not pack them. Products by vectors stay, too,
        because memory bounds their speed.
        """
        m, n, k = product.m, product.n, product.k
        if self._packed.refusal(product) or min(m, n) == 1 or m * n * k < _SMALL:
            return ""
        if blas.level >= self._packed.level:
            return ""
        return f"OpenBLAS uses its kernels for {blas.core} here, below this CPU's vectors"

    def prepare(self, product: Product, a: Memory, b: Memory, out: Memory, steps: Steps) -> None:
        """Add the launch of products, after copies of operands that the BLAS does not take."""
        left, right = product.operands
        a, x = self._operand(a, left, steps)
        b, y = self._operand(b, right, steps)
        batch, m, n, k = product.batch, product.m, product.n, product.k
        columns, cuts = _pieces(self._limits.processors, batch, m, n, k)
        work = m * n * k // (columns * cuts) // _PER_THREAD
        threads = min(max(work, 1), self._limits.max_threads_per_block)
        blas, dtype = find_blas(), out.dtype.name
        if n > 1 and m > 1:
            steps.launch_entry(
                _MODULE,
                f"blas_matmul_{dtype}",
                ((columns, cuts, batch), threads, 0),
                gemm=blas.gemm[dtype],
                a=a,
                b=b,
                out=out,
                m=m,
                n=n,
                k=k,
                a_batch=x.batch,
                a_leading=x.leading,
                a_transposed=x.transposed,
                b_batch=y.batch,
                b_leading=y.leading,
                b_transposed=y.transposed,
            )
            return
        if n == 1:
            matrix, vector, rows, lies, vectors = a, b, m, x, y
            step = 1 if y.transposed else y.leading
        else:
            matrix, vector, rows, lies, vectors = b, a, n, y, x
            step = x.leading if x.transposed else 1
        steps.launch_entry(
            _MODULE,
            f"blas_matvec_{dtype}",
            ((columns * cuts, 1, batch), threads, 0),
            gemv=blas.gemv[dtype],
            matrix=matrix,
            vector=vector,
            out=out,
            rows=rows,
            columns=k,
            matrix_batch=lies.batch,
            leading=lies.leading,
            transposed=lies.transposed == (n == 1),
            vector_batch=vectors.batch,
            step=step,
        )

    def _operand(self, x: Memory, layout: Layout, steps: Steps) -> tuple[Memory, Operand]:
        """The matrices in a layout for the BLAS; a matrix of several products is copied once."""
        lies = _operand(layout)
        if lies is not None:
            return x, lies
        batch = layout.strides[0]
        count, rows, columns = layout.shape
        each = rows * columns
        apart = Layout((count if batch else 1, rows, columns), layout.strides)
        copied = steps.scratch(apart.size, x.dtype)
        steps.run(COPY, [(x, apart)], (copied, Layout.contiguous(apart.shape)))
        return copied, Operand(each if batch else 0, columns, False)


@lru_cache(maxsize=4096)
def _operand(layout: Layout) -> Operand | None:
    """The layout of matrices for a BLAS; `None` for an unsupported layout."""
    _, rows, columns = layout.shape
    batch, row_stride, column_stride = layout.strides
    # The stride of an axis of one element is never used.
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
    """The numbers of pieces of columns and of rows for the threads.

    A single cut, across the longer axis, costs the least. A square is cut between rows: OpenBLAS
    then packs the right operand for each piece, which took 3 to 6 % less time at 512 and 768.
    """
    work = m * n * k
    each = 2 if work <= _SMALL else 1
    wanted = -(-each * threads // products) if threads > 1 else 1
    pieces = max(1, min(wanted, work // _PIECE))
    return (pieces, 1) if n > m else (1, pieces)
