"""Which kernel multiplies matrices on a device: one table, in order.

A product goes to the first kernel of the table that takes it; `MatmulChoice` says which and why,
and `DeviceExecutor.matmul_launches` counts.
"""

from __future__ import annotations

from dataclasses import replace

from ubridge.core.product import MatmulChoice, Product
from ubridge.device.executor import DeviceExecutor
from ubridge.device.images import modules
from ubridge.prepare.convention import Convention
from ubridge.prepare.matmul.blas_products import BlasProducts
from ubridge.prepare.matmul.cublaslt import CublasLtProducts
from ubridge.prepare.matmul.kernels import (
    TENSOR_MODULE,
    ProductKernel,
    TensorProducts,
    TiledProducts,
)
from ubridge.prepare.matmul.packed_products import PackedProducts
from ubridge.prepare.steps import Memory, Steps


class MatmulKernels:
    """The kernels of one device in order of preference."""

    def __init__(self, executor: DeviceExecutor, convention: Convention) -> None:
        device = executor.device
        self._most = device.limits.max_grid[2]
        self.table: tuple[ProductKernel, ...] = (TiledProducts(),)
        """In order of preference; the last takes everything."""
        self._library = CublasLtProducts(executor) if device.backend == "cuda" else None
        if TENSOR_MODULE in modules(device.backend):
            self.table = (
                TensorProducts(executor, 128, device.limits.processors),
                TensorProducts(executor, 64, 1),
                *self.table,
            )
        if self._library is not None:
            self.table = (self._library, *self.table)
        if device.backend == "host":
            own = (BlasProducts(executor, convention), PackedProducts(executor))
            self.table = (*own, *self.table)

    def choose(self, product: Product) -> MatmulChoice:
        """Say which kernel a product goes to.

        The next one takes it if a library then has no algorithm for operands that lie askew.
        """
        passed_over: list[tuple[str, str]] = []
        for kernel in self.table:
            refusal = kernel.refusal(product)
            if not refusal:
                return MatmulChoice(kernel.name, kernel.reason, tuple(passed_over))
            passed_over.append((kernel.name, refusal))
        raise AssertionError("the last kernel takes everything")

    def prepare(self, product: Product, a: Memory, b: Memory, out: Memory, steps: Steps) -> None:
        """Add the steps of a product. Operands begin with the first elements."""
        kernel = self._taker(product, steps.question.is_capturable)
        # Whether a library takes it turns out when it sees the addresses; it counts itself.
        steps.taken_by = "" if kernel.is_library else kernel.name
        results = product.m * product.n
        # A library has no grid that could be too long.
        most = product.batch if kernel.is_library else self._most
        for first in range(0, product.batch, most):
            part = product
            if product.batch > most:
                part = replace(product, batch=min(most, product.batch - first))
            starts = (first * product.a_batch, first * product.b_batch, first * results)
            kernel.prepare(part, a[starts[0] :], b[starts[1] :], out[starts[2] :], steps)

    def _taker(self, product: Product, is_capturable: bool) -> ProductKernel:
        return next(
            one
            for one in self.table
            if not (is_capturable and one.is_library) and not one.refusal(product)
        )

    def close(self) -> None:
        """Give back what the kernels hold besides memory. The device is still there."""
        if self._library is not None:
            self._library.close()
