"""`Settings`: reads named values from files and checks each.

A loader asks for a value by name, type and range, and gets it or an `InvalidFileError` that names
the file and the key. A null counts as a missing value.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from ubridge.files.errors import InvalidFileError, require_valid
from uhal.errors import NotSupportedError
from uhal.images.regular_file import require_file

REQUIRED: Any = object()
"""Default that refuses a file without the value."""
MOST = (1 << 63) - 1
"""The largest integer that is read, unless a caller says less."""
MOST_JSON_BYTES = 1 << 26
"""A larger file of JSON is refused: its objects would take gigabytes."""
_T = TypeVar("_T")
_V = TypeVar("_V")


class Settings:
    """Named values of one file, with a record of reads. One thread at a time may use it.

    Methods take a name, a default for files without the value (`REQUIRED`: there is none) and a
    range. Methods raise `InvalidFileError` for a value of another type or out of range, and
    `NotSupportedError` for an unknown text.
    """

    def __init__(
        self,
        where: object,
        values: Mapping[str, Any],
        *,
        names: Mapping[str, Sequence[str]] | None = None,
        defaults: Mapping[str, Any] | None = None,
        bounds: Mapping[str, tuple[int, str]] | None = None,
        prefix: str = "",
    ) -> None:
        """Take the values of a file, which messages call `where`.

        `names` maps a name to possible keys; the first key in the file counts. By default the key
        is the name. `defaults` override the defaults of callers. `bounds` gives the largest integer
        a name may have, and the reason. `prefix` stands before keys in messages.
        """
        self.where = where
        self._values = values
        self._names = names or {}
        self._defaults = defaults or {}
        self._bounds = bounds or {}
        self._prefix = prefix
        self._asked: set[str] = set()
        self._sections: dict[str, Settings] = {}

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Settings:
        """Read a file with one JSON object. Raises `OSError` and `InvalidFileError`."""
        return cls.parse(path, bytes_of_file(path))

    @classmethod
    def parse(cls, where: object, text: str | bytes) -> Settings:
        """Read one JSON object; messages name `where` as its source."""
        return cls(where, object_of(where, text))

    def read_as(
        self,
        names: Mapping[str, Sequence[str]],
        defaults: Mapping[str, Any] | None = None,
        bounds: Mapping[str, tuple[int, str]] | None = None,
    ) -> Settings:
        """Return the same values by other names, with more defaults and bounds.

        Both objects share the record of the values that were read.
        """
        found = Settings(
            self.where,
            self._values,
            names={**self._names, **names},
            defaults={**self._defaults, **(defaults or {})},
            bounds={**self._bounds, **(bounds or {})},
            prefix=self._prefix,
        )
        found._asked, found._sections = self._asked, self._sections
        return found

    def joined(self, inside: Settings) -> Settings:
        """Return these values, overridden by the values of a section."""
        found = Settings(self.where, {**self._values, **inside._values}, prefix=self._prefix)
        found._asked, found._sections = self._asked, self._sections
        inside.ignore(*inside._values)
        return found

    # -- one value -------------------------------------------------------------------------------

    def integer(
        self, name: str, default: _T = REQUIRED, least: int = 0, most: int = MOST
    ) -> int | _T:
        """Return an integer of `least` to `most`."""
        return self._one(
            name, default, lambda key, value: self._integer(name, key, value, least, most)
        )

    def number(
        self,
        name: str,
        default: _T = REQUIRED,
        *,
        above: float = -math.inf,
        least: float = -math.inf,
        most: float = math.inf,
    ) -> float | _T:
        """Return a finite number: more than `above`, at least `least`, at most `most`."""
        return self._one(
            name, default, lambda key, value: self._number(key, value, above, least, most)
        )

    def flag(self, name: str, default: _T = REQUIRED) -> bool | _T:
        """Return true or false."""
        return self._one(
            name, default, lambda key, value: self._of(key, value, bool, "true or false")
        )

    def text(
        self, name: str, default: _T = REQUIRED, among: Collection[str] | None = None
    ) -> str | _T:
        """Return a text that is in `among`."""
        return self._one(name, default, lambda key, value: self._text(key, value, among))

    # -- several ---------------------------------------------------------------------------------

    def integers(
        self, name: str, default: _T = REQUIRED, least: int = 0, most: int = MOST
    ) -> tuple[int, ...] | _T:
        """Return the integers of a list."""
        return self._list(
            name,
            default,
            "integers",
            lambda key, value: self._integer(name, key, value, least, most),
        )

    def one_or_more(
        self, name: str, default: _T = REQUIRED, least: int = 0, most: int = MOST
    ) -> tuple[int, ...] | _T:
        """Return the integers of a list, or a single integer as a list."""
        if isinstance(self.value(name), list):
            return self.integers(name, default, least, most)
        only = self.integer(name, default, least, most)
        return (only,) if isinstance(only, int) else only

    def numbers(
        self,
        name: str,
        default: _T = REQUIRED,
        *,
        least: float = -math.inf,
        most: float = math.inf,
    ) -> tuple[float, ...] | _T:
        """Return the finite numbers of a list."""
        return self._list(
            name,
            default,
            "numbers",
            lambda key, value: self._number(key, value, -math.inf, least, most),
        )

    def texts(
        self, name: str, default: _T = REQUIRED, among: Collection[str] | None = None
    ) -> tuple[str, ...] | _T:
        """Return the texts of a list, each in `among`."""
        return self._list(name, default, "texts", lambda key, value: self._text(key, value, among))

    def section(self, name: str) -> Settings:
        """Return the values of an object, which is empty if the file has none."""
        key, value = self._found(name)
        if key not in self._sections:
            inside = {} if value is None else self._of(key, value, dict, "an object")
            self._sections[key] = Settings(self.where, inside, prefix=f"{self._prefix}{key}.")
        return self._sections[key]

    # -- what there is ---------------------------------------------------------------------------

    def value(self, name: str) -> Any:
        """Return a value as the file has it, unchecked; `None` for a missing value."""
        return self._found(name)[1]

    def __contains__(self, name: str) -> bool:
        """Return whether the file has a value for a name."""
        return any(self._values.get(key) is not None for key in self._keys(name))

    def is_null(self, name: str) -> bool:
        """Return whether the file has a null for a name."""
        return name not in self and any(key in self._values for key in self._keys(name))

    def ignore(self, *names: str) -> None:
        """Record as read the values that have no effect."""
        for name in names:
            self._asked.update(self._keys(name))

    def __iter__(self) -> Iterator[str]:
        """Yield the keys of the file."""
        return iter(self._values)

    def asked(self) -> set[str]:
        """Return the keys that were read or looked for."""
        return set(self._asked)

    def unread(self) -> Iterator[tuple[str, Any]]:
        """Yield the keys that were not read, as messages name them, and their values."""
        for key, value in self._values.items():
            if key not in self._asked:
                yield f"{self._prefix}{key}", value
        for inside in self._sections.values():
            yield from inside.unread()

    def refuse(self, name: str, expected: str, got: Any = REQUIRED) -> InvalidFileError:
        """Return the error for a value that contradicts another."""
        key, value = self._found(name)
        return self._wrong(key, expected, value if got is REQUIRED else got)

    # -- inside ----------------------------------------------------------------------------------

    def _keys(self, name: str) -> Sequence[str]:
        return self._names.get(name, (name,))

    def _found(self, name: str) -> tuple[str, Any]:
        """The key in the file and its value; the first key if the file has none."""
        keys = self._keys(name)
        self._asked.update(keys)
        for key in keys:
            value = self._values.get(key)
            if value is not None:
                return key, value
        return name if name in keys else keys[0], None

    def _one(self, name: str, default: _T, checked: Callable[[str, Any], _V]) -> _V | _T:
        key, value = self._found(name)
        if value is not None:
            return checked(key, value)
        usual = self._defaults.get(name)
        if usual is not None:
            # A model's default may not fit the other values of its file.
            try:
                return checked(key, usual)
            except InvalidFileError as error:
                raise InvalidFileError(f"{error}, the default") from None
        otherwise: _T = self._defaults.get(name, default)
        if otherwise is REQUIRED:
            raise InvalidFileError(f"{self.where}: {self._prefix}{key}: expected a value, got none")
        return otherwise

    def _list(
        self, name: str, default: _T, what: str, checked: Callable[[str, Any], _V]
    ) -> tuple[_V, ...] | _T:
        def several(key: str, value: Any) -> tuple[_V, ...]:
            found = self._of(key, value, list, f"a list of {what}")
            return tuple([checked(key, one) for one in found])

        return self._one(name, default, several)

    def _wrong(self, key: str, expected: str, value: Any) -> InvalidFileError:
        return InvalidFileError(
            f"{self.where}: {self._prefix}{key}: expected {expected}, got {shown(value)}"
        )

    def _of(self, key: str, value: Any, kind: type[_T], expected: str) -> _T:
        if not isinstance(value, kind):
            raise self._wrong(key, expected, value)
        return value

    def _integer(self, name: str, key: str, value: Any, least: int, most: int) -> int:
        bound, why = self._bounds.get(name, (MOST, ""))
        if type(value) is int and least <= value <= min(most, bound):
            return value
        limit = min(most, bound)
        wanted = f"of at least {least}" if limit == MOST else f"of {least} to {limit}"
        reason = f", {why}" if limit == bound and why else ""
        raise self._wrong(key, f"an integer {wanted}{reason}", value)

    def _number(self, key: str, value: Any, above: float, least: float, most: float) -> float:
        # A finite float, or an integer that is not too large for one.
        is_finite = type(value) in (int, float) and abs(value) <= sys.float_info.max
        if is_finite and value > above and least <= value <= most:
            return float(value)
        limits = [
            f"{words} {limit:g}"
            for words, limit in (("more than", above), ("at least", least), ("at most", most))
            if math.isfinite(limit)
        ]
        raise self._wrong(key, " ".join(["a number", " and ".join(limits)]).rstrip(), value)

    def _text(self, key: str, value: Any, among: Collection[str] | None) -> str:
        found = self._of(key, value, str, "a text")
        if among is not None and found not in among:
            raise NotSupportedError(
                f"{self.where}: {self._prefix}{key}: expected one of {', '.join(among)}, "
                f"got {shown(found)}"
            )
        return found


def shown(value: Any) -> str:
    """Return a value in JSON, truncated."""
    try:
        text = json.dumps(value, ensure_ascii=True)
    except (TypeError, ValueError, RecursionError):
        text = repr(value)
    return text if len(text) <= 80 else f"{text[:79]}…"


def bytes_of_file(path: str | os.PathLike[str], most: int = MOST_JSON_BYTES) -> bytes:
    """Return the contents of a small file. Raises `OSError` and `InvalidFileError`."""
    require_file(path, InvalidFileError)
    with Path(path).open("rb") as file:
        found = file.read(most + 1)
    require_valid(len(found) <= most, path, f"expected a file of at most {most} bytes")
    return found


def text_of_file(path: str | os.PathLike[str], most: int = MOST_JSON_BYTES) -> str:
    """Return the text of a small file of UTF-8. Raises `OSError` and `InvalidFileError`."""
    return _decoded(path, bytes_of_file(path, most))


def object_of(where: object, text: str | bytes) -> dict[str, Any]:
    """Return the one JSON object of a text. Raises `InvalidFileError`."""
    try:
        found = json.loads(_decoded(where, text) if isinstance(text, bytes) else text)
    except (ValueError, RecursionError) as error:
        if isinstance(error, InvalidFileError):
            raise
        raise InvalidFileError(f"{where}: expected JSON: {error}") from None
    if not isinstance(found, dict):
        raise InvalidFileError(f"{where}: expected an object of JSON, got {shown(found)}")
    return found


def _decoded(where: object, raw: bytes) -> str:
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidFileError(
            f"{where}: expected text of UTF-8, got byte {raw[error.start]:#04x} at {error.start}"
        ) from None
