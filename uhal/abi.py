"""Binds a vendor's native library to its ABI header, and finds that library.

The header (`<backend>/abi.h`) is the only statement of every prototype, struct and constant; the
compiled lane and the simulated drivers include the same file as C. The build turns it into a table
(`uhal.abi_table`), and this module reads only that table. Importing this module opens nothing.
"""

from __future__ import annotations

import ctypes
import functools
import json
import os
import re
import sys
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

from uhal import _lane
from uhal.contract import Backend, BackendRecord, DeviceSummary, LibraryAttempt, joined_reasons
from uhal.errors import DeviceError, LibraryNotFoundError

__all__ = [
    "Check",
    "Header",
    "Library",
    "LibraryBackend",
    "LibraryFacts",
    "LibrarySearch",
    "Prototype",
    "find_library",
    "open_library",
]

Check = Callable[[str, int], None]
"""Called with a function's name and its non-zero result; raises the backend's exception."""


_SCALARS: dict[str, type[Any]] = {
    "char": ctypes.c_char,
    "bool": ctypes.c_bool,
    "i8": ctypes.c_int8,
    "u8": ctypes.c_uint8,
    "i16": ctypes.c_int16,
    "u16": ctypes.c_uint16,
    "i32": ctypes.c_int32,
    "u32": ctypes.c_uint32,
    "i64": ctypes.c_int64,
    "u64": ctypes.c_uint64,
    "f32": ctypes.c_float,
    "f64": ctypes.c_double,
    "address": ctypes.c_void_p,
    "text": ctypes.c_char_p,
}


class Prototype(NamedTuple):
    """A declared function, with types in the encoding of `uhal.abi_table`."""

    name: str
    result: Any
    status: str
    """The typedef that names the result; empty for any other result."""
    parameters: tuple[tuple[str, Any], ...]
    """(name, type) of each parameter; the name may be empty."""
    line: int


class Header:
    """The declarations of an ABI header, from its table. Any thread may use it."""

    def __init__(self, table: Mapping[str, Any], name: str = "abi.h") -> None:
        """Take a table made by `uhal.abi_table`; messages call the header `name`."""
        self.name = name
        self.constants: Mapping[str, int] = table["constants"]
        """Macros and enumerators by name."""
        self.prototypes: Mapping[str, Prototype] = {
            name: Prototype(
                name,
                one["result"],
                one["status"],
                tuple(map(tuple, one["parameters"])),
                one["line"],
            )
            for name, one in table["functions"].items()
        }
        """Functions by name, in the header's order."""
        self._types: Mapping[str, Any] = table["types"]
        self._members: Mapping[str, Any] = table["records"]
        self._records: dict[str, type[Any]] = {}

    @classmethod
    def load(cls, path: Path) -> Header:
        """Return a header by its path; its table (`abi.json` for `abi.h`) lies beside it.

        `LibraryNotFoundError` where the build made no table.
        """
        table = path.with_suffix(".json")
        try:
            return cls(json.loads(table.read_bytes()), path.name)
        except FileNotFoundError:
            raise LibraryNotFoundError(
                f"{table} is missing. Build uhal: python setup.py build_ext --inplace, "
                f"or make the table of your own header: python -m uhal.abi_table {path.name}"
            ) from None

    def ctype(self, name: str) -> type[Any]:
        """Return the ctypes type of a typedef, or of a struct or union by its tag.

        A pointer to an undefined type is `c_void_p`; `const char *` is `c_char_p`.
        `KeyError` when the header does not define it.
        """
        if name in self._types:
            return self._ctype(self._types[name])
        for key in (f"struct {name}", f"union {name}"):
            if key in self._members:
                return self._record(key)
        raise KeyError(f"{self.name} declares no type {name}")

    def argtypes(self, function: str) -> list[type[Any]]:
        """Return the ctypes types of a function's parameters."""
        return [self._ctype(kind) for _, kind in self.prototypes[function].parameters]

    def restype(self, function: str) -> type[Any] | None:
        """Return the ctypes type of a function's result, `None` for void."""
        return self._result(self.prototypes[function].result)

    def function_type(self, function: str) -> type[Any]:
        """Return the ctypes type of pointers to a function with this prototype."""
        return ctypes.CFUNCTYPE(self.restype(function), *self.argtypes(function))

    def _result(self, encoded: Any) -> type[Any] | None:
        return None if encoded == "void" else self._ctype(encoded)

    def _ctype(self, encoded: Any) -> type[Any]:
        if isinstance(encoded, str):
            return _SCALARS[encoded]
        kind, target, *rest = encoded
        if kind == "record":
            return self._record(target)
        if kind == "()":
            return ctypes.CFUNCTYPE(self._result(target), *map(self._ctype, rest[0]))
        if kind == "[]":
            array: type[Any] = self._ctype(target) * rest[0]
            return array
        pointer: type[Any] = ctypes.POINTER(self._ctype(target))
        return pointer

    def _record(self, key: str) -> type[Any]:
        found = self._records.get(key)
        if found is None:
            keyword, _, tag = key.partition(" ")
            base = ctypes.Structure if keyword == "struct" else ctypes.Union
            made: Any = type(tag, (base,), {})
            members = self._members[key]
            self._records[key] = made  # before the members, which may point back to the type
            made._anonymous_ = [
                f"_anonymous_{i}" for i, (name, _) in enumerate(members) if not name
            ]
            made._fields_ = [
                (name or f"_anonymous_{i}", self._ctype(kind))
                for i, (name, kind) in enumerate(members)
            ]
            found = made
        return found


@dataclass(frozen=True)
class LibrarySearch:
    """Result of looking for a library. `handle` is `None` when every attempt failed."""

    handle: ctypes.CDLL | None
    path: str | None
    """The file that the loader chose, if the system reports it."""
    attempts: tuple[LibraryAttempt, ...]


def find_library(variable: str, candidates: Sequence[str]) -> LibrarySearch:
    """Open only the file that environment `variable` names, or else the first candidate.

    Candidates are sonames for the system's loader or absolute paths. The working directory is
    never searched: a bare name in the variable goes to the loader too.
    """
    override = os.environ.get(variable)
    if override:
        candidates = [str(Path(override).absolute()) if os.sep in override else override]
    attempts: list[LibraryAttempt] = []
    for candidate in candidates:
        name = _printable(candidate)
        try:
            handle = open_library(candidate)
        except OSError as error:
            attempts.append(LibraryAttempt(name, _loader_words(name, error)))
            continue
        attempts.append(LibraryAttempt(name, "opened"))
        return LibrarySearch(handle, _path_of(handle) or name, tuple(attempts))
    return LibrarySearch(None, None, tuple(attempts))


def open_library(path: str | Path) -> ctypes.CDLL:
    """Open a native library with private symbols. `OSError` has the loader's message.

    The calling thread's rounding mode is kept, even if the library changes it. A bare name is
    refused where the loader would find it in the working directory.
    """
    _require_not_in_working_directory(str(path))
    with _lane.KeptArithmetic():
        try:
            return ctypes.CDLL(str(path))
        except UnicodeDecodeError as error:
            # ctypes decodes the loader's message as UTF-8, but paths are bytes.
            raise OSError(error.object.decode("utf-8", "backslashreplace")) from None


def _require_not_in_working_directory(name: str) -> None:
    """Refuse a bare name that an empty element of `LD_LIBRARY_PATH` finds first."""
    if os.sep in name:
        return
    for folder in _search_path():
        if not os.path.exists(os.path.join(folder, name)):
            continue
        if folder:
            return
        raise OSError(
            f"{name}: LD_LIBRARY_PATH has an empty element, by which the loader takes this name "
            f"from the working directory, {os.getcwd()}. Remove the element, or set the path of "
            "the library"
        )


@functools.cache
def _search_path() -> tuple[str, ...]:
    """The elements of `LD_LIBRARY_PATH`, which the loader reads when the process starts."""
    try:
        variables = Path("/proc/self/environ").read_bytes().split(b"\0")
    except OSError:
        return ()
    found = [one for one in variables if one.startswith(b"LD_LIBRARY_PATH=")]
    value = os.fsdecode(found[0].partition(b"=")[2]) if found else ""
    return tuple(re.split("[:;]", value)) if value else ()


def _printable(path: str) -> str:
    """Return a path as text that every stream of UTF-8 takes."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


_Self = TypeVar("_Self", bound="LibraryBackend")


@dataclass(frozen=True)
class LibraryFacts:
    """Location of a driver library, and phrases for errors about it, without full stops."""

    variable: str
    candidates: tuple[str, ...]
    """Arguments of `find_library`: the variable and the candidates."""
    purpose: str
    """Name of the platform, such as `CUDA`."""
    software: str
    """Product that its version number belongs to."""
    install: str
    """Advice for installing the library."""
    no_device: str
    """Advice for a library that shows no device."""


class LibraryBackend(Backend):
    """Base of a backend over one driver library: probes and opens the library.

    Constructing a subclass from a successful search initializes the library and may raise
    `DeviceError`. A subclass that can list devices without construction overrides `_probe_found`.
    """

    library: ClassVar[LibraryFacts]

    @abstractmethod
    def __init__(self, search: LibrarySearch) -> None: ...

    @abstractmethod
    def device_summary(self, ordinal: int) -> DeviceSummary:
        """Describe a device without creating anything on it."""

    @classmethod
    def probe(cls) -> BackendRecord:
        """Open the library and list its devices. Creates nothing on a device."""
        search = find_library(cls.library.variable, cls.library.candidates)
        if search.handle is None:
            reason = joined_reasons(search.attempts)
            return BackendRecord(cls.name, "absent", reason, cls.library.install, search.attempts)
        try:
            return cls._probe_found(search)
        except DeviceError as error:
            # The message ends with the advice for the code, if any.
            return BackendRecord(cls.name, "refused", str(error), "", search.attempts, search.path)

    @classmethod
    def _probe_found(cls, search: LibrarySearch) -> BackendRecord:
        """Describe an opened library. May raise `DeviceError`."""
        opened = cls(search)
        count = opened.device_count()
        devices = tuple(opened.device_summary(ordinal) for ordinal in range(count))
        version = opened.version()
        return BackendRecord(
            cls.name,
            "ok" if devices else "absent",
            f"{count} device{'' if count == 1 else 's'}, {cls.library.software} {version}",
            "" if devices else cls.library.no_device,
            search.attempts,
            search.path,
            version,
            devices,
        )

    @classmethod
    def open(cls: type[_Self]) -> _Self:
        """Open and initialize the library. `LibraryNotFoundError` if it is missing."""
        search = find_library(cls.library.variable, cls.library.candidates)
        if search.handle is None:
            tried = joined_reasons(search.attempts)
            raise LibraryNotFoundError(
                f"{tried}. To use {cls.library.purpose}, {cls.library.install}.", backend=cls.name
            )
        return cls(search)


class Library:
    """An opened native library whose functions have the header's prototypes.

    `library.cuInit(0)` calls the function. A function of the header's status type calls
    `check(name, result)` for every result but 0, so that no call site tests for errors. Symbols are
    resolved one by one at their first use. Any thread may call; the GIL is released meanwhile.
    """

    def __init__(
        self,
        handle: ctypes.CDLL,
        path: str,
        header: Header,
        *,
        status: str,
        check: Check,
        symbol: Callable[[str], str] = str,
    ) -> None:
        """Bind an opened library. `status` is the typedef of results that are error codes.

        `symbol` returns the library's name of a function of the header.
        """
        self.path = path
        self.header = header
        self._handle = handle
        self._status = status
        self._check = check
        self._symbol_of = symbol
        self._checked: dict[str, Callable[..., Any]] = {}
        self._unchecked: dict[str, Callable[..., Any]] = {}

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Return the function with its error check.

        `AttributeError` when the header does not declare it, `LibraryNotFoundError` when this
        version of the library does not have it.
        """
        if name.startswith("_") or name not in self.header.prototypes:
            raise AttributeError(f"{self.header.name} declares no function {name}")
        function = self._checked.get(name)
        if function is None:
            function = self._bind(name)
            if self._returns_status(name):
                function.errcheck = functools.partial(_check_result, self._check, name)  # type: ignore[attr-defined]
            self._checked[name] = function
        return function

    def unchecked(self, name: str) -> Callable[..., Any]:
        """Return the function without a check, for calls whose status is a result."""
        function = self._unchecked.get(name)
        if function is None:
            function = self._unchecked[name] = self._bind(name)
        return function

    def has(self, name: str) -> bool:
        """Return whether the library has the function."""
        return self._symbol(name) is not None

    def missing(self) -> tuple[str, ...]:
        """Return the functions of the header that this version of the library lacks."""
        return tuple(name for name in self.header.prototypes if not self.has(name))

    def address(self, name: str) -> int:
        """Return the function's address, for a hot table. It stays valid until the process ends."""
        function: Any = self._bind(name)
        return ctypes.cast(function, ctypes.c_void_p).value or 0

    def _returns_status(self, name: str) -> bool:
        return self.header.prototypes[name].status == self._status

    def _symbol(self, name: str) -> Any:
        try:
            # Subscription makes a new object each time, so a check belongs to one object only.
            return self._handle[self._symbol_of(name)]
        except AttributeError:
            return None

    def _bind(self, name: str) -> Callable[..., Any]:
        function = self._symbol(name)
        if function is None:
            symbol = self._symbol_of(name)
            raise LibraryNotFoundError(f"{self.path} has no function {symbol}", call=symbol)
        function.restype = self.header.restype(name)
        function.argtypes = self.header.argtypes(name)
        bound: Callable[..., Any] = function
        return bound


def _check_result(check: Check, name: str, result: int, *_: object) -> int:
    if result != 0:
        check(name, result)
    return result


def _loader_words(candidate: str, error: OSError) -> str:
    """Return the loader's sentence without the file name it repeats."""
    words = str(error)
    return words.removeprefix(f"{candidate}: ")


def _path_of(handle: ctypes.CDLL) -> str | None:
    """Return the file that the loader opened."""
    if not sys.platform.startswith("linux"):
        return None

    class LinkMap(ctypes.Structure):
        _fields_ = (("l_addr", ctypes.c_size_t), ("l_name", ctypes.c_char_p))

    request_link_map = 2
    link_map = ctypes.POINTER(LinkMap)()
    try:
        dlinfo = ctypes.CDLL(None).dlinfo
    except (OSError, AttributeError):
        return None
    dlinfo.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
    if dlinfo(handle._handle, request_link_map, ctypes.byref(link_map)) != 0 or not link_map:
        return None
    name = link_map.contents.l_name
    return name.decode("utf-8", "backslashreplace") if name else None


def open_own_library(
    path: Path, header: Header, prefix: str, version: str, *, backend: str, check: Check
) -> Library:
    """Open the native library of one of uhal's own backends.

    Names of the library's functions and of its result type begin with `prefix`. `<prefix>Version`
    returns the version of the library's interface, which must equal the header's constant
    `version`. `LibraryNotFoundError` if it was not built or has another version.
    """
    build = "build it: python setup.py build_ext --inplace"
    try:
        handle = open_library(path)
    except OSError as error:
        raise LibraryNotFoundError(f"{error}. {build}", backend=backend) from error
    library = Library(handle, str(path), header, status=f"{prefix}Result", check=check)
    missing = library.missing()
    if missing:
        raise LibraryNotFoundError(f"{path} has no {missing[0]}. {build}", backend=backend)
    found = ctypes.c_int()
    getattr(library, f"{prefix}Version")(found)
    expected = header.constants[version]
    if found.value != expected:
        raise LibraryNotFoundError(
            f"{path} has version {found.value} of its interface, expected {expected}. {build}",
            backend=backend,
        )
    return library
