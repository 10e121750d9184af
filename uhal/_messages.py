"""Prints and assertions of kernels, read when the host waits.

A module that includes `<uhal/messages.h>` has a variable `uhal_messages`. Loading a module sets
this variable to a ring of messages in host memory that the device can access. All modules of a
device share the ring. The header defines both layouts.
"""

from __future__ import annotations

import contextlib
import re
import struct
import sys
import threading
import warnings
import weakref
from typing import Protocol

import numpy as np

from uhal import terminal
from uhal._lane import Context, HostBuffer
from uhal.errors import DeviceError, DeviceWarning, KernelAssertionError, NotFoundError

VARIABLE = "uhal_messages"
CAPACITY = 4096

_ASSERTION = 2
_NOWHERE = 0xFFFFFFFF
_IN_STREAM = 0xFFFFFFFE
_CHANNEL = np.dtype(
    [("pending", np.uint32), ("capacity", np.uint32), ("next", np.uint32), ("reserved", "13u4")]
)
_MESSAGE = np.dtype(
    [
        ("number", np.uint32),
        ("kind", np.uint32),
        ("line", np.uint32),
        ("thread", np.uint32),
        ("block", "3u4"),
        ("count", np.uint32),
        ("values", "8u8"),
        ("types", "S8"),
        ("function", "S120"),
        ("text", "S320"),
    ]
)
_CONVERSION = re.compile(r"%([-+ #0]*\d*(?:\.\d+)?)(?:hh|h|ll|l|z|j|t|L)?([diuxXocfFeEgGp%])")
_HOST_FUNCTION = re.compile(r"uhal_kernel_(\w+)::body")


class _Loaded(Protocol):
    """The interface of a module that messages need."""

    def write_global(self, name: str, value: bytes) -> None:
        """Set the first bytes of a variable."""


class KernelMessages:
    """The ring that modules of one device write to. Modules hold it. Any thread may use it."""

    def __init__(self, context: Context) -> None:
        self._ring = ring = _Ring(context)
        context.watch_reports(ring.word, ring.report, asserts=True)
        weakref.finalize(self, _end, context, ring).atexit = False

    def attach(self, module: _Loaded) -> None:
        """Let a module write here. `NotFoundError` if the driver does not find its variable."""
        address = int(self._ring.memory.device_ptr)
        module.write_global(VARIABLE, address.to_bytes(8, "little"))


class _Ring:
    """The memory, and the number of messages read."""

    def __init__(self, context: Context) -> None:
        size = _CHANNEL.itemsize + CAPACITY * _MESSAGE.itemsize
        self.memory = HostBuffer(size, "u8", device=context.device, mapped=True)
        self.memory.array[:] = 0
        self.word = self.memory.array.ctypes.data
        self._channel = self.memory.array[: _CHANNEL.itemsize].view(_CHANNEL)[0]
        self._messages = self.memory.array[_CHANNEL.itemsize :].view(_MESSAGE)
        self._channel["capacity"] = CAPACITY
        self._read = 0
        self._lock = threading.Lock()

    def report(self) -> list[tuple[KernelAssertionError | DeviceWarning, int | None, int]]:
        """Print the new messages; return the first assertion of each stream.

        Each assertion has the stream's handle and the number of earlier launches, or `None` and 0
        if kernels do not know them. Without a failed assertion, a warning counts lost messages, if
        any.
        """
        with self._lock:
            lines, failed, lost = self._new()
        try:
            terminal.write(sys.stdout, "".join(lines))
        except Exception:
            if not failed:
                raise
        if failed:
            return [
                (
                    KernelAssertionError(
                        said[0][1] + (f" ({len(said) - 1} more failed)" if len(said) > 1 else "")
                    ),
                    stream,
                    said[0][0],
                )
                for stream, said in failed.items()
            ]
        if lost:
            warning = DeviceWarning(
                f"{lost} messages of kernels were lost, failed assertions perhaps among them: at "
                f"most {CAPACITY} are kept between two waits. Wait more often."
            )
            return [(warning, None, 0)]
        return []

    def _new(self) -> tuple[list[str], dict[int | None, list[tuple[int, str]]], int]:
        """Printed lines, failures (launch, message) by stream, and the number of lost messages."""
        self._channel["pending"] = 0
        end = int(self._channel["next"])
        # The counter wraps around as the device's does.
        new = (end - self._read) & 0xFFFFFFFF
        failed: dict[int | None, list[tuple[int, str]]] = {}
        lines: list[str] = []
        for number in range(end - min(new, CAPACITY), end):
            message = self._messages[number % CAPACITY]
            if int(message["number"]) != (number + 1) & 0xFFFFFFFF:
                continue  # still being written, by unfinished work
            if message["kind"] == _ASSERTION:
                stream, launch = _origin(message)
                failed.setdefault(stream, []).append((launch, _words(message)))
            else:
                lines.append(_words(message))
        self._read = end
        return lines, failed, max(0, new - CAPACITY)

    def close(self) -> None:
        """Give the memory back."""
        del self._channel, self._messages
        self.memory.close()


_OF_CONTEXT: weakref.WeakKeyDictionary[Context, weakref.ref[KernelMessages]] = (
    weakref.WeakKeyDictionary()
)


def attach(context: Context, module: _Loaded) -> KernelMessages | None:
    """Receive a module's messages; the caller keeps the returned object as long as the module.

    If that is impossible, a `DeviceWarning` gives the reason, and nothing is reported.
    """
    found = _OF_CONTEXT.get(context)
    messages = None if found is None else found()
    try:
        if messages is None:
            messages = KernelMessages(context)
            _OF_CONTEXT[context] = weakref.ref(messages)
        messages.attach(module)
    except NotFoundError:
        _warn("the driver does not find them: compile with nvcc -rdc=true, or to PTX")
    except (DeviceError, NotImplementedError) as error:
        _warn(str(error))
    else:
        return messages
    return None


def _warn(reason: str) -> None:
    warnings.warn(
        f"PRINTF and ASSERT of this module will not be heard: {reason}", DeviceWarning, stacklevel=5
    )


def _end(context: Context, ring: _Ring) -> None:
    """Print the last messages and free the memory, once nothing can write to it."""
    with contextlib.suppress(DeviceError):  # closed or lost: nothing runs
        context.synchronize()
        for found, *_ in ring.report():
            warnings.warn(str(found), DeviceWarning, stacklevel=2)
    context.unwatch_reports(ring.word)
    with contextlib.suppress(DeviceError):
        ring.close()


def _origin(message: np.void) -> tuple[int | None, int]:
    """The stream's native handle and the number of earlier launches, if the kernel knew them."""
    if int(message["thread"]) != _IN_STREAM:
        return None, 0
    low, high, launch = (int(word) for word in message["block"])
    return low | high << 32, launch


def _words(message: np.void) -> str:
    """Text of a message."""
    values = [
        _value(chr(message["types"][index]), int(message["values"][index]))
        for index in range(min(int(message["count"]), len(message["types"])))
    ]
    text = bytes(message["text"]).decode("utf-8", "replace")
    if message["kind"] != _ASSERTION:
        return _printed(text, values)
    condition, _, names = text.partition("\n")
    reported = bytes(message["function"]).decode("utf-8", "replace")
    on_host = _HOST_FUNCTION.search(reported)
    where = f"kernel {on_host[1] if on_host else reported}, line {message['line']}"
    if int(message["thread"]) not in (_NOWHERE, _IN_STREAM):
        block = tuple(int(index) for index in message["block"])
        where += f", block {block}, thread {message['thread']}"
    pairs = zip(_names(names, len(values)), values, strict=True)
    with_values = ", ".join(f"{name} = {value}" for name, value in pairs)
    return f"ASSERT({condition}) failed in {where}{': ' + with_values if with_values else ''}"


def _value(kind: str, bits: int) -> int | float:
    if kind == "f":
        return float(struct.unpack("=d", bits.to_bytes(8, sys.byteorder))[0])
    return bits - (1 << 64) if kind == "i" and bits >> 63 else bits


def _names(text: str, count: int) -> list[str]:
    """The values in the source's spelling, split at commas outside of brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    names = [part.strip() for part in parts]
    return names if len(names) == count else [f"value {index}" for index in range(count)]


def _printed(text: str, values: list[int | float]) -> str:
    """Format C's conversions with Python's; a missing value is `?`."""
    left = iter(values)

    def convert(found: re.Match[str]) -> str:
        options, kind = found[1], found[2]
        if kind == "%":
            return "%"
        value = next(left, None)
        if value is None:
            return "?"
        if kind == "p":
            return f"{int(value):#x}"
        if kind in "uxXo" and isinstance(value, int) and value < 0:
            value &= 0xFFFFFFFF if value >= -(1 << 31) else (1 << 64) - 1
        if kind in "diuxXoc":
            value = int(value)
        return f"%{options}{'d' if kind == 'u' else kind}" % value

    return _CONVERSION.sub(convert, text)
