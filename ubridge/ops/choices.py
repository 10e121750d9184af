"""Choices element by element: by a condition, within bounds, and where elements are NaN."""

from __future__ import annotations

from typing import Any

import numpy as np

from ubridge.core.layout import Shape
from ubridge.core.operand_checks import one_shape, require_one_device
from ubridge.core.promotion import (
    checked_number,
    element_bytes,
    promoted,
    storage_of,
    with_number,
)
from ubridge.definitions.calls import named
from ubridge.definitions.elementwise import COPY, MAXIMUM, MINIMUM, NOT_EQUAL, WHERE
from ubridge.ops.elementwise import binary, plan_conversion, unary
from ubridge.ops.engine import Plan, Value, constant, of_each, run
from ubridge.ops.remembering import remembered
from ubridge.ops.results import require_tensors
from ubridge.ops.strided import Tensor
from uhal import DType, as_dtype
from uhal.dtypes import bool_
from uhal.interop import StreamLike

_CONDITIONS = ("u8", "u32", "i64")
"""Element types of a condition that kernels read."""


def plan_where(condition: Value, x: Any, y: Any) -> Plan:
    """Plan a choice by a condition; x and y are tensors or numbers."""
    require_tensors(WHERE.name, condition)
    dtype = _dtype_of_choice(x, y)
    if storage_of(condition._dtype).name not in _CONDITIONS:
        condition = plan_conversion(condition, bool_)
    operands = [condition]
    for one in (x, y):
        if hasattr(one, "_layout"):
            operands.append(plan_conversion(one, dtype))
        else:
            element = element_bytes(dtype, checked_number(WHERE.name, dtype, one))
            operands.append(constant(condition, dtype, element, Shape()))
    require_one_device(WHERE.name, *operands)
    shape = one_shape(WHERE.name, *(one._layout.shape for one in operands))
    return of_each(WHERE, [one._viewed(one._layout.broadcast_to(shape)) for one in operands], dtype)


@remembered(plan_where)
def where(
    condition: Tensor,
    x: Any,
    y: Any,
    *,
    out: Tensor | None = None,
    stream: StreamLike | None = None,
) -> Tensor:
    """Return `x` where the condition is not 0, else `y`.

    Either may be a number.
    """
    return run(plan_where(condition, x, y), out, stream)


@named
def clip(
    x: Tensor,
    min: Any = None,
    max: Any = None,
    *,
    out: Tensor | None = None,
    stream: StreamLike | None = None,
) -> Tensor:
    """Return the elements, limited to `min` … `max`.

    Both are numbers or tensors. `max` is applied last.

    Either may be None, which bounds nothing. NaN stays NaN.
    """
    require_tensors("clip", x)
    if min is None and max is None:
        return unary(COPY, x, None, out, stream)
    if min is None:
        return binary(MINIMUM, x, max, out, stream)
    if max is None:
        return binary(MAXIMUM, x, min, out, stream)
    return binary(MINIMUM, binary(MAXIMUM, x, min, None, stream), max, out, stream)


@named
def isnan(x: Tensor, *, out: Tensor | None = None, stream: StreamLike | None = None) -> Tensor:
    """Return, as bool, where the elements are NaN."""
    require_tensors("isnan", x)
    return binary(NOT_EQUAL, x, x, out, stream)


def _dtype_of_choice(x: Any, y: Any) -> DType:
    if hasattr(x, "_layout") and hasattr(y, "_layout"):
        return promoted(WHERE.name, x._dtype, y._dtype)
    if hasattr(x, "_layout"):
        return with_number(WHERE.name, x._dtype, y)
    if hasattr(y, "_layout"):
        return with_number(WHERE.name, y._dtype, x)
    return as_dtype(np.result_type(x, y))


__all__ = [
    "clip",
    "isnan",
    "where",
]
