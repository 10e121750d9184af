"""Values as GGUF files hold them: numbers, texts, and arrays of either, nested.

The format is described in ggml's docs/gguf.md. Numbers are little-endian here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ubridge.files.errors import InvalidFileError, require_valid
from ubridge.files.mapped import MappedFile

BOOL, TEXT, ARRAY = 7, 8, 9
NUMBERS: Mapping[int, np.dtype[Any]] = {
    **{0: np.dtype("<u1"), 1: np.dtype("<i1"), 2: np.dtype("<u2"), 3: np.dtype("<i2")},
    **{4: np.dtype("<u4"), 5: np.dtype("<i4"), 6: np.dtype("<f4"), BOOL: np.dtype("?")},
    **{10: np.dtype("<u8"), 11: np.dtype("<i8"), 12: np.dtype("<f8")},
}
"""Maps kinds of values to types of numbers."""
_MOST_NESTED = 8


class Reader:
    """Reads a file from its beginning, and never beyond its end."""

    def __init__(self, file: MappedFile) -> None:
        self.file = file
        self.position = 0

    @property
    def left(self) -> int:
        """Number of remaining bytes."""
        return self.file.size - self.position

    def take(self, nbytes: int, what: str) -> int:
        """Step over bytes, and return where they begin."""
        require_valid(
            nbytes <= self.left,
            self.file.path,
            f"{what}: expected {nbytes} bytes at {self.position}, there are {self.left} left",
        )
        start = self.position
        self.position += nbytes
        return start

    def number(self, form: struct.Struct, what: str) -> Any:
        """Read one number."""
        return form.unpack_from(self.file.memory, self.take(form.size, what))[0]

    def u32(self, what: str) -> int:
        """Read a number of 4 bytes."""
        return int(self.number(_U32, what))

    def u64(self, what: str) -> int:
        """Read a number of 8 bytes."""
        return int(self.number(_U64, what))

    def text(self, what: str) -> str:
        """Read a text; bytes that are no UTF-8 stay in it as surrogates."""
        length = self.u64(what)
        start = self.take(length, what)
        return str(self.file.memory[start : start + length], "utf-8", "surrogateescape")

    def skip_value(self, kind: int, what: str, depth: int = 0) -> None:
        """Step over a value of a kind; refuse an unknown kind."""
        if kind in NUMBERS:
            self.take(NUMBERS[kind].itemsize, what)
        elif kind == TEXT:
            self.take(self.u64(what), what)
        elif kind == ARRAY and depth < _MOST_NESTED:
            inner, count = self.u32(what), self.u64(what)
            if inner in NUMBERS:
                self.take(count * NUMBERS[inner].itemsize, what)
            elif inner == TEXT:
                self._skip_texts(count, what)
            elif inner != ARRAY:
                raise self._no_kind(inner, what)
            else:
                # Inner arrays take at least 12 bytes, so a wrong count soon ends at the file's end.
                for _ in range(count):
                    self.skip_value(inner, what, depth + 1)
        elif kind == ARRAY:
            raise InvalidFileError(
                f"{self.file.path}: {what}: arrays are nested deeper than {_MOST_NESTED}"
            )
        else:
            raise self._no_kind(kind, what)

    def _no_kind(self, kind: int, what: str) -> InvalidFileError:
        return InvalidFileError(
            f"{self.file.path}: {what}: expected a kind of value in 0…12, got {kind}"
        )

    def _skip_texts(self, count: int, what: str) -> None:
        unpack, memory, at, size = _U64.unpack_from, self.file.memory, self.position, self.file.size
        for _ in range(count):
            if at + 8 > size:
                self.take(size - self.position + 1, what)
            at += 8 + unpack(memory, at)[0]
        if at > size:
            self.take(at - self.position, what)
        self.position = at

    def value(self, kind: int, what: str) -> Any:
        """Read a value that `skip_value` accepted; numbers and texts are Python's."""
        if kind == BOOL:
            byte = self.file.memory[self.take(1, what)]
            require_valid(
                byte <= 1,
                self.file.path,
                f"{what}: expected 0 or 1, got {byte}",
            )
            return bool(byte)
        if kind in NUMBERS:
            dtype = NUMBERS[kind]
            start = self.take(dtype.itemsize, what)
            return self.file.pages[start : start + dtype.itemsize].view(dtype)[0].item()
        if kind == TEXT:
            return self.text(what)
        inner, count = self.u32(what), self.u64(what)
        if inner in NUMBERS:
            nbytes = count * NUMBERS[inner].itemsize
            start = self.take(nbytes, what)
            raw = self.file.view(start, nbytes)
            require_valid(
                inner != BOOL or not raw.size or raw.max() <= 1,
                self.file.path,
                f"{what}: expected only 0 and 1",
            )
            return raw.view(NUMBERS[inner]).copy()
        if inner == TEXT:
            return self._texts(count)
        return [self.value(inner, what) for _ in range(count)]

    def _texts(self, count: int) -> list[str]:
        """Read many texts, as `text` does: vocabularies have hundreds of thousands of tokens."""
        unpack, memory, at = _U64.unpack_from, self.file.memory, self.position
        found = []
        for _ in range(count):
            start = at + 8
            at = start + unpack(memory, at)[0]
            found.append(str(memory[start:at], "utf-8", "surrogateescape"))
        self.position = at
        return found


_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")


@dataclass(frozen=True)
class _Value:
    kind: int
    start: int


class Metadata(Mapping[str, Any]):
    """The metadata of a file; each value is read on access.

    Numbers and texts are Python objects, arrays of numbers numpy arrays, other arrays lists.
    """

    def __init__(self, file: MappedFile) -> None:
        """Create empty metadata; `add` adds values."""
        self._file = file
        self._values: dict[str, _Value] = {}

    def add(self, key: str, kind: int, start: int) -> None:
        """Note where a value is."""
        self._values[key] = _Value(kind, start)

    def kind_of(self, key: str) -> tuple[int, ...]:
        """Return the kind of a value; for an array, also the kinds of its elements, inwards."""
        found = self._values[key]
        kinds, start = [found.kind], found.start
        while kinds[-1] == ARRAY:
            kinds.append(_U32.unpack_from(self._file.memory, start)[0])
            # An empty array of arrays does not give the type of inner elements.
            if kinds[-1] == ARRAY and _U64.unpack_from(self._file.memory, start + 4)[0] == 0:
                break
            start += 12
        return tuple(kinds)

    def __getitem__(self, key: str) -> Any:
        found = self._values[key]
        reader = Reader(self._file)
        reader.position = found.start
        return reader.value(found.kind, key)

    def __contains__(self, key: object) -> bool:
        # The method does not read the value.
        return key in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"<metadata: {', '.join(self._values)}>"
