"""The instructions of a block as statements, and its edges to other blocks."""

from __future__ import annotations

import re

from webgpu_backend.translator.analysis import (
    ATOMICS,
    BRANCH,
    BRANCH_IF,
    CONTROL_BARRIER,
    COPY_SIZED,
    EXTRACT,
    LOAD,
    NO_RESULT,
    PHI,
    SELECT,
    STORE,
    SWITCH,
)
from webgpu_backend.translator.atomics import Atomics
from webgpu_backend.translator.calls import Words
from webgpu_backend.translator.kinds import I64, refuse

_MEMORY_BARRIER = 225
_INSERT, _COMPOSE, _SHUFFLE = 82, 80, 79
_WITH_CARRY = frozenset((149, 150, 151))
"""OpIAddCarry, OpISubBorrow, OpUMulExtended."""
_LIFETIMES = frozenset((246, 247, 256, 257))
_WORD = re.compile(r"\w+")


class Instructions(Atomics):
    """Blocks of a kernel."""

    def code(self, block: int) -> list[str]:
        """Return the statements of a block, without its phis and its end."""
        out: list[str] = []
        for index, (opcode, words) in enumerate(self.analysis.blocks[block][:-1]):
            self.position = block, index
            if opcode == PHI:
                self._declare_phi(words)
            else:
                self._emit(opcode, words, out)
        return out

    def _declare_phi(self, words: Words) -> None:
        result = words[2]
        if not self.analysis.uses.get(result):
            return
        kind = self.kinds.kind(words[1])
        if kind.is_aggregate:
            scalars = self.kinds.scalars(words[1])
            self.parts_of[result] = [f"v{result}_{at}" for at in range(len(scalars))]
            for at, one in enumerate(scalars):
                self.declare(f"v{result}_{at}", self.kinds.spelling(one.kind))
        elif self.analysis.is_pointer(result):
            self.declare(f"v{result}", "u32")
            if len(self.analysis.roots[result]) > 1:
                self.declare(f"t{result}", "u32")
        else:
            wide = self.is_wide(result) or kind != I64
            self.declare(f"v{result}", self.kinds.spelling(kind, wide))

    def _emit(self, opcode: int, words: Words, out: list[str]) -> None:
        if opcode in _LIFETIMES or opcode == _MEMORY_BARRIER:
            return  # a fence orders what WGSL's relaxed atomics and barriers order already
        if opcode == CONTROL_BARRIER:
            out += self.barriers.barriers_at(self.position)
        elif opcode == STORE:
            self.write_value(words, out)
        elif opcode == COPY_SIZED:
            self.copy(words, out)
        elif opcode in ATOMICS:
            self.atomic_operation(opcode, words, out)
        elif opcode in NO_RESULT:
            refuse(f"instruction {opcode}")
        elif self.analysis.uses.get(words[2]):
            self._compute(opcode, words, out)

    def _compute(self, opcode: int, words: Words, out: list[str]) -> None:
        result, kind = words[2], self.kinds.kind(words[1])
        if self.analysis.is_pointer(result) and opcode != LOAD:
            self.pointer(opcode, words, out)
        elif opcode == LOAD:
            self.read_value(words, out)
        elif opcode == EXTRACT:
            self.extract(words, out)
        elif opcode == _INSERT:
            self.insert(words, out)
        elif opcode == _COMPOSE:
            parts = [text for one in words[3:] for text in self.all_parts(one)]
            self.keep_parts(words, parts, out)
        elif opcode == SELECT and kind.is_aggregate:
            yes, no = self.parts(words[4]), self.parts(words[5])
            choice = self.value(words[3])
            pairs = zip(no, yes, strict=True)
            self.keep_parts(words, [f"select({a}, {b}, {choice})" for a, b in pairs], out)
        elif opcode == _SHUFFLE:
            parts = [*self.parts(words[3]), *self.parts(words[4])]
            self.keep_parts(words, [parts[at] for at in words[5:]], out)
        elif opcode in _WITH_CARRY:
            self.keep_parts(words, self.with_carry(opcode, words), out)
        elif kind.tag == "vector":
            self.keep_parts(words, self.each_element(opcode, words, kind), out)
        elif kind.is_aggregate:
            refuse(f"instruction {opcode} on structures")
        else:
            out.append(self.define(result, self.expression(opcode, words, kind), kind))

    # -- edges -------------------------------------------------------------------------------------

    def choices(self, block: int) -> list[tuple[str, int]]:
        """Return the next blocks in order, each with its condition; empty for the last."""
        opcode, words = self.analysis.blocks[block][-1]
        if opcode == BRANCH:
            return [("", words[1])]
        if opcode == BRANCH_IF:
            if words[2] == words[3]:
                return [("", words[2])]
            return [(self.value(words[1]), words[2]), ("", words[3])]
        if opcode != SWITCH:
            return []
        kind = self.kinds.kind_of(words[1])
        wide = True if kind.bits == 64 else None
        chosen = self.value(words[1], wide)
        cases = self.analysis.cases(words).items()
        listed = [(f"({chosen} == {self.literal(kind, value)})", target) for value, target in cases]
        return [*listed, ("", words[2])]

    def moves(self, source: int, target: int) -> list[str]:
        """Simultaneous assignments to a block's phis, on an edge from another block."""
        moves: list[tuple[str, str]] = []
        for opcode, words in self.analysis.blocks[target]:
            if opcode != PHI:
                break
            if self.analysis.uses.get(words[2]):
                moves += self._moved(words, source)
        moves = [(to, text) for to, text in moves if to != text]
        targets = {to for to, _ in moves}
        clash = any(set(_WORD.findall(text)) & (targets - {to}) for to, text in moves)
        if not clash:
            return [f"{to} = {text};" for to, text in moves]
        edge = f"{source}_{target}"
        return [
            *(f"let n{index}_{edge} = {text};" for index, (_, text) in enumerate(moves)),
            *(f"{to} = n{index}_{edge};" for index, (to, _) in enumerate(moves)),
        ]

    def _moved(self, words: Words, source: int) -> list[tuple[str, str]]:
        result = words[2]
        pairs = range(3, len(words) - 1, 2)
        given = next((words[at] for at in pairs if words[at + 1] == source), None)
        if given is None:
            refuse(f"a phi without a value for block {source}")
        if self.analysis.is_pointer(result):
            moves = [(f"v{result}", self.offset(given))]
            if len(self.analysis.roots[result]) > 1:
                moves.append((f"t{result}", self.tag(given)))
            return moves
        kind = self.kinds.kind(words[1])
        if kind.is_aggregate:
            return [(f"v{result}_{at}", text) for at, text in enumerate(self.parts(given))]
        return [(f"v{result}", self.value(given, self.is_wide(result) if kind == I64 else None))]
