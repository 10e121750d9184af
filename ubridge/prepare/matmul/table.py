"""Which kernel multiplies matrices on a device: one table, in order.

A product goes to the first kernel of the table that takes it; `MatmulChoice` says which and why,
and `DeviceExecutor.matmul_launches` counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ubridge.core.product import MatmulChoice, MatmulKernel, Product
from ubridge.device.executor import DeviceExecutor
from ubridge.prepare.convention import Convention
from ubridge.prepare.matmul.blas_products import BlasProducts
from ubridge.prepare.matmul.cublaslt import CublasLtProducts
from ubridge.prepare.matmul.kernels import ProductKernel, TensorProducts, TiledProducts
from ubridge.prepare.matmul.packed_products import PackedProducts
from ubridge.prepare.steps import Memory, Steps


def cuda_products(executor: DeviceExecutor, convention: Convention) -> Sequence[ProductKernel]:
    """Return the kernels of NVIDIA's devices: the library first, then tensor cores."""
    return (
        CublasLtProducts(executor),
        TensorProducts(executor, 128, executor.device.limits.processors),
        TensorProducts(executor, 64, 1),
    )


def host_products(executor: DeviceExecutor, convention: Convention) -> Sequence[ProductKernel]:
    """Return the kernels of CPUs: a BLAS, then ours."""
    return BlasProducts(executor, convention), PackedProducts(executor)


class MatmulKernels:
    """The kernels of one device in order of preference: the backend's, then `tiled`."""

    def __init__(self, executor: DeviceExecutor, convention: Convention) -> None:
        self._most = executor.device.limits.max_grid[2]
        brought = executor.backend_kernels.product_kernels(executor, convention)
        self.table: tuple[ProductKernel, ...] = (*_checked(brought), TiledProducts())
        """In order of preference; the last takes everything."""

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
        """Add the steps of a product. Operands begin with their first element."""
        kernel = self._taker(product, steps.question.is_capturable)
        # A library may refuse the addresses at each call, so it counts its products itself.
        steps.taken_by = "" if kernel.is_library else kernel.name
        results = product.m * product.n
        # Only grids of kernels can be too long.
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
        for kernel in self.table:
            kernel.close()


def _checked(brought: Sequence[MatmulKernel]) -> Iterator[ProductKernel]:
    for kernel in brought:
        if not isinstance(kernel, ProductKernel):
            raise TypeError(
                f"product_kernels: expected ProductKernels, got {type(kernel).__name__}"
            )
        yield kernel
