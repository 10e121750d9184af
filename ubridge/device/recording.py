"""Listeners of operations: called here for each prepared operation, once it is enqueued.

They also hear of a program's own work on the device: of its sequences once they are enqueued, of
launches, copies and fills before. While nobody listens, the compiled sequences test one pointer and
nothing else happens.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from ubridge.core.question import Question
from uhal import Device, DeviceBuffer, LaunchSequence, set_recorder


class Listener(ABC):
    """Hears of operations on a device that its thread and asyncio task enqueue."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.thread = threading.get_ident()

    @abstractmethod
    def asked(
        self, question: Question, out: DeviceBuffer, is_new: bool, given: tuple[Any, ...]
    ) -> None:
        """Hear of an operation that is enqueued; `is_new` says whether it allocated `out`."""

    @abstractmethod
    def allocated(self, buffer: DeviceBuffer) -> None:
        """Hear of memory allocated for a later result."""

    @abstractmethod
    def called(
        self, sequence: LaunchSequence, out: DeviceBuffer, is_new: bool, given: tuple[Any, ...]
    ) -> None:
        """Hear of a sequence of the program's own that is enqueued."""

    @abstractmethod
    def observed(self, kind: str, *details: Any) -> None:
        """Hear of other work before it is enqueued, as `Context.observe_work` tells it.

        An exception from it refuses the work.
        """

    def hears(self, device: Device) -> bool:
        """Return whether it hears of this thread's and task's operations on a device."""
        return (
            self.thread == threading.get_ident()
            and self.device == device
            and self in _of_this_task.get()
        )


_of_this_task: ContextVar[tuple[Listener, ...]] = ContextVar("ubridge listeners", default=())
"""Listeners begun by this task, or before its creation."""

_listeners: list[Listener] = []
_lock = threading.Lock()


class _Thread(threading.local):
    """Whether a thread is within an operation."""

    is_within_one = False


_now = _Thread()


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Within it a listener hears of operations."""
    of_this_task = _of_this_task.get()
    try:
        with _lock:
            _listeners.append(listener)
            set_recorder(_told)
        _of_this_task.set((*of_this_task, listener))
        yield
    finally:
        with _lock:
            if listener in _listeners:
                _listeners.remove(listener)
            if not _listeners:
                set_recorder(None)
        _of_this_task.set(of_this_task)


@contextmanager
def unheard() -> Iterator[None]:
    """Within it this thread's operations are not heard: they are parts of one that is."""
    before, _now.is_within_one = _now.is_within_one, True
    try:
        yield
    finally:
        _now.is_within_one = before


def is_within_one() -> bool:
    """Return whether this thread is within an operation."""
    return _now.is_within_one


def listened_to(device: Device) -> bool:
    """Return whether any thread's operations on a device are heard."""
    return any(one.device == device for one in tuple(_listeners))


def is_heard(device: Device) -> bool:
    """Return whether this thread's operations on a device are heard."""
    return bool(_listeners) and any(one.hears(device) for one in tuple(_listeners))


def _hearing(buffer: DeviceBuffer) -> Sequence[Listener]:
    """Return the listener of work outside of operations on a buffer's device."""
    if not _listeners or _now.is_within_one:
        return ()
    return [one for one in tuple(_listeners) if one.hears(buffer.device)]


def tell(question: Question, out: DeviceBuffer, is_new: bool, given: tuple[Any, ...]) -> None:
    """Tell of an operation that is enqueued."""
    for listener in _hearing(out):
        listener.asked(question, out, is_new, given)


def tell_allocated(buffer: DeviceBuffer) -> None:
    """Tell of memory for a result."""
    for listener in _hearing(buffer):
        listener.allocated(buffer)


def _told(
    sequence: LaunchSequence, out: DeviceBuffer, is_new: bool, given: tuple[Any, ...]
) -> None:
    if isinstance(sequence.about, Question):
        tell(sequence.about, out, is_new, given)
    elif sequence.about is None:
        for listener in _hearing(out):
            listener.called(sequence, out, is_new, given)
