"""Answers a simulated driver's requests, one per line, until the driver ends.

    describe TEXT-FILE DESCRIPTION-FILE              check a text; write facts for a driver
    translate TEXT-FILE ENTRY CHECK LIBRARY-FILE     translate a kernel into a shared library

Words are separated by tabs. The answer is `done`, or kind, line of the text and words of a problem,
separated by tabs; kinds are no_ptx, unsupported, unavailable and failed. A complete file is renamed
into place.
"""

from __future__ import annotations

import functools
import os
import re
import select
import sys
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path

from .cache import BuildError, make_library
from .errors import PtxError, PtxSyntaxError, UnsupportedPtxError
from .parser import parse, read_function
from .program import Instruction, Program
from .table import is_known
from .unit import variable_offsets

READ_WHOLE_CHARACTERS = 1 << 19
"""Most characters of all bodies that are read when the module is loaded."""
_OPCODE = re.compile(r"(?:^|[;{}:])\s*(?:@\s*!?\s*[\w$%]+\s+)?([a-z]\w*)")
IDLE_SECONDS = 30
"""Idle time before the process ends; a driver starts a new process when it needs one."""


def serve() -> None:
    """Answer until standard input ends or no request comes."""
    # Files of the driver's process do not belong to this process.
    os.closerange(3, 4096)
    pending = b""
    while select.select([0], [], [], IDLE_SECONDS)[0]:
        received = os.read(0, 1 << 16)
        if not received:
            return
        *questions, pending = (pending + received).split(b"\n")
        for question in questions:
            os.write(1, (answer(question.decode()) + "\n").encode("utf-8", "replace"))


def answer(question: str) -> str:
    """Run the command of one line and return the answer."""
    try:
        match question.split("\t"):
            case ["describe", text, description]:
                _write(Path(description), "\n".join(describe(program_in(text))) + "\n")
            case [
                "translate",
                text,
                entry,
                "off" | "on" | "strict" | "trace" | "count" as check,
                library,
            ]:
                make_library(program_in(text), entry, check, Path(library))
            case _:
                return _problem("failed", 0, f"not understood: {question}")
    except UnsupportedPtxError as error:
        return _problem("unsupported", error.line, error.problem)
    except PtxError as error:
        return _problem("no_ptx", error.line, error.problem)
    except BuildError as error:
        return _problem("unavailable", 0, str(error))
    except ModuleNotFoundError as error:
        words = f"{error.name} is not installed for {sys.executable}: pip install 'uhal-py[sim]'"
        return _problem("unavailable", 0, words)
    except Exception:
        return _problem("failed", 0, traceback.format_exc())
    return "done"


@functools.lru_cache(maxsize=8)
def program_in(path: str) -> Program:
    """The program of a file. Raises `PtxError`."""
    # Names and directives are ASCII; comments may hold anything.
    return parse(Path(path).read_bytes().decode("latin-1"))


def describe(program: Program) -> Iterator[str]:
    """Lines about a module whose text is valid: the variables in its area, by offset.

    The first is `area BYTES`. Each variable has a line `variable SPACE OFFSET BYTES NAME`. Its
    initial value has lines `data OFFSET HEXADECIMAL`, `reference OFFSET NAME ADDEND` (the address
    of another variable) and `unresolved OFFSET NAME`. Offsets count from the start of the area.
    """
    _check_functions(program)
    offsets, size = variable_offsets(program.variables)
    yield f"area {size}"
    for name, offset in offsets.items():
        variable = program.variables[name]
        yield f"variable {variable.space} {offset} {variable.size} {name}"
        if variable.data.strip(b"\0"):
            yield f"data {offset} {variable.data.hex()}"
        for one in variable.references:
            at = offset + one.offset
            if one.symbol in offsets:
                yield f"reference {at} {one.symbol} {one.addend}"
            else:
                yield f"unresolved {at} {one.symbol}"


def _check_functions(program: Program) -> None:
    """Raise `PtxSyntaxError` for a body that is no PTX, if the check takes little time.

    A driver reads all of a module at load time. Here large modules are only searched for
    unknown instructions; other mistakes show when the kernel is translated.
    """
    # Importing the families fills the table.
    from . import families  # noqa: F401

    bodies = {name: one.body for name, one in program.functions.items() if one.body is not None}
    is_large = sum(map(len, bodies.values())) > READ_WHOLE_CHARACTERS
    for name, body in bodies.items():
        if is_large and all(map(is_known, set(_OPCODE.findall(body)))):
            continue
        try:
            statements = read_function(program, name).statements
        except UnsupportedPtxError:
            continue  # reported when the kernel is translated
        for one in statements:
            if isinstance(one, Instruction) and not is_known(one.name):
                raise PtxSyntaxError(f"there is no instruction {one.spelling}", one.line)


def _write(path: Path, text: str) -> None:
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
        file.write(text)
    os.replace(file.name, path)


def _problem(kind: str, line: int, words: str) -> str:
    cleaned = words.replace("\t", " ").strip().replace("\n", "\\n")
    return f"{kind}\t{line}\t{cleaned}"
