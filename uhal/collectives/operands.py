"""Operands of a collective: checks before anything is enqueued."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from uhal._lane import Context, DeviceBuffer, Stream, address_of
from uhal._refusal import as_int, describe
from uhal.collectives.engine import Engine
from uhal.errors import (
    ArgumentTypeError,
    ArgumentValueError,
    InvalidHandleError,
    NotSupportedError,
)

if TYPE_CHECKING:
    from uhal._lane import StreamLike


class Tensor(Protocol):
    """A contiguous tensor over a buffer, as ubridge's."""

    @property
    def buffer(self) -> DeviceBuffer:
        """The memory of its elements."""

    @property
    def layout(self) -> Any:
        """Shape and strides, with `is_contiguous`, `start_offset` and `size`."""


Elements = DeviceBuffer | Tensor


class Operands:
    """The operands of a call: buffers of one dtype on the communicator's device."""

    def __init__(
        self,
        engine: Engine,
        context: Context,
        name: str,
        stream: StreamLike | None,
        *operands: Elements | None,
    ) -> None:
        """Check dtypes, devices and the stream, by default the default stream."""
        self.name = name
        self.engine = engine
        self._context = context
        context.check_usable()
        self.buffers = [
            None if one is None else buffer_of(name, part, one)
            for part, one in zip(("send", "recv"), (*operands, None, None), strict=False)
        ]
        if stream is None:
            with context.enter():
                self.stream = Stream.default()
        elif isinstance(stream, Stream):
            self.stream = stream
        else:
            raise ArgumentTypeError(f"{name}, stream: expected a Stream, got {describe(stream)}")
        at = (context.backend_name, context.ordinal)
        for part, one in (
            ("send", self.buffers[0]),
            ("recv", self.buffers[1]),
            ("stream", self.stream),
        ):
            if one is not None and (one.device.backend, one.device.ordinal) != at:
                raise InvalidHandleError(
                    f"{name}, {part}: expected one of {at[0]}:{at[1]}, the communicator's device, "
                    f"got one of {one.device.backend}:{one.device.ordinal}. Copy it there first."
                )
        target = self.buffers[1]
        if target is not None and target.readonly:
            raise ArgumentTypeError(f"{name}, recv: expected memory to write, got read-only memory")
        self.dtype = self._dtype()

    def _dtype(self) -> str:
        named = [one.dtype.name for one in self.buffers if one is not None]
        if not named:
            return ""
        if len(set(named)) > 1:
            raise ArgumentTypeError(
                f"{self.name}, recv: expected {named[0]} as send, got {named[1]}. Cast one first."
            )
        if named[0] not in self.engine.dtypes:
            raise NotSupportedError(
                f"{self.name}: {self.engine.name} takes {', '.join(sorted(self.engine.dtypes))}, "
                f"got {named[0]}. Cast first, or view the bytes as u8.",
                backend=self._context.backend_name,
            )
        return named[0]

    def size(self, index: int) -> int:
        """Elements of an operand."""
        buffer = self.buffers[index]
        assert buffer is not None
        return buffer.size

    def require_size(self, index: int, size: int) -> None:
        """Refuse an operand with another number of elements."""
        if self.size(index) != size:
            raise ArgumentValueError(
                f"{self.name}, {('send', 'recv')[index]}: expected {size} elements, got "
                f"{self.size(index)}"
            )

    def copy_operand(self) -> None:
        """Enqueue a copy of `send` into `recv` if they differ."""
        send, recv = self.buffers[:2]
        assert send is not None and recv is not None
        if send.size and address_of(send) != address_of(recv):
            recv.copy_from_async(send, self.stream)

    def require_apart(self, in_place: int | None = None) -> None:
        """Refuse overlap, unless `recv` begins `in_place` elements behind `send`."""
        send, recv = self.buffers
        assert send is not None and recv is not None
        begin, other = address_of(send), address_of(recv)
        itemsize = send.dtype.itemsize
        if in_place is not None and other == begin + in_place * itemsize:
            return
        if begin < other + recv.nbytes and other < begin + send.nbytes:
            allowed = "" if in_place is None else ", or the part that the call may replace"
            raise ArgumentValueError(
                f"{self.name}, recv: expected memory apart from send{allowed}, got memory that "
                "overlaps it"
            )


def buffer_of(name: str, part: str, value: Elements) -> DeviceBuffer:
    """Return the memory of a buffer, or of a contiguous tensor. Other values raise."""
    if isinstance(value, DeviceBuffer):
        return value
    buffer, layout = getattr(value, "buffer", None), getattr(value, "layout", None)
    if not isinstance(buffer, DeviceBuffer) or layout is None:
        raise ArgumentTypeError(
            f"{name}, {part}: expected a DeviceBuffer or a tensor over one, got {describe(value)}"
        )
    if not layout.is_contiguous:
        raise ArgumentValueError(
            f"{name}, {part}: expected a contiguous tensor, got strides {tuple(layout.strides)}. "
            "Call contiguous() first."
        )
    start = layout.start_offset
    return buffer[start : start + layout.size]


def whole(what: str, value: int, least: int | None = None) -> int:
    """Return an int of at least `least`; `ArgumentValueError` for other values."""
    number = as_int(value)
    if number is None or (least is not None and number < least):
        wanted = "an int" if least is None else f"an int from {least}"
        raise ArgumentValueError(f"{what}: expected {wanted}, got {describe(value)}")
    return number


def in_range(what: str, value: int, end: int) -> int:
    """Return an int from 0 to below `end`; `ArgumentValueError` for other values."""
    number = whole(what, value, 0)
    if number >= end:
        raise ArgumentValueError(f"{what}: expected a number from 0 to {end - 1}, got {number}")
    return number


__all__ = ["Elements", "Operands", "Tensor", "buffer_of", "in_range", "whole"]
