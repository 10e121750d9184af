"""One operation of a graph as it is enqueued: a method of the lowering and its arguments.

A `Recorder` stands in for a device's lowering. It notes each call with places in the graph's
memory instead of buffers, and may pass the call on.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np

from ubridge.core.layout import Layout, Shape
from ubridge.core.op_table import OPS, Op
from ubridge.core.promotion import checked_number
from ubridge.device.executor import DeviceExecutor
from ubridge.device.lowering import Lowering
from ubridge.device.plans import NoPlans
from uhal import Device, DeviceBuffer, DType
from uhal.errors import ArgumentTypeError, ArgumentValueError, DeviceError
from uhal.interop import StreamLike


class Place(NamedTuple):
    """Elements in one of a graph's storages."""

    storage: int
    offset: int
    """Bytes before the first element."""
    size: int
    dtype: DType

    @property
    def nbytes(self) -> int:
        """Bytes the elements take."""
        return self.size * self.dtype.itemsize

    def overlaps(self, other: Place) -> bool:
        """Return whether both have a byte in common."""
        if self.storage != other.storage:
            return False
        return (
            self.offset < other.offset + other.nbytes and other.offset < self.offset + self.nbytes
        )


@dataclass(frozen=True)
class ScalarSlot:
    """A number among the arguments that is given anew for each run."""

    name: str
    value: float
    """What it is unless given."""
    dtype: DType
    low: float
    high: float
    """The range it may be in, both ends included."""

    def checked(self, value: object) -> float:
        """Return a value for the slot; refuse one of another kind or out of its range."""
        kinds = (int, float) if self.dtype.kind == "float" else (int,)
        if isinstance(value, bool) or not isinstance(value, (*kinds, np.integer)):
            raise ArgumentTypeError(
                f"slot {self.name!r}: expected {'a number' if len(kinds) > 1 else 'an int'}, got "
                f"{value!r}"
            )
        number = checked_number(f"slot {self.name!r}", self.dtype, value)
        if not self.low <= number <= self.high:
            raise ArgumentValueError(
                f"slot {self.name!r}: expected {self.low} to {self.high}, got {value!r}"
            )
        found: float = number
        return found


def with_values(arguments: tuple[Any, ...], values: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the arguments with the value, or the slot of a plan, for each slot."""
    return mapped(arguments, lambda one: values[one.name] if isinstance(one, ScalarSlot) else one)


@dataclass(frozen=True)
class Call:
    """A call of a lowering, but for the stream, with `Place`s for buffers."""

    method: str
    arguments: tuple[Any, ...]

    @cached_property
    def op(self) -> Op:
        """The operation of the table it computes."""
        for one in self.arguments:
            if isinstance(one, Op):
                return one
        return OPS[_NAMES.get(self.method, self.method)]

    @cached_property
    def written(self) -> Place:
        """Where the result goes."""
        place = result_among(self.method, self.arguments)
        assert isinstance(place, Place)
        return place

    @cached_property
    def places(self) -> tuple[Place, ...]:
        """Every place among the arguments, the written one too."""
        return tuple(one for one in leaves_of(self.arguments) if isinstance(one, Place))

    @cached_property
    def slots(self) -> tuple[ScalarSlot, ...]:
        """Every slot among the arguments."""
        return tuple(one for one in leaves_of(self.arguments) if isinstance(one, ScalarSlot))

    @cached_property
    def shape(self) -> Shape:
        """The result's shape, as far as the kernels know it."""
        layouts = [one for one in leaves_of(self.arguments) if isinstance(one, Layout)]
        if self.method == "matmul":
            return Shape((*layouts[0].shape[:-1], layouts[1].shape[-1]))
        if layouts and layouts[0].size == self.written.size:
            return layouts[0].shape
        return Shape((self.written.size,))

    def with_written(self, place: Place) -> Call:
        """Return the call that puts its result elsewhere."""
        old = self.written
        return Call(self.method, mapped(self.arguments, lambda one: place if one is old else one))

    @property
    def is_in_place(self) -> bool:
        """Whether what was where the result goes matters."""
        return self.method in _WRITTEN


_NAMES = {"cast": "astype"}
"""Methods that are called otherwise than their operation."""
_WRITTEN = {
    "fill": "x",
    "copy2d": "destination",
    **dict.fromkeys(("scatter", "index_add", "kv_append"), "target"),
}
"""Methods whose result is not in the argument `out`."""


def result_among(method: str, arguments: tuple[Any, ...]) -> Any:
    """Return the argument that says where the result goes."""
    if method == "windows":
        return arguments[1][-1]
    return arguments[argument_names(method).index(_WRITTEN.get(method, "out"))]


@cache
def is_enqueuing(method: str) -> bool:
    """Return whether a method of lowerings enqueues an operation: then it takes a stream, last."""
    if method not in Lowering.__abstractmethods__:
        return False
    return [*inspect.signature(getattr(Lowering, method)).parameters][-1] == "stream"


@cache
def argument_names(method: str) -> tuple[str, ...]:
    """Return the parameters of a lowering's method, less `self` and `stream`."""
    names = tuple(inspect.signature(getattr(Lowering, method)).parameters)
    assert names[-1] == "stream", method
    return names[1:-1]


def leaves_of(arguments: tuple[Any, ...]) -> list[Any]:
    """Return the arguments, those in plain tuples one by one."""
    found: list[Any] = []
    for one in arguments:
        if type(one) is tuple:
            found += leaves_of(one)
        else:
            found.append(one)
    return found


def mapped(arguments: tuple[Any, ...], change: Callable[[Any], Any]) -> tuple[Any, ...]:
    """Return the arguments with each replaced by what `change` makes of it."""
    # A list first: a generator takes twice the time, and large graphs have many calls.
    return tuple([mapped(one, change) if type(one) is tuple else change(one) for one in arguments])


class Recording(Protocol):
    """What takes the calls of a `Recorder`."""

    def place_of(self, buffer: DeviceBuffer) -> Place:
        """Return where a buffer lies in the graph's memory."""

    def described(self, buffer: DeviceBuffer) -> None:
        """Take a new buffer for a result, which may have no memory."""

    def recorded(self, call: Call) -> None:
        """Take a call, in the order they are made."""


class Recorder:
    """A lowering that tells a `Recording` of each call, and passes it on when there is a `real`.

    Calls of other threads, and those a lowering makes itself, are passed on only.
    """

    def __init__(self, recording: Recording, real: Any, enqueue: bool) -> None:
        self._recording = recording
        self._real = real
        self._enqueue = enqueue
        self._thread = threading.get_ident()
        self._inside = False

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """What asks which kind of kernels there are gets the answer of the real lowering."""
        return type(self._real)

    @property
    def is_recording(self) -> bool:
        """Whether a call made now would be recorded."""
        return not self._inside and threading.get_ident() == self._thread

    def __getattr__(self, method: str) -> Callable[..., Any]:
        real: Callable[..., Any] = getattr(self._real, method)
        if not self.is_recording or not is_enqueuing(method):
            return real

        def record(*arguments: Any) -> None:
            *given, stream = arguments
            recording = self._recording
            call = Call(
                method,
                mapped(
                    tuple(given),
                    lambda one: recording.place_of(one) if isinstance(one, DeviceBuffer) else one,
                ),
            )
            if self._enqueue:
                self._inside = True
                try:
                    real(*given, stream)
                finally:
                    self._inside = False
            recording.recorded(call)

        return record


class DescribingExecutor(DeviceExecutor):
    """An executor that launches nothing and gives buffers without memory.

    Tensors over it compute nothing: their functions check, and tell a `Recording` what they would
    have enqueued.
    """

    def __init__(self, real: DeviceExecutor, recording: Recording) -> None:
        self.__dict__.update(real.__dict__)
        self.plans = NoPlans()
        self.real = real
        self._recording = recording
        self.lowering = Recorder(recording, real.lowering, enqueue=False)  # type: ignore[assignment]

    def allocate(self, size: int, dtype: DType, stream: StreamLike | None = None) -> DeviceBuffer:
        """Return a buffer that nothing may be launched with."""
        buffer = without_memory(size, dtype, self.device)
        self._recording.described(buffer)
        return buffer


def without_memory(size: int, dtype: DType, device: Device) -> DeviceBuffer:
    """Return a buffer to describe operations with; nothing may be launched with it."""
    # Any address but 0 does; aligned, so that it can be seen as other types.
    return DeviceBuffer.from_raw(1 << 12, size, dtype, device=device)


@contextmanager
def recorded(executor: DeviceExecutor, recording: Recording) -> Iterator[None]:
    """Within it the calls of this thread are recorded as well as made."""
    if isinstance(executor.lowering, Recorder):
        raise DeviceError(
            f"trace: operations on {executor.device!r} are being traced already, perhaps by "
            "another thread; one trace a device at a time"
        )
    real, plans, allocate = executor.lowering, executor.plans, executor.allocate
    recorder = Recorder(recording, real, enqueue=True)

    def allocating(size: int, dtype: DType, stream: StreamLike | None = None) -> DeviceBuffer:
        buffer = allocate(size, dtype, stream)
        if recorder.is_recording:
            recording.described(buffer)
        return buffer

    executor.lowering = recorder  # type: ignore[assignment]
    executor.allocate = allocating  # type: ignore[method-assign]
    executor.plans = NoPlans()
    try:
        yield
    finally:
        executor.lowering = real
        del executor.allocate
        executor.plans = plans


__all__ = [
    "Call",
    "DescribingExecutor",
    "Place",
    "Recorder",
    "Recording",
    "ScalarSlot",
    "argument_names",
    "is_enqueuing",
    "leaves_of",
    "mapped",
    "recorded",
    "result_among",
    "with_values",
    "without_memory",
]
