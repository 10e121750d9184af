"""Types of values in registers and in memory of a kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from uhal.dtypes import as_dtype

Kind = Literal["pred", "int", "uint", "float"]


class Type:
    """A type of values. A call converts: `f32(i)`. A number becomes a constant.

    `i8` and `u8` exist in memory only: a load converts them to `i32` or `u32`. Equal types are the
    same object.
    """

    def __init__(self, name: str, kind: Kind, bits: int, register: int | None = None) -> None:
        self.name = name
        self.kind = kind
        self.bits = bits
        """Bits in memory."""
        letter = {"int": "s", "uint": "u", "pred": "pred"}.get(kind, "")
        self.ptx = name if kind in ("float", "pred") else f"{letter}{bits}"
        """The name in PTX."""
        self.register = "pred" if kind == "pred" else f"b{register or bits}"
        """Register class of the type, also the type's name in untyped instructions."""

    @property
    def bytes(self) -> int:
        """Bytes of one element in memory."""
        return self.bits // 8

    @property
    def is_float(self) -> bool:
        """Say whether it is a floating point type."""
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        """Say whether it is an integer type; a predicate is not."""
        return self.kind in ("int", "uint")

    @property
    def value_type(self) -> Type:
        """The type of a loaded value: the type itself, or 32 bits for a byte."""
        return self if self.bits != 8 else (i32 if self.kind == "int" else u32)

    @property
    def in_memory(self) -> str:
        """The type's spelling in loads and stores."""
        return self.register if self.bits == 16 and self.is_float else self.ptx

    def __call__(self, value: Any) -> Any:
        """Convert a value or a number to a value; floats become integers by truncation."""
        return Type.convert(value, self)

    convert: Callable[[object, Type], Any]
    """Conversion in a call; set by conversions.py, which imports the types."""

    def holds(self, number: Any) -> bool:
        """Say whether a Python number can become a constant of this type."""
        if isinstance(number, (bool, np.bool_)):
            return self.kind == "pred"
        if self.is_float:
            return isinstance(number, (int, float, np.integer, np.floating))
        if not isinstance(number, (int, np.integer)) or not self.is_integer:
            return False
        low = -(1 << (self.bits - 1)) if self.kind == "int" else 0
        return low <= int(number) < low + (1 << self.bits)

    def pattern(self, number: Any) -> int:
        """The bits of a constant of this type, as an unsigned integer."""
        if not self.is_float:
            return int(number) & ((1 << self.bits) - 1)
        with np.errstate(over="ignore"):
            made = np.float64(number).astype(as_dtype(self.name))
        return int(made.view(f"u{self.bytes}"))

    def __repr__(self) -> str:
        return self.name


pred = Type("pred", "pred", 1)
"""Predicate: true or false, in no memory."""
i8 = Type("i8", "int", 8, 32)
"""Byte in memory that loads as `i32`."""
u8 = Type("u8", "uint", 8, 32)
"""Byte in memory that loads as `u32`."""
i16 = Type("i16", "int", 16)
"""Signed integer of 16 bits."""
u16 = Type("u16", "uint", 16)
"""Unsigned integer of 16 bits."""
i32 = Type("i32", "int", 32)
"""Signed integer of 32 bits."""
u32 = Type("u32", "uint", 32)
"""Unsigned integer of 32 bits."""
i64 = Type("i64", "int", 64)
"""Signed integer of 64 bits."""
u64 = Type("u64", "uint", 64)
"""Unsigned integer of 64 bits."""
f16 = Type("f16", "float", 16)
"""Floating point number of 16 bits, IEEE half precision."""
bf16 = Type("bf16", "float", 16)
"""Floating point number of 16 bits, the upper half of an `f32`."""
f32 = Type("f32", "float", 32)
"""Floating point number of 32 bits."""
f64 = Type("f64", "float", 64)
"""Floating point number of 64 bits."""

TYPES = {one.name: one for one in (i8, u8, i16, u16, i32, u32, i64, u64, f16, bf16, f32, f64)}
"""Every type that memory and parameters may have, by name."""
FLOATS = (f16, bf16, f32, f64)
WORDS = (i32, u32, i64, u64)
INTEGERS = (i16, u16, *WORDS)
"""Types of integers that values have; no bytes."""
NUMBERS = (*INTEGERS, *FLOATS)
SIGNED = (i16, i32, i64, *FLOATS)
SHORTS = (i16, u16, f16, bf16)


def as_type(value: object) -> Type | None:
    """Return the type for a name, a `uhal` or a numpy dtype; `None` for others."""
    if isinstance(value, Type):
        return value
    try:
        return TYPES.get(as_dtype(value).name)
    except TypeError:
        return None
