"""Loops in which a thread strides over the grid: all threads of a block take a turn together.

In `for (i = thread of the grid; i < n; i += threads of the grid)` one thread's elements lie far
apart and neighboring threads' elements lie together. If threads run one after the other, such a
loop leaves the cache with every access. So it is cut at its head: a thread runs to the head, keeps
the registers that are needed there, and the next thread runs; then all take their second turn.
Threads that never wait for each other may run in any order, so this changes nothing but the speed.
"""

from __future__ import annotations

import collections
from collections.abc import Collection, Container, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from .program import (
    Address,
    Function,
    Immediate,
    Instruction,
    Label,
    Minus,
    Negated,
    Operand,
    Pair,
    Part,
    Register,
    Special,
    Symbol,
    Vector,
)
from .types import PtxType

_PURE = {
    "mov",
    "add",
    "sub",
    "mul",
    "mad",
    "shl",
    "shr",
    "and",
    "or",
    "xor",
    "not",
    "neg",
    "min",
    "max",
    "cvt",
    "cvta",
    "setp",
    "selp",
    "div",
    "rem",
}
_FIRST_IS_NO_RESULT = {"brx", "nanosleep", "bar", "barrier", "call"}
_PER_LAUNCH = {"%ntid", "%nctaid", "%ctaid"}
_PER_LAUNCH_AND_THREAD = _PER_LAUNCH | {"%tid"}


@dataclass(frozen=True)
class Turns:
    """A loop cut at its head."""

    label: str
    state: tuple[tuple[str, PtxType], ...]
    """Registers each thread keeps between turns."""
    before: tuple[Instruction, ...]
    """Compute registers anew that depend on the thread alone, the counters' first values last."""
    counters: tuple[Counter, ...]
    after: tuple[Instruction, ...]
    """Compute registers anew that depend on counters."""


@dataclass(frozen=True)
class Counter:
    """A register that grows by the same step in every turn."""

    name: str
    first: Instruction
    """Sets its first value."""
    step: Operand


def pointer_roots(function: Function) -> dict[str, str]:
    """Maps registers made by adding to a pointer that all threads share to its register.

    Such a pointer is a parameter converted to a global address. The sum stays within the pointer's
    allocation, so facts about the pointer hold for the sum.
    """
    uniform = uniform_registers(function)
    definitions = _definitions(function)
    roots: dict[str, str] = {}
    for one in _instructions(function):
        target = one.operands[0] if one.operands else None
        if not isinstance(target, Register) or definitions[target.name] > 1:
            continue
        if one.name == "cvta" and one.has("to") and one.has("global") and target.name in uniform:
            roots[target.name] = target.name
        elif one.name in ("add", "mad"):
            found = {roots[name] for name in _read(one) if name in roots}
            added = one.operands[1:] if one.name == "add" else one.operands[3:]
            if len(found) == 1 and found <= {roots.get(n) for o in added for n in _registers(o)}:
                roots[target.name] = found.pop()
    return roots


def find_turns(function: Function) -> Turns | None:
    """The first loop of a kernel with the grid's size as its step, if it can be cut."""
    if any(one.space == "local" for one in function.variables.values()):
        return None  # would have to be kept too
    if any(one.has("cc") for one in _instructions(function)):
        return None  # so would the carry flag
    uniform = uniform_registers(function)
    loop = _strided_loop(function, uniform)
    if loop is None:
        return None
    label = loop.label
    pure = _computed_once(function, _PER_LAUNCH_AND_THREAD)
    counters = {one.name: one for one in _counters(function, loop, uniform, pure)}
    copies = _copies(function, loop, counters)
    needed = _live_at(function, label)
    used = {name for name in needed & copies.keys() for name in _read(copies[name])}
    counting = [one for one in counters.values() if one.name in needed | used]
    operands = {name for one in counting for name in (*_read(one.first), *_registers(one.step))}
    anew = pure.keys() | counters.keys() | copies.keys()
    return Turns(
        label,
        tuple((name, function.registers[name]) for name in sorted(needed - anew)),
        (*_slice(pure, (needed | operands) & pure.keys()), *(one.first for one in counting)),
        tuple(counting),
        tuple(copies[name] for name in sorted(needed & copies.keys())),
    )


def _instructions(function: Function) -> Iterator[Instruction]:
    return (one for one in function.statements if isinstance(one, Instruction))


# -- what all threads agree on ---------------------------------------------------------------------


def _definitions(function: Function) -> collections.Counter[str]:
    return collections.Counter(name for one in _instructions(function) for name in _written(one))


def uniform_registers(function: Function) -> dict[str, Instruction]:
    """Registers with one definition, made of parameters and the launch alone, in text order."""
    return _computed_once(function, _PER_LAUNCH)


def _computed_once(function: Function, specials: Collection[str]) -> dict[str, Instruction]:
    definitions = _definitions(function)
    found: dict[str, Instruction] = {}
    for one in _instructions(function):
        target = one.operands[0] if one.operands else None
        if (
            isinstance(target, Register)
            and definitions[target.name] == 1
            and one.guard is None
            and (one.name in _PURE or (one.name == "ld" and one.has("param")))
            and all(_is_known(operand, found, specials) for operand in one.operands[1:])
        ):
            found[target.name] = one
    return found


def _is_known(operand: Operand | None, known: Container[str], specials: Collection[str]) -> bool:
    match operand:
        case Register(name):
            return name in known
        case Special(name):
            return name.partition(".")[0] in specials
        case Immediate() | Symbol():
            return True
        case Address(base, _):
            return isinstance(base, Symbol)
    return False


def _slice(uniform: dict[str, Instruction], wanted: AbstractSet[str]) -> tuple[Instruction, ...]:
    """The instructions that compute the wanted registers and their inputs, in text order."""
    pending = list(wanted)
    needed: set[str] = set()
    while pending:
        name = pending.pop()
        if name not in needed:
            needed.add(name)
            pending += _read(uniform[name])
    return tuple(one for name, one in uniform.items() if name in needed)


# -- the loop --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Loop:
    label: str
    start: int
    end: int
    """Line of the last branch back to the start."""


def _strided_loop(function: Function, uniform: dict[str, Instruction]) -> _Loop | None:
    strides = {name for name in uniform if _knows_the_grid(uniform, name)}
    positions: dict[str, int] = {}
    ends: dict[str, int] = {}
    for index, one in enumerate(function.statements):
        if isinstance(one, Label):
            positions[one.name] = index
            continue
        for target in _targets(function, one):
            if target in positions:
                ends[target] = index
    for label in sorted(ends, key=lambda name: positions[name]):
        body = function.statements[positions[label] : ends[label] + 1]
        for one in body:
            if isinstance(one, Instruction) and one.name == "add" and strides & set(_read(one)):
                return _Loop(label, positions[label], ends[label])
    return None


def _knows_the_grid(uniform: dict[str, Instruction], name: str) -> bool:
    return any(
        isinstance(operand, Special) and operand.name.startswith("%nctaid")
        for one in _slice(uniform, {name})
        for operand in one.operands
    )


def _counters(
    function: Function,
    loop: _Loop,
    uniform: Container[str],
    pure: Container[str],
) -> Iterator[Counter]:
    """Registers that are set before the loop and grow by one step just before its only end."""
    definitions = _definitions(function)
    statements = function.statements
    first_of_tail = _start_of_tail(function, loop)
    for one in statements[first_of_tail : loop.end]:
        if not isinstance(one, Instruction) or one.name != "add" or one.guard is not None:
            continue
        target, value, step = one.operands
        if (
            not isinstance(target, Register)
            or step is None
            or target != value
            or definitions[target.name] != 2
            or not _is_known(step, uniform, ())
            or len(one.types) != 1
            or one.type.is_float
        ):
            continue
        for first in statements[: loop.start]:
            if isinstance(first, Instruction) and target.name in _written(first):
                operands = first.operands[1:]
                simple = first.name in _PURE and first.guard is None
                if simple and all(_is_known(o, pure, _PER_LAUNCH_AND_THREAD) for o in operands):
                    yield Counter(target.name, first, step)


def _start_of_tail(function: Function, loop: _Loop) -> int:
    """Index of the first statement that every turn runs exactly once before it branches back."""
    for index in range(loop.start + 1, loop.end):
        one = function.statements[index]
        if isinstance(one, Instruction) and loop.label in _targets(function, one):
            return loop.end
    positions = {
        one.name: index for index, one in enumerate(function.statements) if isinstance(one, Label)
    }
    index = loop.end
    while index - 1 > loop.start:
        one = function.statements[index - 1]
        if isinstance(one, Label):
            break
        if any(positions[target] < index for target in _targets(function, one)):
            break
        index -= 1
    return index


def _copies(
    function: Function, loop: _Loop, counters: dict[str, Counter]
) -> dict[str, Instruction]:
    """Registers that are made from a counter alone, alike before the loop and at its end."""
    tail = _start_of_tail(function, loop)
    found: dict[str, list[tuple[int, Instruction]]] = {}
    for index, one in enumerate(function.statements):
        if isinstance(one, Instruction):
            for name in _written(one):
                found.setdefault(name, []).append((index, one))
    copies: dict[str, Instruction] = {}
    for name, writes in found.items():
        if len(writes) != 2:
            continue
        (before, one), (inside, other) = writes
        read = _read(one)
        if (
            before < loop.start
            and tail <= inside < loop.end
            and (one.spelling, one.operands, one.guard) == (other.spelling, other.operands, None)
            and one.name in _PURE
            and len(read) == 1
            and read[0] in counters
            and all(
                _later(changed, made) for changed, made in zip(found[read[0]], writes, strict=True)
            )
        ):
            copies[name] = one
    return copies


def _later(changed: tuple[int, Instruction], made: tuple[int, Instruction]) -> bool:
    return changed[0] < made[0]


def _targets(function: Function, one: Instruction) -> tuple[str, ...]:
    symbols = [each.name for each in one.operands if isinstance(each, Symbol)]
    if one.name == "bra":
        return tuple(symbols)
    return function.branch_targets.get(symbols[0], ()) if one.name == "brx" else ()


# -- values needed at its head ---------------------------------------------------------------------


def _live_at(function: Function, label: str) -> set[str]:
    """Registers that may be read after a label before they are written."""
    statements = function.statements
    positions = {one.name: index for index, one in enumerate(statements) if isinstance(one, Label)}
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
                    after |= live[positions[target]]
                if one.guard is None:
                    after -= set(_written(one))
                after |= set(_read(one))
            if after != live[index]:
                live[index] = after
                changed = True
    return live[positions[label]]


def _written(one: Instruction) -> list[str]:
    if one.name in _FIRST_IS_NO_RESULT or not one.operands:
        return []
    match one.operands[0]:
        case Register(name) | Part(Register(name)):
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
        case Negated(inner) | Minus(inner) | Part(inner):
            return _registers(inner)
        case Address(base, _):
            return _registers(base)
        case Vector(elements):
            return [name for each in elements for name in _registers(each)]
        case Pair(first, second):
            return _registers(first) + _registers(second)
    return []
