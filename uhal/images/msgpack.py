"""Bounded reader of MessagePack, the format of the metadata in AMD's code objects.

The bytes are not trusted: a container may not claim more members than there are bytes left, depth
and the number of values are limited, and every fault is an `InvalidImageError`.
"""

from __future__ import annotations

import struct
from typing import NoReturn, TypeAlias

from uhal.errors import InvalidImageError

MAX_DEPTH = 32
MAX_VALUES = 1 << 21
"""About the number of values for ten thousand kernels of twenty arguments."""
MAX_CONTAINERS = 1 << 18
"""Limit of maps and arrays, which take the most memory: the number for the same kernels."""

Value: TypeAlias = "bool | int | float | str | bytes | list[Value] | dict[str | int, Value] | None"

_FLOAT = struct.Struct(">f")
_DOUBLE = struct.Struct(">d")

# Maps a value's first byte to the size in bytes of the number behind it.
_UNSIGNED = {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8}
_SIGNED = {0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}
_BINARY = {0xC4: 1, 0xC5: 2, 0xC6: 4}
_STRING = {0xD9: 1, 0xDA: 2, 0xDB: 4}
_ARRAY = {0xDC: 2, 0xDD: 4}
_MAP = {0xDE: 2, 0xDF: 4}
_NIL = 0xC0
_FALSE = 0xC2
_TRUE = 0xC3
_FLOAT_32 = 0xCA
_FLOAT_64 = 0xCB


def unpack(data: bytes, what: str = "the metadata") -> Value:
    """Decode the value in `data`; messages call it `what`.

    Takes time and memory in proportion to `data`. Keys of maps are strings or integers, each once;
    extension types are refused, because this metadata does not use them.
    """
    reader = _Reader(data, what)
    value = reader.value(0)
    if reader.position != len(data):
        reader.fail(f"{len(data) - reader.position} bytes follow the value")
    return value


class _Reader:
    def __init__(self, data: bytes, what: str) -> None:
        self.position = 0
        self._data = data
        self._what = what
        self._values = 0
        self._containers = 0
        # The metadata repeats a few keys and words.
        self._texts: dict[str, str] = {}

    def value(self, depth: int) -> Value:
        self._values += 1
        if depth > MAX_DEPTH or self._values > MAX_VALUES:
            self.fail("it is nested too deeply or holds too many values")
        first = self._unsigned(1)
        if first < 0x80:
            return first
        if first >= 0xE0:
            return first - 0x100
        if first < 0x90:
            return self._map(first & 0xF, depth)
        if first < 0xA0:
            return self._array(first & 0xF, depth)
        if first < 0xC0:
            return self._string(first & 0x1F)
        return self._long_form(first, depth)

    def _long_form(self, first: int, depth: int) -> Value:
        if first in _STRING:
            return self._string(self._unsigned(_STRING[first]))
        if first in _UNSIGNED:
            return self._unsigned(_UNSIGNED[first])
        if first in _MAP:
            return self._map(self._unsigned(_MAP[first]), depth)
        if first in _ARRAY:
            return self._array(self._unsigned(_ARRAY[first]), depth)
        if first in (_FALSE, _TRUE):
            return first == _TRUE
        if first == _NIL:
            return None
        if first in _SIGNED:
            return int.from_bytes(self._take(_SIGNED[first]), "big", signed=True)
        if first in _BINARY:
            return self._take(self._unsigned(_BINARY[first]))
        if first == _FLOAT_32:
            return float(_FLOAT.unpack(self._take(4))[0])
        if first == _FLOAT_64:
            return float(_DOUBLE.unpack(self._take(8))[0])
        self.fail(f"type {first:#04x} is not allowed in it")

    def _array(self, count: int, depth: int) -> list[Value]:
        self._check_count(count)
        return [self.value(depth + 1) for _ in range(count)]

    def _map(self, count: int, depth: int) -> dict[str | int, Value]:
        self._check_count(2 * count)
        found: dict[str | int, Value] = {}
        for _ in range(count):
            key = self.value(depth + 1)
            if isinstance(key, bool) or not isinstance(key, (str, int)):
                self.fail("a key is neither a string nor an integer")
            if key in found:
                self.fail(f"key {str(key)[:40]!r} comes twice")
            found[key] = self.value(depth + 1)
        return found

    def _string(self, size: int) -> str:
        try:
            text = self._take(size).decode("utf-8")
        except UnicodeDecodeError:
            self.fail("a string is not UTF-8")
        return self._texts.setdefault(text, text)

    def _unsigned(self, size: int) -> int:
        return int.from_bytes(self._take(size), "big")

    def _take(self, size: int) -> bytes:
        start = self.position
        if size > len(self._data) - start:
            self.fail("it breaks off")
        self.position = start + size
        return self._data[start : self.position]

    def _check_count(self, count: int) -> None:
        self._containers += 1
        if self._containers > MAX_CONTAINERS:
            self.fail(f"it holds more than {MAX_CONTAINERS} maps and arrays")
        # A value has at least one byte.
        if count > len(self._data) - self.position:
            self.fail("a container claims more members than there are bytes")

    def fail(self, problem: str) -> NoReturn:
        raise InvalidImageError(f"{self._what} cannot be read: {problem}")
