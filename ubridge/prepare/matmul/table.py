"""Which kernel multiplies matrices on a device: one table, in order.

A product goes to the first kernel of the table that takes it; `MatmulChoice` says which and why,
and `MatmulKernels.launched` counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

from ubridge.core.product import MatmulChoice, MatmulKernel, Product
from ubridge.device.executor import DeviceExecutor
from ubridge.device.images import modules
from ubridge.prepare.matmul.blas_products import BlasProducts
from ubridge.prepare.matmul.cublaslt import CublasLtProducts
from ubridge.prepare.matmul.kernels import TENSOR_MODULE, TensorProducts, TiledProducts
from ubridge.prepare.matmul.packed_products import PackedProducts
from uhal import DeviceBuffer
from uhal.interop import StreamLike


class MatmulKernels:
    """The kernels of one device in order of preference."""

    def __init__(self, executor: DeviceExecutor) -> None:
        device = executor.device
        self.launched: Counter[str] = Counter()
        """Products enqueued, by the name of the kernel. Concurrent ones may be counted once."""
        self._most = device.limits.max_grid[2]
        self.table: tuple[MatmulKernel, ...] = (TiledProducts(executor),)
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
            self.table = (BlasProducts(executor), PackedProducts(executor), *self.table)

    def leave_out_library(self) -> None:
        """Choose among uhal's own kernels only."""
        self.table = tuple(one for one in self.table if one is not self._library)
        self._library = None

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

    def launch(
        self,
        product: Product,
        a: DeviceBuffer,
        b: DeviceBuffer,
        out: DeviceBuffer,
        stream: StreamLike | None,
    ) -> None:
        """Enqueue a product. Buffers begin with the first elements."""
        results = product.m * product.n
        for first in range(0, product.batch, self._most):
            part, operands = product, (a, b, out)
            if product.batch > self._most:
                part = replace(product, batch=min(self._most, product.batch - first))
                starts = (first * product.a_batch, first * product.b_batch, first * results)
                operands = (a[starts[0] :], b[starts[1] :], out[starts[2] :])
            kernel = next(one for one in self._takers(part) if one.launch(part, *operands, stream))
            self.launched[kernel.name] += 1

    def planned(self, product: Product) -> Callable[..., DeviceBuffer] | None:
        """Return what enqueues a product as `launch` does, where one launch of a kernel is all."""
        kernel = next(self._takers(product))
        launch = kernel.planned(product) if product.batch <= self._most else None
        if launch is None:
            return None
        enqueue, launched, name = launch, self.launched, kernel.name

        def counted(
            stream: StreamLike | None, out: DeviceBuffer | None, a: DeviceBuffer, b: DeviceBuffer
        ) -> DeviceBuffer:
            made = enqueue(stream, out, a, b)
            launched[name] += 1
            return made

        return counted

    def _takers(self, product: Product) -> Iterator[MatmulKernel]:
        return (one for one in self.table if not one.refusal(product))

    def close(self) -> None:
        """Give back what the kernels hold besides memory. The device is still there."""
        if self._library is not None:
            self._library.close()
