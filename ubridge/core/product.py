"""A product of matrices as kernels see it, and the interface of these kernels."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from ubridge.core.layout import Layout
from uhal import DType
from uhal.kept import kept_property


@dataclass(frozen=True)
class Product:
    """A batch of products of (m, k) by (k, n).

    Strides are in elements.
    """

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
    def strides(self) -> dict[str, int]:
        """The strides by their names in kernels that take any strides."""
        names = [f"{one}_{axis}" for one in "ab" for axis in ("batch", "row", "column")]
        return {name: getattr(self, name) for name in names}

    @kept_property
    def operands(self) -> tuple[Layout, Layout]:
        """The layouts of a and b: (batch, m, k) and (batch, k, n)."""
        return (
            Layout((self.batch, self.m, self.k), (self.a_batch, self.a_row, self.a_column)),
            Layout((self.batch, self.k, self.n), (self.b_batch, self.b_row, self.b_column)),
        )

    @property
    def layouts(self) -> str | None:
        """Memory order of a and b, or `None`.

        `n` has rows of neighboring elements, `t` columns.
        """
        a = _letter(self.a_row, self.a_column, self.m, self.k)
        b = _letter(self.b_row, self.b_column, self.k, self.n)
        return a + b if a and b else None

    @property
    def pitches(self) -> tuple[int, int]:
        """Elements between lines of neighboring elements, for a and b.

        Only meaningful where `layouts` is not `None`.
        """
        layouts = self.layouts or "nn"
        return (
            self.a_row if layouts[0] == "n" else self.a_column,
            self.b_row if layouts[1] == "n" else self.b_column,
        )


@dataclass(frozen=True)
class MatmulChoice:
    """The kernel chosen for a product, and the reasons."""

    kernel: str
    reason: str
    passed_over: tuple[tuple[str, str], ...] = ()
    """Preferred kernels that cannot take the product, each with the reason."""

    def __str__(self) -> str:
        others = "".join(f"; not {name}: {reason}" for name, reason in self.passed_over)
        return f"{self.kernel}: {self.reason}{others}"


class MatmulKernel(ABC):
    """One line of the table of kernels for products."""

    name: str
    reason: str
    """Reason for preferring this kernel."""

    @abstractmethod
    def refusal(self, product: Product) -> str:
        """Say why the kernel cannot take a product, or ""."""


def _letter(row: int, column: int, rows: int, columns: int) -> str:
    """The letter of a matrix' layout; strides along an axis of one element do not matter."""
    if column == 1 or columns == 1:
        return "n"
    return "t" if row == 1 or rows == 1 else ""
