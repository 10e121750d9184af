"""ubridge's kernels for the skeleton: the host's kernels, and another matrix product.

A backend with images of its own names their folder instead of `HostImages()`.
"""

from __future__ import annotations

from collections.abc import Sequence

from ubridge.backends import (
    CANDLE,
    BackendKernels,
    DeviceExecutor,
    HostImages,
    Memory,
    Product,
    ProductKernel,
    Steps,
)


class Strips(ProductKernel):
    """A kernel for plain matrices of f32, from the demo network."""

    name = "strips"
    reason = "plain matrices of f32"

    def refusal(self, product: Product) -> str:
        """Return why the kernel does not support the product, or an empty string."""
        plain = product.layouts == "nn" and product.pitches == (product.k, product.n)
        plain = plain and product.batch == 1 and product.dtype.name == "f32"
        return "" if plain else "strides, several products or another dtype"

    def prepare(self, product: Product, a: Memory, b: Memory, out: Memory, steps: Steps) -> None:
        """Add the kernel's launch: a block of 64 for each tile of 64 rows by 16 columns."""
        m, n, k = product.m, product.n, product.k
        name, geometry = "batch_matmul_legacy", ((-(-n // 16), -(-m // 64), 1), 64, 0)
        steps.launch_entry(name, name, geometry, a=a, b=b, out=out, m=m, k=k, n=n)


def products(executor: DeviceExecutor) -> Sequence[ProductKernel]:
    return (Strips(),)


KERNELS = BackendKernels(CANDLE, HostImages(), products)
