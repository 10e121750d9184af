"""Writes the lane's declarations of the hot table's slots, from the list in `hot_table.h`.

    python -m build_support.lane_slots cython_src build/lane

`hot_table.pxi` declares the header to Cython. `slot_calls.pxi` has the native calls that sources
make, named after the slot. `native_event_record(context, …)` makes the device current, calls the
slot, restores the current device, and raises an error's exception. `status_of_event_query(context,
…)` returns the status instead. Functions whose name ends in `_unlocked` release the GIL around the
call.

The reader knows only the subset of C that the header uses; anything else is an error.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_FUNCTION_TYPE = re.compile(r"^typedef (\w+) \(\*(\w+)\)\(([^()]*)\);$", re.MULTILINE)
_STRUCT = re.compile(r"^struct (\w+) \{\n(.*?)^\};$", re.MULTILINE | re.DOTALL)
_TABLE = re.compile(
    r"^typedef struct uhal_hot_table \{\n\s*UHAL_SLOTS\(UHAL_SLOT_FIELD\)\n"
    r"(.*?)^\} uhal_hot_table;$",
    re.MULTILINE | re.DOTALL,
)
_CONSTANT = re.compile(r"^enum \{ (\w+) = (\d+) \};$", re.MULTILINE)
_LIST = re.compile(r"^#define UHAL_SLOTS\(SLOT\)(.*?[^\\])$", re.MULTILINE | re.DOTALL)
_SLOT = re.compile(r"SLOT\((required|optional), (\w+), \(([^()]*)\)\)")
_PARAMETER = re.compile(r"((?:const )?(?:struct )?\w+(?: \w+)*? ?\**)(\w+)")
_USE = re.compile(r"\b(native|status_of)_(\w+?)(_unlocked)?\(")

_MADE_BY = "# Made by build_support/lane_slots.py from cython_src/hot_table.h: change those.\n"


@dataclass(frozen=True)
class Slot:
    """A slot, with its parameters as the header declares them."""

    name: str
    parameters: tuple[tuple[str, str], ...]
    """(type, name) of each parameter, with the type as Cython spells it."""

    @property
    def declared(self) -> str:
        """The parameters with their types."""
        return ", ".join(f"{kind}{name}" for kind, name in self.parameters)

    @property
    def passed(self) -> str:
        """The parameters' names."""
        return ", ".join(name for _, name in self.parameters)


class HeaderError(Exception):
    """The header has a construct that this module does not read."""


def read_slots(header: str) -> list[Slot]:
    """Return the slots of the list, in its order."""
    found = _LIST.search(_COMMENT.sub("", header))
    if found is None:
        raise HeaderError("there is no list UHAL_SLOTS(SLOT)")
    text = " ".join(found[1].replace("\\\n", " ").split())
    slots = [Slot(name, tuple(_parameters(given))) for _, name, given in _SLOT.findall(text)]
    left = _SLOT.sub("", text).strip()
    if left:
        raise HeaderError(f"in the list of slots: {left!r}")
    return slots


def _parameters(text: str) -> Iterator[tuple[str, str]]:
    for one in text.split(","):
        found = _PARAMETER.fullmatch(one.strip())
        if found is None:
            raise HeaderError(f"no parameter: {one.strip()!r}")
        yield found[1].replace("struct ", ""), found[2]


def declarations(header: str) -> str:
    """Return `hot_table.pxi`: the header's types, as Cython declares them."""
    text = _COMMENT.sub("", header)
    constants = dict(_CONSTANT.findall(text))
    lines = [_MADE_BY, 'cdef extern from "hot_table.h" nogil:']
    for result, name, given in _FUNCTION_TYPE.findall(text):
        lines.append(f"    ctypedef {result} (*{name})({given}) noexcept nogil")
    for name, body in _STRUCT.findall(text):
        lines += [f"    struct {name}:", *_fields(body, constants)]
    table = _TABLE.search(text)
    if table is None:
        raise HeaderError("there is no struct uhal_hot_table that begins with the slots")
    lines.append("    ctypedef struct uhal_hot_table:")
    lines += [
        f"        int (*{one.name})({one.declared}) noexcept nogil" for one in read_slots(text)
    ]
    lines += _fields(table[1], constants)
    lines += ["    enum:", *(f"        {name}" for name in constants)]
    return "\n".join(lines) + "\n"


def _fields(body: str, constants: dict[str, str]) -> Iterator[str]:
    for line in filter(None, map(str.strip, body.splitlines())):
        found = re.fullmatch(r"((?:\w+ )+\**\w+)(?:\[(\w+)\])?;", line)
        if found is None:
            raise HeaderError(f"no field of a struct: {line!r}")
        length = f"[{constants.get(found[2], found[2])}]" if found[2] else ""
        yield f"        {found[1].replace('struct ', '')}{length}"


def calls(slots: Sequence[Slot], sources: Sequence[str]) -> str:
    """Return `slot_calls.pxi`: the native calls that some source makes, in the list's order."""
    known = {one.name for one in slots}
    used = {use for text in sources for use in _USE.findall(text) if use[1] in known}
    made = [
        _call(slot, kind, unlocked)
        for slot in slots
        for kind, name, unlocked in sorted(used)
        if name == slot.name
    ]
    return "\n\n".join([_MADE_BY, *made])


def _call(slot: Slot, kind: str, unlocked: str) -> str:
    raises = kind == "native"
    called = f"status = at.table.{slot.name}({slot.passed})"
    lines = [
        f"cdef inline int {kind}_{slot.name}{unlocked}(Context at, {slot.declared}) "
        f"except{'' if raises else '?'} -1:",
        "cdef void *previous = enter(at)",
        *(
            ["cdef int status", "with nogil:", f"    {called}"]
            if unlocked
            else [f"cdef int {called}"]
        ),
        "leave(at, previous)",
        f'return check(at, status, "{slot.name}")' if raises else "return status",
    ]
    return "\n    ".join(lines) + "\n"


def main(sources: Path, destination: Path) -> None:
    """Write both files for the lane in a folder, if they changed."""
    header = (sources / "hot_table.h").read_text("utf-8")
    lane = [path.read_text("utf-8") for path in sorted(sources.rglob("*.pxi"))]
    destination.mkdir(parents=True, exist_ok=True)
    (destination / "hot_table.pxi").write_text(declarations(header), "utf-8")
    (destination / "slot_calls.pxi").write_text(calls(read_slots(header), lane), "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
