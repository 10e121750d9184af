"""Listeners, called for each prepared operation after it is enqueued.

Listeners also receive a program's own work on the device: sequences after the enqueue; launches,
copies and fills before the enqueue. Without listeners, the compiled sequences only test one
pointer.
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
    """Receives the operations that its thread and asyncio task enqueue on a device."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.thread = threading.get_ident()
        self.has_ended = False
        """Whether its context has ended; then it receives nothing."""

    @abstractmethod
    def asked(
        self, question: Question, out: DeviceBuffer, is_new: bool, given: tuple[Any, ...]
    ) -> None:
        """Receive an enqueued operation; `is_new` is true if the operation allocated `out`."""

    @abstractmethod
    def allocated(self, buffer: DeviceBuffer) -> None:
        """Receive memory that was allocated for a later result."""

    @abstractmethod
    def called(
        self, sequence: LaunchSequence, out: DeviceBuffer, is_new: bool, given: tuple[Any, ...]
    ) -> None:
        """Receive an enqueued sequence of the program."""

    def hears(self, device: Device) -> bool:
        """Return whether the listener receives this thread's and task's operations on a device."""
        return (
            not self.has_ended
            and self.thread == threading.get_ident()
            and self.device == device
            and self in _of_this_task.get()
        )


_of_this_task: ContextVar[tuple[Listener, ...]] = ContextVar("ubridge listeners", default=())
"""Listeners that were started by this task, or before its creation."""

_listeners: list[Listener] = []
_lock = threading.Lock()


class _Thread(threading.local):
    """Whether a thread is within an operation."""

    is_within_one = False


_now = _Thread()


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Pass operations to a listener within the context."""
    of_this_task = _of_this_task.get()
    try:
        with _lock:
            _remove_ended()
            _listeners.append(listener)
            set_recorder(_told)
        _of_this_task.set((*of_this_task, listener))
        yield
    finally:
        # The removal may lack memory; the next listener then removes this one, too.
        listener.has_ended = True
        with _lock:
            _remove_ended()
            if not _listeners:
                set_recorder(None)
        _of_this_task.set(of_this_task)


def _remove_ended() -> None:
    _listeners[:] = [one for one in _listeners if not one.has_ended]


@contextmanager
def unheard() -> Iterator[None]:
    """Hide this thread's operations, which are parts of a reported operation."""
    before, _now.is_within_one = _now.is_within_one, True
    try:
        yield
    finally:
        _now.is_within_one = before


def is_within_one() -> bool:
    """Return whether this thread is within an operation."""
    return _now.is_within_one


def listened_to(device: Device) -> bool:
    """Return whether any listener receives operations on a device."""
    return any(one.device == device and not one.has_ended for one in tuple(_listeners))


def is_heard(device: Device) -> bool:
    """Return whether a listener receives this thread's operations on a device."""
    return bool(_listeners) and any(one.hears(device) for one in tuple(_listeners))


def _hearing(buffer: DeviceBuffer) -> Sequence[Listener]:
    """Return the listener of work outside of operations on a buffer's device."""
    if not _listeners or _now.is_within_one:
        return ()
    return [one for one in tuple(_listeners) if one.hears(buffer.device)]


def tell(question: Question, out: DeviceBuffer, is_new: bool, given: tuple[Any, ...]) -> None:
    """Report an enqueued operation."""
    for listener in _hearing(out):
        listener.asked(question, out, is_new, given)


def tell_allocated(buffer: DeviceBuffer) -> None:
    """Report memory for a result."""
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
