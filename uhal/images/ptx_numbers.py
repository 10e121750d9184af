"""Tells floats from integers among the untyped (`.b16 .b32 .b64`) parameters of a PTX kernel.

Such a parameter is what the instructions make of it: the type it is loaded with, or, where that is
untyped too, the types of the instructions that take the loaded register, moves followed. Stores,
selections and logic on bits take either and tell nothing. What is used as two kinds of number, or
as none, stays unknown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from uhal.images.ptx_addresses import MAX_CHARACTERS, MAX_PASSES, MAX_STATEMENTS

_STATEMENT = re.compile(r"(?:[\w$]+\s*:\s*)*(?:@!?[\w$%]+\s+)?([a-z][\w.:]*)\s*(.*)", re.DOTALL)
_NAME = re.compile(r"%?[A-Za-z_$][\w$]*")
_TYPE = re.compile(r"(?:[us](?:8|16|32|64)|b?f(?:16|32|64))$")
_ADDRESSES = re.compile(r"\[[^\]]*\]")
_INTEGER_SHIFTS = ("shl", "shr", "bfe", "bfi", "popc", "clz", "brev", "dp4a", "dp2a")


def classify_numbers(words: Mapping[str, int], body: Sequence[str]) -> dict[int, str]:
    """Say of untyped parameters (name to index) what they are: `integer` or a float's name.

    `body` is the kernel's statements without comments. Indices that are not in the answer show no
    use that tells.
    """
    if not words or len(body) > MAX_STATEMENTS:
        return {}
    found: dict[int, set[str]] = {index: set() for index in words.values()}
    instructions = [one for one in map(_parse, body) if one is not None]
    held: dict[str, set[int]] = {}
    for modifiers, operands in instructions:
        index = _loaded(modifiers, operands, words)
        if index is not None:
            # nvcc loads f16 with .u16, too.
            kind = "" if modifiers[-1] == "u16" else _kind(modifiers[-1])
            if kind:
                found[index].add(kind)
            for register in _NAME.findall(operands.partition("[")[0]):
                held.setdefault(register, set()).add(index)
    _follow_moves(instructions, held)
    for modifiers, operands in instructions:
        if _loaded(modifiers, operands, words) is None and modifiers[0] not in ("mov", "st", "ld"):
            _note_uses(modifiers, operands, held, found)
    return {index: kinds.pop() for index, kinds in found.items() if len(kinds) == 1}


_Parsed = tuple[list[str], str]


def _parse(text: str) -> _Parsed | None:
    match = _STATEMENT.match(text) if len(text) <= MAX_CHARACTERS else None
    return None if match is None else (match[1].split("."), match[2])


def _loaded(modifiers: list[str], operands: str, words: Mapping[str, int]) -> int | None:
    if modifiers[0] != "ld" or not any(one.startswith("param") for one in modifiers):
        return None
    address = _ADDRESSES.search(operands)
    return None if address is None else words.get(address[0].strip("[] \t\n"))


def _kind(type_name: str) -> str:
    """What a type says of a number; empty for one of bits, or of something else."""
    if _TYPE.match(type_name) is None:
        return ""
    return "integer" if type_name[0] in "us" else type_name


def _follow_moves(instructions: Sequence[_Parsed], held: dict[str, set[int]]) -> None:
    moves = []
    for modifiers, operands in instructions:
        if modifiers[0] == "mov":
            target, _, source = operands.partition(",")
            if "{" not in operands:
                moves.append((target.strip(), source.strip()))
    for _ in range(MAX_PASSES):
        changed = False
        for target, source in moves:
            added = held.get(source, set()) - held.get(target, set())
            if added:
                held.setdefault(target, set()).update(added)
                changed = True
        if not changed:
            return


def _note_uses(
    modifiers: list[str], operands: str, held: dict[str, set[int]], found: dict[int, set[str]]
) -> None:
    # The last type is that of the sources; a third factor of mad.wide is no number of that width,
    # but an integer like them.
    kind = _kind(modifiers[-1]) or ("integer" if modifiers[0] in _INTEGER_SHIFTS else "")
    if not kind:
        return
    _, _, sources = operands.partition(",")
    for register in _NAME.findall(_ADDRESSES.sub("", sources)):
        for index in held.get(register, ()):
            found[index].add(kind)
