"""Checks of tensors, of buffers, and of the caller's `out=`."""

from __future__ import annotations

from typing import Any

import numpy as np

from ubridge.core.layout import Shape
from ubridge.core.operation import Op
from ubridge.core.overlap import conflict
from ubridge.core.storage_view import Description
from ubridge.device.spans import span_of
from ubridge.device.tensor_data import TensorData
from uhal import DeviceBuffer, DType
from uhal.errors import ArgumentTypeError, ArgumentValueError, InvalidHandleError
from uhal.frameworks import shares_memory
from uhal.interop import StreamLike


def may_write(operation: Op | str, out: Any, *inputs: Any) -> bool:
    """Return whether an operation on tensors may write to `out` while it reads them.

    A function of several operations may not overwrite any operand.
    """
    if not shares_memory(out._buffer, *[one._buffer for one in inputs]):
        return True
    result, *operands = [span_of(one._buffer, one._layout) for one in (out, *inputs)]
    if isinstance(operation, str):
        return not any(one.may_share(result) for one in operands)
    return conflict(operation, result, operands) is None


def apart(x: Any, operand: Any, stream: StreamLike | None) -> Any:
    """Return an operand for an operation that changes `x`: a copy if it may share x's memory."""
    is_described = not isinstance(x._buffer, DeviceBuffer)
    if is_described or not shares_memory(x._buffer, operand._buffer):
        return operand
    if not span_of(x._buffer, x._layout).may_share(span_of(operand._buffer, operand._layout)):
        return operand
    return operand.copy(stream=stream)


def require_out(name: str, out: Any, shape: Shape, dtype: DType, like: Any) -> None:
    """Refuse an `out` of another kind, shape, dtype or device, or with elements at one address."""
    if not isinstance(out, TensorData):
        raise ArgumentTypeError(f"{name}, out: expected a DeviceTensor, got {type(out).__name__}")
    if out._layout.shape != shape:
        raise ArgumentValueError(
            f"{name}: non-broadcastable output operand with shape {out._layout.shape} doesn't "
            f"match the broadcast shape {shape}"
        )
    if out._dtype is not dtype:
        raise ArgumentTypeError(f"{name}: cannot cast output from {dtype} to {out._dtype}")
    if out._executor is not like._executor:
        raise InvalidHandleError(
            f"{name}, out: expected a tensor on {like.device!r}, got one on {out.device!r}"
        )
    if out._layout.may_alias:
        raise ArgumentValueError(f"{name}: output array has several elements at one address")


def require_tensors(name: str, *operands: object) -> None:
    """Refuse any other object than a tensor."""
    for operand in operands:
        if not isinstance(operand, TensorData):
            advice = ""
            if isinstance(operand, (np.ndarray, list, tuple)):
                advice = "; ubridge.asarray makes one"
            elif isinstance(operand, DeviceBuffer):
                advice = "; ubridge.DeviceTensor(buffer) makes one over its memory"
            raise ArgumentTypeError(
                f"{name}: expected a DeviceTensor, got {type(operand).__name__}{advice}"
            )


def require_size(op: Op, name: str, buffer: DeviceBuffer, elements: int) -> None:
    """Refuse a buffer of fewer elements."""
    if not isinstance(buffer, (DeviceBuffer, Description)):
        raise ArgumentTypeError(
            f"{op.name}, {name!r}: expected a DeviceBuffer, got {type(buffer).__name__}"
        )
    if buffer.size < elements:
        raise ArgumentValueError(
            f"{op.name}, {name!r}: expected a buffer of at least {elements} elements, which the "
            f"layout reaches, got one of {buffer.size}"
        )
