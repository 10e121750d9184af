"""All exceptions and warnings of uhal, and their construction from native codes.

Each class also derives from Python's own (`ValueError`, `MemoryError`, …). The code→class tables
live in the backends; this module knows no vendor and imports only records of `uhal`.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Protocol

from uhal.records import BackendRecord, ErrorText, Launch
from uhal.terminal import printable


class DeviceError(RuntimeError):
    """Base of every uhal exception: something was refused or failed.

    `backend` is the backend's name, `call` the native function, `code` its result and `name` the
    vendor's name for that code; each is `None` if unknown.
    """

    candidates: tuple[Launch, ...] = ()
    """After an asynchronous fault: the launches that may have caused it, oldest first."""

    def __init__(
        self,
        message: str = "",
        *,
        backend: str | None = None,
        call: str | None = None,
        code: int | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(message)
        self.backend = backend
        self.call = call
        self.code = code
        self.name = name

    def __str__(self) -> str:
        # KeyError would print a repr and OSError an errno; the message must be the plain text.
        return printable(str(self.args[0])) if self.args else ""

    def __reduce__(self) -> tuple[Any, ...]:
        # OSError.__reduce__ omits attributes that OSError.__init__ did not set.
        return (type(self), self.args, self.__dict__.copy())


class OutOfMemoryError(DeviceError, MemoryError):
    """The device (or pinned host memory) is full."""


class ArgumentTypeError(DeviceError, TypeError):
    """A wrong count, kind, dtype or width of an argument."""


class ArgumentValueError(DeviceError, ValueError):
    """An argument of the right kind with an impossible value.

    Every wrong geometry raises this error.
    """


class ArgumentRangeError(ArgumentValueError, OverflowError):
    """An int outside the range of its parameter."""


class InvalidHandleError(DeviceError, ValueError):
    """A closed object, or one that belongs to another device."""


class NotFoundError(DeviceError, KeyError):
    """A kernel, global or module of that name does not exist."""


class InvalidImageError(DeviceError, ValueError):
    """A kernel image that is unreadable or does not fit the device."""


class LibraryNotFoundError(DeviceError, OSError):
    """A driver library, or a function in it, is missing."""


class NotSupportedError(DeviceError, NotImplementedError):
    """The device or driver cannot do this."""


class KernelAssertionError(DeviceError, AssertionError):
    """An `ASSERT` in a kernel was false. The kernel continued, and the device stays usable."""


class CaptureError(DeviceError):
    """A call that cannot be part of a capture.

    The capture continues without the call.
    """


class NoDeviceError(DeviceError):
    """No backend has the requested device.

    `records` holds a `BackendRecord` for each backend examined; the message prints one per line.
    """

    def __init__(
        self,
        message: str = "",
        *,
        backend: str | None = None,
        call: str | None = None,
        code: int | None = None,
        name: str | None = None,
        records: Sequence[BackendRecord] = (),
    ) -> None:
        lines = [message]
        for record in records:
            advice = f" → {record.next_step}" if record.next_step else ""
            lines.append(f"  {record.name:<6} {record.verdict:<8} {record.reason}{advice}")
        super().__init__("\n".join(lines), backend=backend, call=call, code=code, name=name)
        self.records = tuple(records)


class DeviceWarning(RuntimeWarning):
    """A failure where raising is not possible, such as in a destructor."""


class ErrorTable(Protocol):
    """Descriptions of native error codes: a part of `uhal.contract.Backend`."""

    name: str

    def error_text(self, code: int) -> ErrorText:
        """Return the vendor's words for a code."""

    def error_class(self, code: int) -> type[Exception]:
        """Return the class of `uhal.errors` for a code."""


PYTHON_EXCEPTION = -0x50795578
"""The result of a slot whose Python function raised; no vendor has a code below -10000."""

_kept = threading.local()


def keep_exception(failure: BaseException) -> int:
    """Keep a slot's exception for `from_code` on this thread; return its code."""
    _kept.failure = failure
    return PYTHON_EXCEPTION


def _from_python(backend: ErrorTable, call: str) -> DeviceError:
    failure: BaseException = _kept.__dict__.pop("failure", None) or RuntimeError("nothing was kept")
    if isinstance(failure, DeviceError):
        return failure
    if not isinstance(failure, Exception):
        raise failure  # an interrupt is raised unchanged
    error = DeviceError(
        f"{call}: {type(failure).__name__}: {_sentence(str(failure) or 'it says no more')}",
        backend=backend.name,
        call=call,
        code=PYTHON_EXCEPTION,
    )
    error.__cause__ = failure
    return error


def from_code(backend: ErrorTable, call: str, code: int, note: str = "") -> DeviceError:
    """Build the exception for a native result, in the vendor's words. The caller raises it.

    The class comes from the backend's error table. The message is `<call>: <NAME> (<code>): <text>.
    <advice> <note>`. If a slot's Python function raised (`uhal.python_slots`), returns that
    exception, or a `DeviceError` with it as its cause.
    """
    if code == PYTHON_EXCEPTION:
        return _from_python(backend, call)
    said = backend.error_text(code)
    parts = [f"{call}: {said.name} ({code}): {_sentence(said.text)}"]
    parts.extend(_sentence(part) for part in (said.advice, note) if part)
    error_class = backend.error_class(code)
    if not issubclass(error_class, DeviceError):
        error_class = DeviceError
    return error_class(" ".join(parts), backend=backend.name, call=call, code=code, name=said.name)


def _sentence(text: str) -> str:
    """End `text` with a full stop unless it ends in punctuation already."""
    return text if text.endswith((".", "!", "?")) else text + "."
