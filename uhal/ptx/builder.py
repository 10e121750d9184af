"""Builds a kernel's PTX while its Python function runs: registers, lines, scopes.

PTX registers are virtual, so each value gets its own. A value belongs to its scope (the body of an
`if_` or a loop). Uses after the scope are refused, because the value may not have been computed.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterable, Iterator
from typing import NoReturn

from uhal.errors import ArgumentTypeError, ArgumentValueError
from uhal.ptx.instructions import Version, needs
from uhal.ptx.types import Type

FIRST_TARGET = 75
"""The oldest target of a kernel: older devices have left CUDA."""
FIRST_VERSION: Version = (6, 3)
MOST_STATIC_SHARED = 48 << 10
"""Bytes of shared memory that a kernel may declare; a launch sets any larger size."""

_HERE = os.path.dirname(os.path.abspath(__file__))
_LETTERS = {"pred": "%p", "b16": "%h", "b32": "%r", "b64": "%d"}
_is_internal: dict[str, bool] = {contextlib.__file__: True}
"""Whether a file is part of the builder; hashing code objects would take longer."""

Line = tuple[str, int]
"""File and number of a line of Python."""


def caller() -> Line:
    """File and line of the innermost frame outside the builder."""
    frame = sys._getframe(1)
    while True:
        file = frame.f_code.co_filename
        is_internal = _is_internal.get(file)
        if is_internal is None:
            is_internal = _is_internal[file] = os.path.dirname(file) == _HERE
        if not is_internal or frame.f_back is None:
            return file, frame.f_lineno
        frame = frame.f_back


def location(where: Line) -> str:
    """A file and a line, for the end of messages."""
    return f"[{os.path.basename(where[0])}:{where[1]}]"


def here() -> str:
    """The line in the kernel's source, for messages."""
    return location(caller())


def refuse(message: str) -> NoReturn:
    """Raise a type error that ends with the line in the kernel's source."""
    raise ArgumentTypeError(f"{message} {here()}")


def refuse_value(message: str) -> NoReturn:
    """Raise a value error that ends with the line in the kernel's source."""
    raise ArgumentValueError(f"{message} {here()}")


def braces(texts: Iterable[str]) -> str:
    """The text of a vector."""
    return f"{{{', '.join(texts)}}}"


class Scope:
    """A body of statements; values made in it are usable while it is open."""

    def __init__(self, kind: str, again: str = "", end: str = "") -> None:
        self.kind = kind
        self.where = here()
        self.is_open = True
        self.again, self.end = again, end
        """Labels of a loop that `continue_` and `break_` branch to."""


class Program:
    """Shared state of a module's functions: variables, files, first target and version."""

    def __init__(self) -> None:
        self.target = FIRST_TARGET
        self.version = FIRST_VERSION
        self.spelled: set[str] = set()
        """Instructions whose first target and version are known."""
        self.files: dict[str, int] = {}
        self.declarations: dict[str, str] = {}
        """Variables and heads of functions of the module, by name, in order."""
        self.names: dict[object, str] = {}
        """Names of the module's functions, including unfinished ones."""
        self.functions: dict[object, str] = {}
        """Texts of device functions, in the order of their ends: callees first."""

    def need(self, target: int, version: Version) -> None:
        """Raise the first target and version to these minimums."""
        self.target = max(self.target, target)
        self.version = max(self.version, version)

    def text(self, body: str, comments: str) -> str:
        """The whole module."""
        files = "".join(f'.file {number} "{path}"\n' for path, number in self.files.items())
        return (
            f"{comments}.version {self.version[0]}.{self.version[1]}\n"
            f".target sm_{self.target}\n.address_size 64\n\n{files}"
            f"{''.join(f'{one}{chr(10)}' for one in self.declarations.values())}\n"
            f"{''.join(self.functions.values())}{body}"
        )


class Builder:
    """A function being built. Operations find it by `current()`."""

    def __init__(self, program: Program, name: str) -> None:
        self.program = program
        self.name = name
        self.lines: list[str] = []
        self.prologue: list[str] = []
        """Statements that run before all others; their values are usable everywhere."""
        self.scopes: list[Scope] = [Scope("kernel")]
        self.unset: dict[object, None] = {}
        """Variables that may have no value at the current statement."""
        self.ended_if: tuple[int, str, dict[object, None], dict[object, None]] | None = None
        """The last `if_`: lines up to its end, its label, `unset` before and after it."""
        self.shared_bytes = 0
        self.head: Line | None = None
        """The line of the function's head, while its parameters and its end are built."""
        self.abandoned: Scope | None = None
        """A body that Python's `break` or an error left."""
        self._counts = dict.fromkeys(_LETTERS, 0)
        self._labels = 0
        self._names = 0
        self._told: Line | None = None

    def register(self, of: Type) -> str:
        """A new register."""
        number = self._counts[of.register] = self._counts[of.register] + 1
        return f"{_LETTERS[of.register]}{number}"

    def label(self) -> str:
        """A new label."""
        self._labels += 1
        return f"$L{self._labels}"

    def symbol(self, purpose: str) -> str:
        """A new name of a variable."""
        self._names += 1
        return f"{self.name}_{purpose}{self._names}"

    def emit(self, spelling: str, *operands: str, guard: str = "") -> None:
        """Add an instruction of the table."""
        if spelling not in self.program.spelled:
            self.program.spelled.add(spelling)
            self.program.need(*needs(spelling))
        where = self.head or caller()
        if where != self._told:
            self._told = where
            files = self.program.files
            number = files.setdefault(where[0], len(files) + 1)
            self.lines.append(f".loc {number} {where[1]} 1")
        self.lines.append(f"{guard}{spelling}{' ' * bool(operands)}{', '.join(operands)};")

    def mark(self, label: str) -> None:
        """Place a label here."""
        self.lines.append(f"{label}:")

    def branch(self, label: str, guard: str = "") -> None:
        """Branch to a label, under a guard such as `@!%p1 `."""
        self.emit("bra", label, guard=guard)

    @contextlib.contextmanager
    def scope(self, scope: Scope) -> Iterator[None]:
        """Build a body."""
        self.scopes.append(scope)
        try:
            yield
        except BaseException:
            self.abandoned = scope
            raise
        finally:
            self.leave(scope)

    def leave(self, scope: Scope) -> None:
        """End a body, and inner bodies that an error left open."""
        while scope.is_open:
            self.scopes.pop().is_open = False

    def body(self) -> str:
        """The function's body, in braces."""
        if self.abandoned is not None:
            raise ArgumentValueError(
                f"{self.abandoned.kind}: expected its body to run to the end while the kernel is "
                "built, got Python's `break` or an error. Use `break_()` of uhal.ptx. "
                f"{self.abandoned.where}"
            )
        registers = "".join(
            f"\t.reg .{kind} {letters}<{self._counts[kind] + 1}>;\n"
            for kind, letters in _LETTERS.items()
            if self._counts[kind]
        )
        lines = "".join(
            f"{line}\n" if line[0] == "$" else f"\t{line}\n" for line in self.prologue + self.lines
        )
        return f"{{\n{registers}{lines}}}\n"


_building = threading.local()


def current(operation: str) -> Builder:
    """Return the function that this thread builds. `ArgumentValueError` outside a kernel."""
    stack: list[Builder] = _building.__dict__.get("stack", [])
    if not stack:
        hint = "Move it into a function decorated with `@kernel`."
        refuse_value(f"{operation}: expected a call while a kernel is built, got another. {hint}")
    return stack[-1]


@contextlib.contextmanager
def building(builder: Builder) -> Iterator[None]:
    """Make a function the current one of this thread."""
    stack = _building.__dict__.setdefault("stack", [])
    stack.append(builder)
    try:
        yield
    finally:
        stack.pop()
