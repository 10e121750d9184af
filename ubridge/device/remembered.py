"""What a tensor is made of, and functions of tensors that are answered without Python.

A function of tensors comes with one that asks: from the same arguments, but for `out` and `stream`,
to an `Answer`, or `None` where it takes more than one question. What was answered once is answered
again by the compiled lane, for the very same constants and layouts; the function itself is called
for all else.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import update_wrapper
from typing import Any, TypeVar, cast

from ubridge.core.layout import Layout
from ubridge.device.executor import Answer, Executor
from uhal import DeviceBuffer, DType
from uhal.frameworks import RememberedCall, SlotMaker
from uhal.interop import StreamLike

Function = TypeVar("Function", bound=Callable[..., Any])
Asks = Callable[..., Answer | None]
"""Called with the function's arguments but `out` and `stream`, none of which it must be given."""


class TensorData:
    """The parts of a tensor."""

    __slots__ = ("__weakref__", "_buffer", "_dtype", "_executor", "_layout")

    _buffer: DeviceBuffer
    _layout: Layout
    _dtype: DType
    _executor: Executor


make = SlotMaker(TensorData, "_buffer", "_layout", "_dtype", "_executor")
"""`make(cls, buffer, layout, dtype, executor)` is a tensor of which nothing is checked."""


def start_of(x: TensorData) -> DeviceBuffer:
    """Return the buffer from the tensor's first element on."""
    start = x._layout.start_offset
    return x._buffer[start:] if start else x._buffer


def launched(found: Answer, stream: StreamLike | None, *tensors: Any) -> Any:
    """Return the tensor that an answer makes of others; of the kind of the first."""
    buffers = map(start_of, tensors)
    made = found.launch(stream, None, *found.ahead, *buffers, *found.behind)
    first = tensors[0]
    return make(type(first), made, found.layout, found.dtype, first._executor)


def remembered(asks: Asks, writes_over: bool = False) -> Callable[[Function], Function]:
    """Answer a function or method of tensors by what it was answered before, where it can be.

    Arguments by name are taken from the function. With `writes_over`, for what is computed element
    by element, an `out` that lies as all operands is written without the function, too.
    """

    def decorated(function: Function) -> Function:
        parameters = inspect.signature(function).parameters.values()
        settings = [one.name for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD][1:]
        call = RememberedCall(
            function, asks, make, tuple(settings), writes_over,
            layouts=(Layout, "words", "start_offset"), executors=(Executor, "remembered"),
            answers=(Answer, "launch", "layout", "dtype", "ahead", "behind"),
        )  # fmt: skip
        return cast(Function, update_wrapper(call, function))

    return decorated


__all__ = ["Asks", "TensorData", "launched", "make", "remembered", "start_of"]
