"""The parts of a tensor, and functions of tensors that are answered without Python.

A function of tensors comes with a function that asks: it takes the same arguments except `out` and
`stream`, and returns an `Answer`, or `None` where one question is not enough. `uhal._lane`
remembers the answer and gives it again for the very same constants and layouts; the function itself
is called for all else.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import update_wrapper
from typing import Any, TypeVar, cast

from ubridge.core.calls import named
from ubridge.core.layout import Layout
from ubridge.device.executor import Answer, Executor
from uhal import DeviceBuffer, DType
from uhal.frameworks import RememberedCall, SlotMaker
from uhal.interop import StreamLike

Function = TypeVar("Function", bound=Callable[..., Any])
Asks = Callable[..., Answer | None]
"""Called with the function's arguments except `out` and `stream`; it may return `None`."""


class TensorData:
    """The parts of a tensor."""

    __slots__ = ("__weakref__", "_buffer", "_dtype", "_executor", "_layout")

    _buffer: DeviceBuffer
    _layout: Layout
    _dtype: DType
    _executor: Executor


make = SlotMaker(TensorData, "_buffer", "_layout", "_dtype", "_executor")
"""`make(cls, buffer, layout, dtype, executor)` returns a tensor and checks nothing."""


def start_of(x: TensorData) -> DeviceBuffer:
    """Return the buffer from the tensor's first element on."""
    start = x._layout.start_offset
    return x._buffer[start:] if start else x._buffer


def launched(found: Answer, stream: StreamLike | None, *tensors: Any) -> Any:
    """Launch an answer on tensors; return its result, a tensor of the first one's class."""
    buffers = map(start_of, tensors)
    made = found.launch(stream, None, *found.ahead, *buffers, *found.behind)
    first = tensors[0]
    return make(type(first), made, found.layout, found.dtype, first._executor)


def remembered(asks: Asks, writes_over: bool = False) -> Callable[[Function], Function]:
    """Let `uhal._lane` answer a function or method of tensors by remembered answers.

    Names of arguments are the function's. With `writes_over`, for operations element by element, a
    call with an `out` of the operands' layout is answered, too.
    """

    def decorated(function: Function) -> Function:
        parameters = inspect.signature(function).parameters.values()
        settings = [one.name for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD][1:]
        call = RememberedCall(
            named(function), named(asks, function.__name__), make, tuple(settings), writes_over,
            layouts=(Layout, "words", "start_offset"), executors=(Executor, "remembered"),
            answers=(Answer, "launch", "layout", "dtype", "ahead", "behind"),
        )  # fmt: skip
        return cast(Function, update_wrapper(call, function))

    return decorated


__all__ = ["Asks", "TensorData", "launched", "make", "remembered", "start_of"]
