"""Loops in which a thread strides over the grid: all threads of a block take a turn together.

In `for (i = thread of the grid; i < n; i += threads of the grid)` one thread's elements lie far
apart and neighboring threads' elements lie together. Run one thread after the other, such a loop
leaves the cache with every access. So it is cut at its head: a thread runs to the head, keeps the
registers that are needed there, and the next thread runs; then all take their second turn. Threads
that never wait for each other may run in any order, so this changes nothing but the speed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from simulators.ptx.program import (
    Address,
    Function,
    Immediate,
    Instruction,
    Label,
    Negated,
    Operand,
    Pair,
    Register,
    Special,
    Symbol,
    Vector,
)
from simulators.ptx.types import PtxType

_PURE = {
    "mov", "add", "sub", "mul", "mad", "shl", "shr", "and", "or", "xor", "not", "neg", "min", "max",
    "cvt", "cvta", "setp", "selp", "div", "rem",
}  # fmt: skip
_FIRST_IS_NO_RESULT = {"brx", "nanosleep", "bar", "barrier"}
_OF_A_THREAD = ("%tid", "%laneid", "%warpid", "%lanemask", "%clock", "%globaltimer")


@dataclass(frozen=True)
class Turns:
    """A loop cut at its head."""

    label: str
    state: tuple[tuple[str, PtxType], ...]
    """Registers each thread keeps between turns."""
    uniform: tuple[Instruction, ...]
    """Computes the other registers that are needed; all threads agree on them."""


def find_turns(function: Function) -> Turns | None:
    """The first loop of a kernel whose step is the size of the grid, if it can be cut."""
    if any(one.space == "local" for one in function.variables.values()):
        return None  # would have to be kept too
    if any(one.has("cc") for one in _instructions(function)):
        return None  # so would the carry flag
    uniform = _uniform(function)
    label = _strided_loop(function, uniform)
    if label is None:
        return None
    needed = _live_at(function, label)
    state = tuple((name, function.registers[name]) for name in sorted(needed - uniform.keys()))
    return Turns(label, state, _slice(uniform, needed & uniform.keys()))


def _instructions(function: Function) -> Iterator[Instruction]:
    return (one for one in function.statements if isinstance(one, Instruction))


# -- what all threads agree on ---------------------------------------------------------------------


def _uniform(function: Function) -> dict[str, Instruction]:
    """Registers with one definition, made of parameters and the launch alone, in text order."""
    definitions: dict[str, int] = {}
    for one in _instructions(function):
        for name in _written(one):
            definitions[name] = definitions.get(name, 0) + 1
    found: dict[str, Instruction] = {}
    for one in _instructions(function):
        target = one.operands[0] if one.operands else None
        if (
            isinstance(target, Register)
            and definitions[target.name] == 1
            and one.guard is None
            and (one.name in _PURE or (one.name == "ld" and one.has("param")))
            and all(_is_uniform(operand, found) for operand in one.operands[1:])
        ):
            found[target.name] = one
    return found


def _is_uniform(operand: Operand | None, known: dict[str, Instruction]) -> bool:
    match operand:
        case Register(name):
            return name in known
        case Special(name):
            return not name.startswith(_OF_A_THREAD)
        case Immediate() | Symbol():
            return True
        case Address(base, _):
            return isinstance(base, Symbol)
    return False


def _slice(uniform: dict[str, Instruction], wanted: set[str]) -> tuple[Instruction, ...]:
    """The instructions that compute registers from nothing, in an order in which they can run."""
    pending = list(wanted)
    needed: set[str] = set()
    while pending:
        name = pending.pop()
        if name not in needed:
            needed.add(name)
            pending += _read(uniform[name])
    return tuple(one for name, one in uniform.items() if name in needed)


# -- the loop --------------------------------------------------------------------------------------


def _strided_loop(function: Function, uniform: dict[str, Instruction]) -> str | None:
    strides = {name for name in uniform if _knows_the_grid(uniform, name)}
    places: dict[str, int] = {}
    ends: dict[str, int] = {}
    for index, one in enumerate(function.statements):
        if isinstance(one, Label):
            places[one.name] = index
            continue
        for target in _targets(function, one):
            if target in places:
                ends[target] = index
    for label in sorted(ends, key=lambda name: places[name]):
        body = function.statements[places[label] : ends[label] + 1]
        for one in body:
            if isinstance(one, Instruction) and one.name == "add" and strides & set(_read(one)):
                return label
    return None


def _knows_the_grid(uniform: dict[str, Instruction], name: str) -> bool:
    return any(
        isinstance(operand, Special) and operand.name.startswith("%nctaid")
        for one in _slice(uniform, {name})
        for operand in one.operands
    )


def _targets(function: Function, one: Instruction) -> tuple[str, ...]:
    symbols = [each.name for each in one.operands if isinstance(each, Symbol)]
    if one.name == "bra":
        return tuple(symbols)
    return function.branch_targets.get(symbols[0], ()) if one.name == "brx" else ()


# -- what is needed at its head --------------------------------------------------------------------


def _live_at(function: Function, label: str) -> set[str]:
    """Registers that may be read, after a label, before they are written."""
    statements = function.statements
    places = {one.name: index for index, one in enumerate(statements) if isinstance(one, Label)}
    live: list[set[str]] = [set() for _ in range(len(statements) + 1)]
    changed = True
    while changed:
        changed = False
        for index in range(len(statements) - 1, -1, -1):
            one = statements[index]
            after = set(live[index + 1])
            if isinstance(one, Instruction):
                targets = _targets(function, one)
                if one.guard is None and one.name in ("bra", "brx", "ret", "exit"):
                    after = set()
                for target in targets:
                    after |= live[places[target]]
                if one.guard is None:
                    after -= set(_written(one))
                after |= set(_read(one))
            if after != live[index]:
                live[index] = after
                changed = True
    return live[places[label]]


def _written(one: Instruction) -> list[str]:
    if one.name in _FIRST_IS_NO_RESULT or not one.operands:
        return []
    match one.operands[0]:
        case Register(name):
            return [name]
        case Vector(elements):
            return [each.name for each in elements if isinstance(each, Register)]
        case Pair(first, second):
            return [each.name for each in (first, second) if isinstance(each, Register)]
    return []


def _read(one: Instruction) -> list[str]:
    names: list[str] = []
    if one.guard is not None:
        names += _registers(one.guard)
    for index, operand in enumerate(one.operands):
        if index > 0 or not _written(one):
            names += _registers(operand)
    return names


def _registers(operand: Operand | None) -> list[str]:
    match operand:
        case Register(name):
            return [name]
        case Negated(inner):
            return _registers(inner)
        case Address(base, _):
            return _registers(base)
        case Vector(elements):
            return [name for each in elements for name in _registers(each)]
        case Pair(first, second):
            return _registers(first) + _registers(second)
    return []
