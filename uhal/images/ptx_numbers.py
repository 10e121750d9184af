"""Classifies untyped (`.b16 .b32 .b64`) parameters of a PTX kernel as floats or integers.

The instructions decide a parameter's type: the type of its load, or, if that is untyped, the types
of the instructions that use the loaded register, through moves. Stores, selections and logic on
bits (`.b32`) take both kinds and decide nothing. A value used as both kinds of number, or as
neither, stays unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from uhal.images.ptx_addresses import MAX_PASSES, MAX_STATEMENTS, Instruction, parse_instruction

_NAME = re.compile(r"%?[A-Za-z_$][\w$]*")
_TYPE = re.compile(r"(?:[us](?:8|16|32|64)|b?f(?:16|32|64))$")
_INTEGER_ONLY = frozenset("shl shr bfe bfi popc clz brev dp4a dp2a".split())
_MOVES = frozenset("ld ldu mov st selp".split())


def classify_numbers(words: Mapping[str, int], body: Sequence[str]) -> dict[int, str]:
    """Map untyped parameters (name to index) to `integer` or a float's name.

    `body` is the kernel's statements without comments. Indices without a decisive use are left out
    of the result.
    """
    if not words or len(body) > MAX_STATEMENTS:
        return {}
    parsed = (parse_instruction(text) for text in body)
    instructions = [one for one in parsed if one is not None and len(one.operands) > 1]
    found: dict[int, set[str]] = {index: set() for index in words.values()}
    held: dict[str, set[int]] = {}
    for one in instructions:
        if one.name == "ld" and any(part.startswith("param") for part in one.modifiers):
            index = words.get(one.operands[1].strip("[] \t\n"))
            if index is None:
                continue
            held.setdefault(one.operands[0], set()).add(index)
            found[index].add(_kind_of(one))
    _follow_moves([one for one in instructions if one.name == "mov"], held)
    for one in instructions:
        for register in _sources(one):
            for index in held.get(register, ()):
                found[index].add(_kind_of(one))
    known = {index: kinds - {""} for index, kinds in found.items()}
    return {index: kinds.pop() for index, kinds in known.items() if len(kinds) == 1}


def _kind_of(one: Instruction) -> str:
    """Kind of an instruction's last type, the type of its sources; empty for untyped bits."""
    if one.name in _INTEGER_ONLY:
        return "integer"
    type_name = one.modifiers[-1] if one.modifiers else ""
    # nvcc moves f16 values with .u16.
    if _TYPE.match(type_name) is None or (type_name == "u16" and one.name in _MOVES):
        return ""
    return "integer" if type_name[0] in "us" else type_name


def _sources(one: Instruction) -> Iterator[str]:
    """The registers an instruction computes with, without registers that hold addresses."""
    for operand in one.operands[1:]:
        if not operand.startswith("["):
            yield from _NAME.findall(operand)


def _follow_moves(moves: Sequence[Instruction], held: dict[str, set[int]]) -> None:
    for _ in range(MAX_PASSES):
        changed = False
        for one in moves:
            target, source = one.operands[:2]
            added = held.get(source, set()) - held.get(target, set())
            if added:
                held.setdefault(target, set()).update(added)
                changed = True
        if not changed:
            return
