"""The lowering of `matmul`: a product goes to the first kernel that takes it.

`MatmulChoice` says which kernel and why; `DeviceExecutor.matmul_launches` counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from math import prod

from ubridge.core.layout import Layout, merged_axes
from ubridge.core.lowering import Lowering, LoweringDevice, Memory, Steps
from ubridge.core.product import MatmulChoice, MatmulKernel, Product
from ubridge.core.question import Question
from ubridge.definitions.elementwise import COPY
from ubridge.device.executor import DeviceExecutor
from ubridge.prepare.matmul.blas_products import BlasProducts
from ubridge.prepare.matmul.cublaslt import CublasLtProducts
from ubridge.prepare.matmul.kernels import (
    TILED,
    ProductKernel,
    TensorProducts,
    TensorVectorProducts,
    TiledProducts,
    VectorProducts,
)
from ubridge.prepare.matmul.packed_products import PackedProducts
from uhal import DType


def cuda_products(executor: DeviceExecutor) -> Sequence[ProductKernel]:
    """Return the kernels of NVIDIA's devices: the library first, then tensor cores."""
    return (
        CublasLtProducts(executor),
        TensorVectorProducts(executor),
        TensorProducts(executor, 128, executor.device.limits.processors),
        TensorProducts(executor, 64, 1),
    )


def host_products(executor: DeviceExecutor) -> Sequence[ProductKernel]:
    """Return the kernels of CPUs: a BLAS, then ubridge's own."""
    return BlasProducts(executor), PackedProducts(executor)


class MatmulLowering(Lowering):
    """Lowering of matrix products; `on` gives it the kernels of a device."""

    kernel = TILED

    def __init__(self, choices: Sequence[ProductKernel] = (), most: int = 0) -> None:
        """Create without arguments; `on` sets a device's kernels and longest grid."""
        self._choices = tuple(choices)
        self._most = most
        # Their sums have one order for any number of rows.
        self._invariant = (VectorProducts(any_count=True), TiledProducts())

    def on(self, device: LoweringDevice) -> MatmulLowering:
        """Return the lowering with the device's own kernels, then the kernels for every device."""
        assert isinstance(device, DeviceExecutor)
        brought = device.backend_kernels.products(device)
        return MatmulLowering(
            (*_checked(brought), VectorProducts(), TiledProducts()),
            device.device.limits.max_grid[2],
        )

    @property
    def choices(self) -> Sequence[MatmulKernel]:
        """The kernels in order of preference; the last takes everything."""
        return self._choices

    def explain(self, question: Question) -> MatmulChoice:
        """Say which kernel a product goes to.

        The next kernel takes the product if a library has no algorithm for the alignment of the
        operands.
        """
        product = _product(question.dtype, *_as_multiplied(question))
        passed_over: list[tuple[str, str]] = []
        for kernel in self._choices_of(question):
            refusal = kernel.refusal(product)
            if not refusal:
                return MatmulChoice(kernel.name, kernel.reason, tuple(passed_over))
            passed_over.append((kernel.name, refusal))
        raise AssertionError("the last kernel takes everything")

    def prepare(self, question: Question, steps: Steps) -> None:
        """Add the steps of products, after copies of operands with several strides of batches."""
        given = zip(steps.operands, question.operands, strict=True)
        a, b = [_one_batch_stride(memory, layout, steps) for memory, (_, layout) in given]
        product = _product(question.dtype, *_as_multiplied(question))
        self.multiply(product, a, b, steps.result, steps)

    def multiply(self, product: Product, a: Memory, b: Memory, out: Memory, steps: Steps) -> None:
        """Add the steps of a product. Operands begin with their first element."""
        kernel = next(
            one
            for one in self._choices_of(steps.question)
            if not (steps.question.is_capturable and one.is_library) and not one.refusal(product)
        )
        # A library may refuse the addresses of any call, so its kernel object counts its own
        # products.
        steps.taken_by = "" if kernel.is_library else kernel.name
        results = product.m * product.n
        # Only ubridge's kernels have a grid, which can be too long.
        most = product.batch if kernel.is_library else self._most
        for first in range(0, product.batch, most):
            part = product
            if product.batch > most:
                part = replace(product, batch=min(most, product.batch - first))
            starts = (first * product.a_batch, first * product.b_batch, first * results)
            kernel.prepare(part, a[starts[0] :], b[starts[1] :], out[starts[2] :], steps)

    def _choices_of(self, question: Question) -> Sequence[ProductKernel]:
        return self._invariant if question.has_flag("batch_invariant") else self._choices

    def close(self) -> None:
        """Release the kernels' objects other than memory. The device is still open."""
        for kernel in self._choices:
            kernel.close()


def _checked(brought: Sequence[MatmulKernel]) -> Iterator[ProductKernel]:
    for kernel in brought:
        if not isinstance(kernel, ProductKernel):
            raise TypeError(f"products: expected ProductKernels, got {type(kernel).__name__}")
        yield kernel


def _one_batch_stride(x: Memory, layout: Layout, steps: Steps) -> Memory:
    """The operand, copied if the strides between its matrices differ."""
    if _batch_stride(layout) is not None:
        return x
    out = steps.scratch(layout.size, x.dtype)
    steps.run(COPY, [(x, layout)], (out, Layout.contiguous(layout.shape)))
    return out


def _as_multiplied(question: Question) -> tuple[Layout, Layout]:
    """The layouts that kernels see: a copy's, if there is one."""
    left, right = [
        Layout.contiguous(layout.shape) if _batch_stride(layout) is None else layout
        for _, layout in question.operands
    ]
    return left, right


@lru_cache(maxsize=4096)
def _batch_stride(layout: Layout) -> int | None:
    """The stride from one matrix to the next; `None` if strides differ."""
    merged = merged_axes(layout.shape[:-2], layout.strides[:-2])
    if len(merged) > 1:
        return None
    return merged[0][1] if merged else 0


@lru_cache(maxsize=4096)
def _product(dtype: DType, left: Layout, right: Layout) -> Product:
    *batch, m, k = left.shape
    a_batch, b_batch = (_batch_stride(one) or 0 for one in (left, right))
    strides = (a_batch, *left.strides[-2:], b_batch, *right.strides[-2:])
    return Product(dtype, prod(batch), m, right.shape[-1], k, *strides)
