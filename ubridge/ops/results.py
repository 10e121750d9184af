"""Results of operations: new tensors, or the caller's `out=`, which is checked here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from ubridge.buffers import launches
from ubridge.core.layout import Layout, Shape
from ubridge.core.operation import Op
from ubridge.core.overlap import conflict
from ubridge.device.spans import span_of
from ubridge.device.tensor_data import TensorData
from uhal import DeviceBuffer, DType
from uhal.errors import ArgumentTypeError, ArgumentValueError, InvalidHandleError
from uhal.frameworks import shares_memory
from uhal.interop import StreamLike

Tensor = TypeVar("Tensor", bound=TensorData)
"""A class of tensors: what is computed from one is of the same class."""


def delivered(
    operation: Op | str,
    shape: Shape,
    dtype: DType,
    out: Tensor | None,
    inputs: tuple[Any, ...],
    stream: StreamLike | None,
    enqueue: Callable[[DeviceBuffer | None], DeviceBuffer],
) -> Tensor:
    """Return what `enqueue` computes: a new tensor, or `out` written through its layout.

    `enqueue` takes the buffer to write to, or None to allocate one. The result is as if `out` were
    memory of its own: where it must not share memory with an input but does, it is written through
    a temporary. A name instead of an operation is of a function that is not one operation.
    `inputs`, of which the first is a tensor, are all that is read after `out` is written.
    """
    if out is None:
        like = inputs[0]._layout
        layout = like if like.is_whole and like.shape is shape else Layout.contiguous(shape)
        made: Tensor = inputs[0]._made(enqueue(None), layout, dtype)
        return made
    require_out(
        operation if isinstance(operation, str) else operation.name, out, shape, dtype, inputs[0]
    )
    layout = out._layout
    if layout.is_contiguous and may_write(operation, out, *inputs):
        enqueue(out._buffer[layout.start_offset :] if layout.start_offset else out._buffer)
        return out
    launches.launch_copy(
        enqueue(None),
        Layout.contiguous(shape),
        out._buffer,
        layout,
        stream=stream,
        executor=out._executor,
    )
    return out


def may_write(operation: Op | str, out: Any, *inputs: Any) -> bool:
    """Return whether an operation on tensors, or buffers, may write to `out` while it reads them.

    A function that is not one operation may not write over any.
    """
    buffers = [one if isinstance(one, DeviceBuffer) else one._buffer for one in inputs]
    if not shares_memory(out._buffer, *buffers):
        return True
    layouts = [
        Layout.contiguous(one.size) if isinstance(one, DeviceBuffer) else one._layout
        for one in inputs
    ]
    result, operands = span_of(out._buffer, out._layout), [*map(span_of, buffers, layouts)]
    if isinstance(operation, str):
        return not any(one.may_share(result) for one in operands)
    return conflict(operation, result, operands) is None


def apart(x: Any, operand: Any, stream: StreamLike | None) -> Any:
    """Return an operand of an operation that changes `x`: a copy if it may share memory with it."""
    is_described = not isinstance(x._buffer, DeviceBuffer)
    if is_described or not shares_memory(x._buffer, operand._buffer):
        return operand
    if not span_of(x._buffer, x._layout).may_share(span_of(operand._buffer, operand._layout)):
        return operand
    return operand.copy(stream=stream)


def is_alike(op: Op, out: Any, dtype: DType, like: Any, *others: Any) -> bool:
    """Return whether `out` is a whole tensor of the dtype, with the layout and device of `like`.

    Then `require_out` would accept it. The operation must be free to write it while it reads.
    """
    return (
        isinstance(out, TensorData)
        and out._layout is like._layout
        and out._layout.is_whole
        and out._dtype is dtype
        and out._executor is like._executor
        and may_write(op, out, like, *others)
    )


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
    """Refuse anything that is no tensor."""
    for operand in operands:
        if not isinstance(operand, TensorData):
            advice = "; ubridge.asarray makes one" if isinstance(operand, np.ndarray) else ""
            raise ArgumentTypeError(
                f"{name}: expected a DeviceTensor, got {type(operand).__name__}{advice}"
            )
