"""Inlines the functions that a kernel calls. Their pointer parameters then have the roots of the
passed pointers.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

from uhal.images.spirv import SpirvModule
from uhal.images.spirv_words import Function
from webgpu_backend.translator.kinds import refuse

Words: TypeAlias = "array[int]"

LABEL, FUNCTION_END, PHI, BRANCH, RETURN = 248, 56, 245, 249, 253
_CALL, _RETURN_VALUE, _SWITCH, _EXTENDED = 57, 254, 251, 12
_DEEPEST = 16
_NAMING: Mapping[int, Iterable[int]] = {
    59: (1, 2, 4),  # OpVariable
    61: (1, 2, 3),  # OpLoad
    62: (1, 2),  # OpStore
    64: (1, 2, 3),  # OpCopyMemorySized
    79: (1, 2, 3, 4),  # OpVectorShuffle
    81: (1, 2, 3),  # OpCompositeExtract
    82: (1, 2, 3, 4),  # OpCompositeInsert
    123: (1, 2, 3),  # OpGenericCastToPtrExplicit
    246: (),
    247: (),
    249: (1,),
    250: (1, 2, 3),
    256: (1,),
    257: (1,),
}
"""Indices of the identifier words, for instructions that also have other words."""


class Instruction(NamedTuple):
    """An instruction of a function."""

    opcode: int
    words: Words


Blocks: TypeAlias = "dict[int, list[Instruction]]"


class Inliner:
    """Reads functions without calls."""

    def __init__(self, module: SpirvModule, most: int) -> None:
        """Read at most `most` instructions."""
        self._module = module
        self._next = module.bound
        self._left = most

    def blocks(self, function: Function, callers: tuple[int, ...] = ()) -> Blocks:
        """Return the blocks of a function by their labels, the entry first."""
        if function.id in callers or len(callers) > _DEEPEST:
            refuse("a function that calls itself")
        inside = (*callers, function.id)
        found: Blocks = {}
        last: dict[int, int] = {}
        for label, instructions in self._read(function).items():
            current, code = label, found.setdefault(label, [])
            for one in instructions:
                if one.opcode != _CALL:
                    code.append(one)
                    continue
                current, code = self._call(one.words, code, found, inside)
            last[label] = current
        return {label: [_from(one, last) for one in code] for label, code in found.items()}

    def _read(self, function: Function) -> Blocks:
        found: Blocks = {}
        current: list[Instruction] | None = None
        for opcode, words in self._instructions(function):
            self._left -= 1
            if self._left < 0:
                refuse("too many instructions")
            if opcode == LABEL:
                current = found.setdefault(words[1], [])
            elif opcode != FUNCTION_END:
                if current is None:
                    refuse("a function that does not begin with a label")
                current.append(Instruction(opcode, words))
        if not found:
            refuse("a function without a body")
        return found

    def _instructions(self, function: Function) -> Iterator[tuple[int, Words]]:
        words = self._module.words
        position = function.parameters_end
        while position < function.end:
            length = words[position] >> 16
            yield words[position] & 0xFFFF, words[position : position + length]
            position += length

    def _fresh(self) -> int:
        self._next += 1
        return self._next - 1

    def _call(
        self, words: Words, code: list[Instruction], found: Blocks, callers: tuple[int, ...]
    ) -> tuple[int, list[Instruction]]:
        """Append the called function's blocks; return the block after the call."""
        function = self._module.functions.get(words[3])
        if function is None or len(function.parameters) != len(words) - 4:
            refuse("a call of a function that is not there")
        body = self.blocks(function, callers)
        names = dict(zip(function.parameters, words[4:], strict=True))
        for label, instructions in body.items():
            names[label] = self._fresh()
            for one in instructions:
                if len(one.words) > 2 and one.words[2] not in names:
                    names.update(self._renamed(one))
        after = self._fresh()
        code.append(_branch(names[next(iter(body))]))
        results: list[int] = []
        for label, instructions in body.items():
            inner = found[names[label]] = [_named(one, names) for one in instructions]
            end = inner[-1] if inner else refuse("an empty block")
            if end.opcode in (RETURN, _RETURN_VALUE):
                if end.opcode == _RETURN_VALUE:
                    results += (end.words[1], names[label])
                inner[-1] = _branch(after)
        behind: list[Instruction] = []
        found[after] = behind
        if results:
            phi = ((3 + len(results)) << 16 | PHI, words[1], words[2], *results)
            behind.append(Instruction(PHI, array("I", phi)))
        return after, behind

    def _renamed(self, one: Instruction) -> dict[int, int]:
        """A fresh name for an instruction's result; empty for an instruction without result."""
        if one.opcode in _WITHOUT_RESULT:
            return {}
        return {one.words[2]: self._fresh()}


_WITHOUT_RESULT = frozenset((62, 64, 224, 225, 228, 246, 247, *range(249, 258)))


def _branch(target: int) -> Instruction:
    return Instruction(BRANCH, array("I", (2 << 16 | BRANCH, target)))


def _operand_indices(one: Instruction) -> Iterable[int]:
    count = len(one.words)
    if one.opcode == _EXTENDED:
        return (1, 2, *range(5, count))
    if one.opcode == _SWITCH:
        return (1, 2, *range(4, count, 2))
    return (at for at in _NAMING.get(one.opcode, range(1, count)) if at < count)


def _named(one: Instruction, names: Mapping[int, int]) -> Instruction:
    words = one.words[:]
    for at in _operand_indices(one):
        words[at] = names.get(words[at], words[at])
    return Instruction(one.opcode, words)


def _from(one: Instruction, last: Mapping[int, int]) -> Instruction:
    """A phi with the current labels of the blocks that its values come from."""
    if one.opcode != PHI or all(label == end for label, end in last.items()):
        return one
    words = one.words[:]
    for at in range(4, len(words), 2):
        words[at] = last.get(words[at], words[at])
    return Instruction(PHI, words)
