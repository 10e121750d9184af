"""Kernels that multiply matrices: what each takes, and how it is launched.

They compute the same, and differ in what they take and in what they are good at. `matmul_table`
puts them in order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ubridge.images import load_module
from ubridge.op_table import OPS
from uhal import DeviceBuffer, DType
from uhal.errors import InvalidImageError
from uhal.interop import StreamLike

if TYPE_CHECKING:
    from ubridge.executor import DeviceExecutor

TENSOR_MODULE = "matmul_tensor"
"""Of the kernels for tensor cores."""
_TENSOR_DTYPES = ("bf16", "f16")
_LEAST_OF_TENSOR_TILES = 16
"""Rows, columns and summed elements, as many as one instruction multiplies."""


@dataclass(frozen=True)
class Product:
    """Products of (m, k) by (k, n), as many as `batch`. Strides are in elements."""

    dtype: DType
    batch: int
    m: int
    n: int
    k: int
    a_batch: int
    a_row: int
    a_column: int
    b_batch: int
    b_row: int
    b_column: int

    @property
    def layouts(self) -> str | None:
        """How a and b lie: `n` for rows of neighboring elements, `t` for columns; else `None`."""
        a = _letter(self.a_row, self.a_column, self.m, self.k)
        b = _letter(self.b_row, self.b_column, self.k, self.n)
        return a + b if a and b else None

    @property
    def pitches(self) -> tuple[int, int]:
        """From line to line of neighboring elements, of a and b; `layouts` is not `None`."""
        layouts = self.layouts or "nn"
        return (
            self.a_row if layouts[0] == "n" else self.a_column,
            self.b_row if layouts[1] == "n" else self.b_column,
        )


@dataclass(frozen=True)
class MatmulChoice:
    """Which kernel takes a product, and why not another."""

    kernel: str
    reason: str
    passed_over: tuple[tuple[str, str], ...] = ()
    """Kernels that come first where they can, each with what it cannot."""

    def __str__(self) -> str:
        others = "".join(f"; not {name}: {reason}" for name, reason in self.passed_over)
        return f"{self.kernel}: {self.reason}{others}"


class MatmulKernel(ABC):
    """One line of the table."""

    name: str
    reason: str
    """Why it is taken when it can be."""

    @abstractmethod
    def refusal(self, product: Product) -> str:
        """Say why it cannot take a product; nothing when it can."""

    @abstractmethod
    def launch(
        self,
        product: Product,
        a: DeviceBuffer,
        b: DeviceBuffer,
        out: DeviceBuffer,
        stream: StreamLike | None,
    ) -> bool:
        """Enqueue a product it takes. Buffers begin with the first elements.

        False, with nothing enqueued, when it turns out not to take what lies at these addresses.
        """

    def planned(self, product: Product) -> Callable[..., DeviceBuffer] | None:
        """Return what enqueues a product it takes in one launch, as `Plan.launch`; else `None`."""
        return None


class TiledProducts(MatmulKernel):
    """ubridge's kernel for every device: tiles of 64 x 64, any strides, any floats."""

    name = "tiled"
    reason = "takes any sizes, strides and floats"
    _op = OPS["matmul"]

    def __init__(self, executor: DeviceExecutor) -> None:
        self._executor = executor

    def refusal(self, product: Product) -> str:
        """Say nothing: it takes all."""
        return ""

    def launch(
        self,
        product: Product,
        a: DeviceBuffer,
        b: DeviceBuffer,
        out: DeviceBuffer,
        stream: StreamLike | None,
    ) -> bool:
        """Enqueue a product."""
        kernel = self._executor.kernel(self._op, product.dtype)
        arguments = (
            *(a, b, out, product.m, product.n, product.k),
            *(product.a_batch, product.a_row, product.a_column),
            *(product.b_batch, product.b_row, product.b_column),
            product.m * product.n,
        )
        kernel.launch(arguments, stream, product.m, product.n, product.batch)
        return True


class TensorProducts(MatmulKernel):
    """ubridge's kernels for tensor cores: halves in lines of neighboring elements."""

    def __init__(self, executor: DeviceExecutor, tile: int, tiles: int) -> None:
        """Take products of at least `tiles` tiles of `tile` x `tile`."""
        self.name = f"tensor_{tile}"
        self.reason = f"tensor cores, in tiles of {tile} x {tile}"
        self._executor = executor
        self._tile = tile
        self._tiles = tiles
        self._missing: str | None = None

    def refusal(self, product: Product) -> str:
        """Say what keeps a product from tensor cores, or from tiles this large."""
        if product.dtype.name not in _TENSOR_DTYPES:
            return f"for {' and '.join(_TENSOR_DTYPES)}, not {product.dtype}"
        if min(product.m, product.n, product.k) < _LEAST_OF_TENSOR_TILES:
            return f"a size below {_LEAST_OF_TENSOR_TILES}"
        if product.layouts is None:
            return "neither rows nor columns of neighboring elements"
        count = product.batch * -(-product.m // self._tile) * -(-product.n // self._tile)
        if count < self._tiles:
            return f"only {count} tiles for {self._tiles} processors"
        return self._unavailable()

    def launch(
        self,
        product: Product,
        a: DeviceBuffer,
        b: DeviceBuffer,
        out: DeviceBuffer,
        stream: StreamLike | None,
    ) -> bool:
        """Enqueue a product."""
        op = OPS[f"matmul_{self.name}_{product.layouts}"]
        a_pitch, b_pitch = product.pitches
        arguments = (
            *(a, b, out, product.m, product.n, product.k),
            *(product.a_batch, a_pitch, product.b_batch, b_pitch, product.m * product.n),
        )
        kernel = self._executor.kernel(op, product.dtype)
        kernel.launch(arguments, stream, product.m, product.n, product.batch)
        return True

    def _unavailable(self) -> str:
        if self._missing is None:
            self._missing = ""
            try:
                load_module(TENSOR_MODULE, device=self._executor.device)
            except InvalidImageError as error:
                self._missing = " ".join(str(error).split())
        return self._missing


def _letter(row: int, column: int, rows: int, columns: int) -> str:
    """How a matrix lies; strides along an axis of one element say nothing."""
    if column == 1 or columns == 1:
        return "n"
    return "t" if row == 1 or rows == 1 else ""
