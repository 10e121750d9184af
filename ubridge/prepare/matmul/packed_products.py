"""Products of matrices on the host by ubridge's own kernels: f16, bf16, and f32 without a BLAS.

OpenBLAS's wheel has no products of f16 and bf16. The kernels take operands at any strides, pack
parts of them, and multiply by the best instructions of the CPU. `matmul_packed` is compiled for
more levels than other kernels (`uhal/images/cpu_level.py`).
"""

from __future__ import annotations

from functools import lru_cache
from math import prod

from ubridge.core.lowering import Memory, Steps
from ubridge.core.product import Product
from ubridge.device.executor import DeviceExecutor
from ubridge.device.images import load_module
from ubridge.prepare.matmul.kernels import ProductKernel
from uhal import DeviceLimits
from uhal.errors import NotFoundError
from uhal.images import cpu_level
from uhal.kept import kept_property

MATRICES = "matmul_packed"
VECTORS = "matvec"

_PIECE = 2**20
"""Least multiplications of a separate piece."""
_PIECE_OF_LINES = 2**17
"""Least multiplications of a piece of a product by a vector, which is bound by memory."""
_PER_THREAD = 2**16
"""Multiplications of a work-item; the runtime recognizes short launches by their work-items."""


class PackedProducts(ProductKernel):
    """Products of parts that are packed for the cache; vectors are not packed."""

    name = "packed"
    dtypes = ("bf16", "f16", "f32")

    def __init__(self, executor: DeviceExecutor) -> None:
        self._executor = executor

    @property
    def reason(self) -> str:  # type: ignore[override]
        """The instruction level it is compiled for."""
        return f"sums in f32, {self._found[1]}"

    def refusal(self, product: Product) -> str:
        """Say why the kernels cannot take a product: its dtype, or a missing build."""
        if product.dtype.name not in self.dtypes:
            return f"for {', '.join(self.dtypes)}, not {product.dtype}"
        return self._found[0]

    @property
    def level(self) -> int:
        """Level n of x86-64-vn: the instructions of the kernels; 0 on other machines."""
        return 0 if self._found[0] else cpu_level.best_level(MATRICES).number

    def prepare(self, product: Product, a: Memory, b: Memory, out: Memory, steps: Steps) -> None:
        """Add its launch."""
        batch, m, n, k = product.batch, product.m, product.n, product.k
        limits = self._executor.device.limits
        dtype = product.dtype
        if m > 1 and n > 1:
            columns, rows = product_pieces(limits.processors, batch, m, n, k)
            steps.launch_entry(
                MATRICES,
                f"{MATRICES}_{dtype}",
                ((columns, rows, batch), work_items(limits, m * n * k // (columns * rows)), 0),
                a=a,
                b=b,
                out=out,
                m=m,
                n=n,
                k=k,
                **product.strides,
            )
            return
        if n == 1:
            x, vector, lines, x_batch, vector_batch = a, b, m, product.a_batch, product.b_batch
            line_step, depth_step, step = product.a_row, product.a_column, product.b_row
        else:
            x, vector, lines, x_batch, vector_batch = b, a, n, product.b_batch, product.a_batch
            line_step, depth_step, step = product.b_column, product.b_row, product.a_column
        if depth_step == 1:
            # All batches together have the number of pieces in `pieces_of_lines`.
            most = -(-16 * limits.processors // batch) if limits.processors > 1 else 1
            pieces = max(1, min(most, m * n * k // _PIECE_OF_LINES))
        else:
            pieces = prod(product_pieces(limits.processors, batch, m, n, k))
        steps.launch_entry(
            VECTORS,
            f"{VECTORS}_{dtype}",
            ((pieces, 1, batch), work_items(limits, m * n * k // pieces), 0),
            x=x,
            vector=vector,
            out=out,
            lines=lines,
            depth=k,
            x_batch=x_batch,
            line_step=line_step,
            depth_step=depth_step,
            vector_batch=vector_batch,
            step=step,
        )

    @kept_property
    def _found(self) -> tuple[str, str]:
        """Return why the kernels are missing, else an empty text, and their instruction level."""
        try:
            chosen = load_module(MATRICES, device=self._executor.device).chosen
        except NotFoundError as error:
            return " ".join(str(error).split()), ""
        return "", chosen.description if chosen is not None else ""


def work_items(limits: DeviceLimits, multiplications: int) -> int:
    """Return the work-items of a block that makes `multiplications`."""
    return min(max(multiplications // _PER_THREAD, 1), limits.max_threads_per_block)


@lru_cache(maxsize=4096)
def product_pieces(threads: int, products: int, m: int, n: int, k: int) -> tuple[int, int]:
    """Return the numbers of pieces of columns and of rows for the threads.

    Each piece packs its own rows and columns, so the chosen cut packs the least.
    """
    wanted = -(-2 * threads // products) if threads > 1 else 1
    wanted = max(1, min(wanted, m * n * k // _PIECE))
    cuts = ((-(-wanted // rows), rows) for rows in range(1, wanted + 1))
    return min(cuts, key=lambda cut: cut[0] * m + cut[1] * n)
