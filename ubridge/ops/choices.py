"""Choices element by element: by a condition, within bounds, and where elements are NaN."""

from __future__ import annotations

from typing import Any

import numpy as np

from ubridge.buffers import launches
from ubridge.core.calls import named
from ubridge.core.layout import Layout
from ubridge.core.op_table import OPS
from ubridge.core.operand_checks import one_shape, require_one_device
from ubridge.core.promotion import checked_number, element_bytes, promoted, with_number
from ubridge.device.executor import Answer
from ubridge.device.remembered import TensorData, launched, remembered
from ubridge.ops import answers
from ubridge.ops.elementwise import binary, converted, unary
from ubridge.ops.results import delivered, require_tensors
from ubridge.ops.strided import StridedTensor, Tensor, storage_of
from uhal import DeviceBuffer, DType, as_dtype
from uhal.dtypes import bool_
from uhal.interop import StreamLike

_COPY = OPS["copy"]
_MAXIMUM = OPS["maximum"]
_MINIMUM = OPS["minimum"]
_NOT_EQUAL = OPS["not_equal"]
_WHERE = OPS["where"]
_CONDITIONS = ("u8", "u32", "i64")
"""Element types of a condition that kernels read."""


def _asked_to_choose(condition: TensorData, x: Any = None, y: Any = None) -> Answer | None:
    """Ask for a choice among two tensors of one dtype."""
    if not isinstance(x, StridedTensor) or not isinstance(y, StridedTensor):
        return None
    executor, dtype, kind = condition._executor, x._dtype, condition._dtype
    if x._executor is not executor or y._executor is not executor or y._dtype is not dtype:
        return None
    layouts = (condition._layout, x._layout, y._layout)
    key = (_WHERE, kind.code, dtype.code, layouts[0].words, layouts[1].words, layouts[2].words)
    stored = storage_of(kind)
    if stored.name not in _CONDITIONS:
        return None
    return executor.answer(key, answers.where, stored, dtype, *layouts)


@remembered(_asked_to_choose)
def where(
    condition: Tensor,
    x: Any,
    y: Any,
    *,
    out: Tensor | None = None,
    stream: StreamLike | None = None,
) -> Tensor:
    """Return `x` where the condition is not 0, else `y`; either may be a number."""
    require_tensors("where", condition)
    found = _asked_to_choose(condition, x, y) if out is None else None
    if found is not None:
        made: Tensor = launched(found, stream, condition, x, y)
        return made
    dtype = _dtype_of_choice(x, y)
    executor = condition._executor
    kind = storage_of(condition._dtype)
    if kind.name not in _CONDITIONS:
        condition = converted(condition, bool_, stream=stream)
    operands = [condition]
    for operand in (x, y):
        if isinstance(operand, StridedTensor):
            tensor: Any = operand
            operands.append(converted(tensor, dtype, stream=stream))
        else:
            value = checked_number("where", dtype, operand)
            key = (storage_of(dtype).name, element_bytes(dtype, value))
            constant = executor.constants.get(key)
            operands.append(condition._made(constant, Layout.contiguous(()), dtype))
    require_one_device("where", *operands)
    shape = one_shape("where", *(one._layout.shape for one in operands))
    buffers = [one._buffer for one in operands]
    layouts = [one._layout.broadcast_to(shape) for one in operands]

    def enqueue(output: DeviceBuffer | None) -> DeviceBuffer:
        return launches.launch_ternary(
            buffers[0], layouts[0], buffers[1], layouts[1], buffers[2], layouts[2],
            out=output, stream=stream, executor=executor,
        )  # fmt: skip

    return delivered(_WHERE, shape, dtype, out, tuple(operands), stream, enqueue)


@named
def clip(
    x: Tensor,
    min: Any = None,
    max: Any = None,
    *,
    out: Tensor | None = None,
    stream: StreamLike | None = None,
) -> Tensor:
    """Return the elements, but none below `min` and then none above `max`: numbers or tensors.

    Either may be None, which bounds nothing. NaN stays NaN.
    """
    require_tensors("clip", x)
    if min is None and max is None:
        return unary(_COPY, x, None, out, stream)
    if min is None:
        return binary(_MINIMUM, x, max, out, stream)
    if max is None:
        return binary(_MAXIMUM, x, min, out, stream)
    return binary(_MINIMUM, binary(_MAXIMUM, x, min, None, stream), max, out, stream)


@named
def isnan(x: Tensor, *, out: Tensor | None = None, stream: StreamLike | None = None) -> Tensor:
    """Return, as bool, where the elements are NaN."""
    require_tensors("isnan", x)
    return binary(_NOT_EQUAL, x, x, out, stream)


def _dtype_of_choice(x: Any, y: Any) -> DType:
    if isinstance(x, StridedTensor) and isinstance(y, StridedTensor):
        return x._dtype if x._dtype is y._dtype else promoted("where", x._dtype, y._dtype)
    if isinstance(x, StridedTensor):
        return with_number("where", x._dtype, y)
    if isinstance(y, StridedTensor):
        return with_number("where", y._dtype, x)
    return as_dtype(np.result_type(x, y))
