"""Choices element by element: by a condition, within bounds, and where elements are NaN."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ubridge.core.layout import Shape
from ubridge.core.operand_checks import require_one_device
from ubridge.core.promotion import (
    checked_number,
    element_bytes,
    promoted,
    storage_of,
    with_number,
)
from ubridge.definitions.elementwise import CLIP, COPY, ISNAN, MAXIMUM, MINIMUM, WHERE
from ubridge.ops.elementwise import broadcast, plan_binary, plan_conversion, plan_unary
from ubridge.ops.engine import Plan, Value, ask, constant, contiguous, of_each, run
from ubridge.ops.logic import plan_kind
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
    return of_each(WHERE, broadcast(WHERE.name, *operands), dtype)


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


def plan_clip(x: Value, min: Any = None, max: Any = None) -> Value:
    """Plan a lower limit, then an upper limit; two numbers take one launch."""
    require_tensors(CLIP.name, x)
    if min is None and max is None:
        return plan_unary(COPY, x)
    if min is None or max is None:
        return plan_binary(MAXIMUM, x, min) if max is None else plan_binary(MINIMUM, x, max)
    if not (hasattr(min, "_layout") or hasattr(max, "_layout")):
        dtype = with_number(CLIP.name, with_number(CLIP.name, x._dtype, min), max)
        if dtype.name in CLIP.dtypes:
            bounds = tuple([float(checked_number(CLIP.name, dtype, one)) for one in (min, max)])
            return ask(CLIP, (contiguous(plan_conversion(x, dtype)),), dtype, numbers=bounds)
    return plan_binary(MINIMUM, plan_binary(MAXIMUM, x, min), max)


@remembered(plan_clip)
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

    `None` sets no limit. NaN stays NaN.
    """
    return run(plan_clip(x, min, max), out, stream)


_plan_isnan = partial(plan_kind, ISNAN, of_integers=0)


@remembered(_plan_isnan)
def isnan(x: Tensor, *, out: Tensor | None = None, stream: StreamLike | None = None) -> Tensor:
    """Return True for each element that is NaN, else False."""
    return run(_plan_isnan(x), out, stream)


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
