"""Classifies the 64-bit parameters of a PTX kernel by use, as pointers or integers.

A parameter is followed through moves, `cvta`, additions and selections. A parameter that arrives
where an instruction takes a memory address is a pointer. A parameter that is multiplied, shifted
left, converted to a float, compared with a plain number or added to a known pointer is an integer.
A parameter without such a use stays unknown: nothing here guesses.

A register may hold any of a set of *sums*; a sum is the set of parameters added up in it. The order
of statements is ignored, so a register that a loop assigns twice holds the sums of both
assignments.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

AddressUse = Literal["pointer", "integer"]
Sum = frozenset[int]

MAX_STATEMENTS = 100_000
"""Longer bodies are not followed: their parameters stay unknown."""
MAX_CHARACTERS = 4096
"""Characters of a statement; only calls and data are longer."""
MAX_PASSES = 12
MAX_SUMS = 16
MAX_TERMS = 64
"""Parameters of one sum. No address has so many."""

_ELSEWHERE = -1
"""Stands in a sum for anything not followed: a value from memory, an opaque instruction."""
_OPAQUE: frozenset[Sum] = frozenset([frozenset([_ELSEWHERE])])
_PLAIN: frozenset[Sum] = frozenset([frozenset()])

_STATEMENT = re.compile(r"(?:[\w$]+\s*:\s*)*(?:@!?[\w$%]+\s+)?([a-z][\w.:]*)\s*(.*)", re.DOTALL)
_OPERAND = re.compile(r"\[[^][]*\]|\{[^{}]*\}|[^,\s]+")
_NAME = re.compile(r"[\w$%]+")
_MEMORY = frozenset("ld ldu st atom red prefetch prefetchu discard applypriority".split())
_OTHER_SPACES = ("shared", "local", "param")
_INTEGER_ONLY = frozenset("mul div rem shl min max popc clz brev".split())
_ORDERINGS = frozenset("lt le gt ge lo ls hi hs".split())


@dataclass(frozen=True)
class Instruction:
    """A statement that computes: its opcode, its modifiers, and its operands as written."""

    name: str
    modifiers: tuple[str, ...]
    operands: tuple[str, ...]


@dataclass
class _Evidence:
    """Evidence from a kernel's instructions, with every register's sums known."""

    addresses: set[Sum] = field(default_factory=set)
    converted: set[int] = field(default_factory=set)
    """Parameters that `cvta` takes for addresses."""
    calculated: set[int] = field(default_factory=set)
    """Parameters in arithmetic that makes no sense on addresses."""
    compared: set[tuple[Sum, Sum]] = field(default_factory=set)


def classify_words(words: Mapping[str, int], body: Sequence[str]) -> dict[int, AddressUse]:
    """Classify the 64-bit parameters `words` (name to index) as pointers or integers.

    `body` is the kernel's statements without comments. Indices missing from the result have no
    decisive use.
    """
    if not words or len(body) > MAX_STATEMENTS:
        return {}
    parsed = (parse_instruction(text) for text in body)
    instructions = [found for found in parsed if found is not None and found.operands]
    registers = _Registers(words, opaque=_declared_twice(body))
    if not registers.follow(instructions):
        return {}
    return _conclude(registers.evidence(instructions))


def parse_instruction(text: str) -> Instruction | None:
    """Read a statement; `None` for a directive or a statement too long to follow."""
    found = _STATEMENT.match(text) if len(text) <= MAX_CHARACTERS else None
    if found is None:
        return None
    name, *modifiers = found[1].split(".")
    return Instruction(name, tuple(modifiers), tuple(_OPERAND.findall(found[2])))


def _declared_twice(body: Iterable[str]) -> set[str]:
    """Registers that have the same name in different blocks."""
    seen: set[str] = set()
    twice: set[str] = set()
    for text in body:
        if text.startswith(".reg"):
            for name in _NAME.findall(text.partition(" ")[2]):
                (twice if name in seen else seen).add(name)
    return twice


class _Registers:
    """The sums that each register of a kernel may hold."""

    def __init__(self, words: Mapping[str, int], opaque: set[str]) -> None:
        self._words = words
        self._sums: dict[str, frozenset[Sum]] = dict.fromkeys(opaque, _OPAQUE)
        self._fixed = set(opaque)

    def follow(self, instructions: Iterable[Instruction]) -> bool:
        """Collect sums until a pass adds none. Return False after too many passes."""
        followed = [one for one in instructions if one.name not in ("st", "red")]
        for _ in range(MAX_PASSES):
            changed = False
            for instruction in followed:
                changed |= self._assign(instruction)
            if not changed:
                return True
        return False

    def evidence(self, instructions: Iterable[Instruction]) -> _Evidence:
        evidence = _Evidence()
        for instruction in instructions:
            name, operands = instruction.name, instruction.operands
            if name in _MEMORY:
                evidence.addresses |= self._address(instruction)
            elif name == "cp" and "async" in instruction.modifiers and len(operands) > 1:
                evidence.addresses |= self._base(operands[1])
            elif name == "cvta" and len(operands) > 1:
                evidence.converted |= self._alone(operands[1])
            elif name in _INTEGER_ONLY:
                for operand in operands[1:]:
                    evidence.calculated |= self._alone(operand)
            elif name == "mad":
                for operand in operands[1:3]:
                    evidence.calculated |= self._alone(operand)
            elif name == "cvt" and instruction.modifiers[-2:-1] in (("f32",), ("f64",), ("f16",)):
                evidence.calculated |= self._alone(operands[-1])
            elif name == "setp" and _ORDERINGS & set(instruction.modifiers) and len(operands) > 2:
                self._compare(evidence, operands[1], operands[2])
        return evidence

    def _assign(self, instruction: Instruction) -> bool:
        target, *sources = instruction.operands
        found = self._result(instruction, sources)
        changed = False
        for register in _NAME.findall(target):
            before = self._sums.get(register, frozenset())
            after = before | found
            if register in self._fixed or after == before:
                continue
            if len(after) > MAX_SUMS:
                after = _OPAQUE
                self._fixed.add(register)
            self._sums[register] = after
            changed = True
        return changed

    def _result(self, instruction: Instruction, sources: list[str]) -> frozenset[Sum]:
        name = instruction.name
        if name == "ld" and "param" in instruction.modifiers:
            word = self._words.get(sources[0].strip("[] \t\n")) if sources else None
            return _OPAQUE if word is None else frozenset([frozenset([word])])
        if name in ("mov", "cvta") and len(sources) == 1:
            return self._of(sources[0])
        if name == "add" and len(sources) == 2:
            return self._added(sources[0], sources[1])
        if name == "sub" and len(sources) == 2 and not _is_register(sources[1]):
            return self._of(sources[0])
        if name == "mad" and len(sources) == 3:
            return self._of(sources[2])
        if name == "selp" and len(sources) == 3:
            return self._of(sources[0]) | self._of(sources[1])
        if name in _INTEGER_ONLY or (name == "cvt" and instruction.modifiers[-1:] != ("u64",)):
            return _PLAIN
        return _OPAQUE

    def _of(self, operand: str) -> frozenset[Sum]:
        if operand.startswith("%") and operand not in self._sums and "." in operand:
            return _PLAIN  # %tid.x and its like
        if _is_register(operand):
            return self._sums.get(operand, frozenset())
        return _PLAIN if operand[:1].isdigit() or operand[:1] == "-" else _OPAQUE

    def _added(self, first: str, second: str) -> frozenset[Sum]:
        sums = frozenset(one | other for one in self._of(first) for other in self._of(second))
        return _OPAQUE if any(len(one) > MAX_TERMS for one in sums) else sums

    def _address(self, instruction: Instruction) -> frozenset[Sum]:
        if any(part.startswith(_OTHER_SPACES) for part in instruction.modifiers):
            return frozenset()
        for operand in instruction.operands:
            if operand.startswith("["):
                return self._base(operand)
        return frozenset()

    def _base(self, operand: str) -> frozenset[Sum]:
        found = _NAME.search(operand)
        return frozenset() if found is None else self._sums.get(found[0], frozenset())

    def _alone(self, operand: str) -> Sum:
        """The parameters the operand may hold with nothing added."""
        return frozenset(one for held in self._of(operand) if len(held) == 1 for one in held)

    def _compare(self, evidence: _Evidence, first: str, second: str) -> None:
        for one, other in ((first, second), (second, first)):
            everything = frozenset().union(*self._of(other))
            evidence.compared.update((held, everything) for held in self._of(one))


def _is_register(operand: str) -> bool:
    return _NAME.fullmatch(operand) is not None and not operand[0].isdigit()


def _conclude(evidence: _Evidence) -> dict[int, AddressUse]:
    pointers = set(evidence.converted)
    pointers.update(one for held in evidence.addresses if len(held) == 1 for one in held)
    integers = set(evidence.calculated)
    for held in evidence.addresses:
        # An address contains one pointer; the other summands are numbers.
        if held & pointers:
            integers |= held - pointers
    integers -= pointers
    changed = True
    while changed:
        plain = {
            one
            for held, others in evidence.compared
            if len(held) == 1 and others <= integers
            for one in held
        }
        changed = not plain - pointers <= integers
        integers |= plain - pointers
    found: dict[int, AddressUse] = dict.fromkeys(integers - {_ELSEWHERE}, "integer")
    found.update(dict.fromkeys(pointers - {_ELSEWHERE}, "pointer"))
    return found
