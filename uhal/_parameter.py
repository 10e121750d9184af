"""Facts about one parameter of a kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from uhal.dtypes import DType
from uhal.errors import ArgumentValueError

ParameterKind = Literal["pointer", "scalar", "aggregate", "unknown"]
POINTER_BYTES = 8


@dataclass(frozen=True)
class Parameter:
    """A kernel parameter. `None` stands for an unknown fact."""

    index: int
    name: str | None = None
    kind: ParameterKind = "unknown"
    size: int | None = None
    """Bytes."""
    offset: int | None = None
    """Bytes from the start of the parameter block."""
    dtype: DType | None = None
    """A scalar's type, or the type of a pointer's elements."""
    is_pointer: bool | None = None
    """Follows from `kind`; may be left out."""
    is_const: bool | None = None
    """True when the kernel only reads through the pointer. Unknown counts as written."""
    is_integer: bool | None = None
    """True for an integer scalar of unknown sign, whose dtype is unknown."""
    source: str = "declaration"
    """Source of the facts."""

    def __post_init__(self) -> None:
        is_pointer = None if self.kind == "unknown" else self.kind == "pointer"
        if self.is_pointer not in (None, is_pointer):
            raise ArgumentValueError(
                f"parameter {self.index} is of kind {self.kind}, is_pointer={self.is_pointer}"
            )
        object.__setattr__(self, "is_pointer", is_pointer)

    @property
    def code(self) -> str:
        """One character for the compiled lane.

        Returns a scalar's dtype code, `n` or `N` for integers of unknown sign of 4 or 8 bytes, or
        `P` for a pointer. Otherwise `V` for an aggregate, `S` for other scalars of unknown dtype,
        `U` if unknown.
        """
        if self.kind == "scalar" and self.dtype is not None:
            return self.dtype.code
        if self.is_integer and self.size in (4, 8):
            return "n" if self.size == 4 else "N"
        return {"pointer": "P", "aggregate": "V", "scalar": "S", "unknown": "U"}[self.kind]

    @property
    def type_text(self) -> str:
        """The type in the grammar's spelling: `u32`, `const f32*`, `integer[4]`, `bytes[12]`."""
        if self.kind == "pointer":
            const = "const " if self.is_const else ""
            return f"{const}{self.dtype}*" if self.dtype is not None else f"{const}ptr"
        if self.kind == "scalar" and self.dtype is not None:
            return self.dtype.name
        word = {"aggregate": "bytes", "scalar": "scalar"}.get(self.kind, "unknown")
        word = "integer" if self.is_integer else word
        return word if self.size is None else f"{word}[{self.size}]"

    def __str__(self) -> str:
        return self.type_text if self.name is None else f"{self.type_text} {self.name}"
