"""Truth of elements, their signs and kinds, and bits.

Functions of truth take tensors of any dtype, whose elements are true unless they are 0. Numbers may
stand for the second tensor.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from ubridge.core.operation import Op
from ubridge.definitions.elementwise import (
    BITWISE_AND,
    BITWISE_OR,
    BITWISE_XOR,
    EQUAL,
    ISFINITE,
    ISINF,
    LESS,
    SIGNBIT,
)
from ubridge.ops.elementwise import plan_binary, plan_conversion
from ubridge.ops.engine import Value, filled, of_each, run
from ubridge.ops.remembering import remembered
from ubridge.ops.results import require_tensors
from ubridge.ops.strided import Tensor
from uhal.dtypes import bool_, f32
from uhal.errors import ArgumentTypeError
from uhal.interop import StreamLike


def _truth(name: str, x: Any) -> Any:
    """Plan whether elements are not 0; a number becomes a bool."""
    if isinstance(x, (bool, int, float)):
        return bool(x)
    require_tensors(name, x)
    return plan_conversion(x, bool_)


def _plan_logical(name: str, op: Op, x: Value, y: Any) -> Value:
    require_tensors(name, x)
    return plan_binary(op, _truth(name, x), _truth(name, y))


_plan_and = partial(_plan_logical, "logical_and", BITWISE_AND)
_plan_or = partial(_plan_logical, "logical_or", BITWISE_OR)
_plan_xor = partial(_plan_logical, "logical_xor", BITWISE_XOR)


@remembered(_plan_and)
def logical_and(
    x: Tensor, y: Any, *, out: Tensor | None = None, stream: StreamLike | None = None
) -> Tensor:
    """Return True where both elements are not 0."""
    return run(_plan_and(x, y), out, stream)


@remembered(_plan_or)
def logical_or(
    x: Tensor, y: Any, *, out: Tensor | None = None, stream: StreamLike | None = None
) -> Tensor:
    """Return True where either element is not 0."""
    return run(_plan_or(x, y), out, stream)


@remembered(_plan_xor)
def logical_xor(
    x: Tensor, y: Any, *, out: Tensor | None = None, stream: StreamLike | None = None
) -> Tensor:
    """Return True where exactly one of the two elements is 0."""
    return run(_plan_xor(x, y), out, stream)


def _plan_not(x: Value) -> Value:
    require_tensors("logical_not", x)
    return plan_binary(EQUAL, x, False)


@remembered(_plan_not)
def logical_not(
    x: Tensor, *, out: Tensor | None = None, stream: StreamLike | None = None
) -> Tensor:
    """Return True where the element is 0."""
    return run(_plan_not(x), out, stream)


def _plan_invert(x: Value) -> Value:
    require_tensors("bitwise_invert", x)
    if x._dtype is bool_:
        return _plan_not(x)
    if x._dtype.kind == "float":
        raise ArgumentTypeError(
            f"bitwise_invert: expected integers or booleans, got {x._dtype}. Cast first, for "
            'example x.astype("i64").'
        )
    return plan_binary(BITWISE_XOR, x, -1 if x._dtype.kind == "int" else x._dtype.max)


@remembered(_plan_invert)
def bitwise_invert(
    x: Tensor, *, out: Tensor | None = None, stream: StreamLike | None = None
) -> Tensor:
    """Return the elements with every bit flipped; booleans negated."""
    return run(_plan_invert(x), out, stream)


def plan_kind(op: Op, x: Value, of_integers: int) -> Value:
    """Plan a question about floats; the answer for all integers is given."""
    require_tensors(op.name, x)
    if x._dtype.kind != "float":
        return filled(x, bool_, x._layout.shape, of_integers)
    asked = x if x._dtype.name in op.dtypes else plan_conversion(x, f32)
    return of_each(op, (asked,), bool_)


def _plan_signbit(x: Value) -> Value:
    require_tensors(SIGNBIT.name, x)
    is_float = x._dtype.kind == "float"
    return plan_kind(SIGNBIT, x, 0) if is_float else plan_binary(LESS, x, 0)


@remembered(_plan_signbit)
def signbit(x: Tensor, *, out: Tensor | None = None, stream: StreamLike | None = None) -> Tensor:
    """Return True for elements with a minus sign.

    -0.0 and a negative NaN have a minus sign.
    """
    return run(_plan_signbit(x), out, stream)


_plan_isfinite = partial(plan_kind, ISFINITE, of_integers=1)
_plan_isinf = partial(plan_kind, ISINF, of_integers=0)


@remembered(_plan_isfinite)
def isfinite(x: Tensor, *, out: Tensor | None = None, stream: StreamLike | None = None) -> Tensor:
    """Return True for each element that is neither infinite nor NaN."""
    return run(_plan_isfinite(x), out, stream)


@remembered(_plan_isinf)
def isinf(x: Tensor, *, out: Tensor | None = None, stream: StreamLike | None = None) -> Tensor:
    """Return True for each element that is infinite."""
    return run(_plan_isinf(x), out, stream)


__all__ = [
    "bitwise_invert",
    "isfinite",
    "isinf",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "signbit",
]
