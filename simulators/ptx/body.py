"""The body of a function: registers, variables, labels and instructions in nested blocks.

A block may declare a register or a variable whose name an outer block uses (ISA manual §9.7.12.1);
each gets its own name here, so that later stages have no blocks.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import replace
from typing import NoReturn

from .errors import PtxSyntaxError, UnsupportedPtxError
from .program import (
    Address,
    Function,
    FunctionText,
    Group,
    Immediate,
    Instruction,
    Label,
    Minus,
    Negated,
    Operand,
    Pair,
    Part,
    Prototype,
    Register,
    Special,
    Symbol,
    Variable,
    Vector,
)
from .source import Lines, pieces
from .types import TYPES

MAX_REGISTERS = 1 << 20

_REGISTERS = re.compile(r"\.reg\s*\.(\w+)\s+(.*)$", re.DOTALL)
_REGISTER = re.compile(r"([\w$%]+)\s*(?:<\s*(\d{1,7})\s*>)?$")
_INSTRUCTION = re.compile(r"(?:@\s*(!?)\s*([\w$%]+)\s+)?([a-z][\w.:]*)\s*(.*)$", re.DOTALL)
_USED_BYTES = re.compile(r'"used_bytes_mask\s+(0[xX][0-9a-fA-F]+|\d+)"')
"""ISA manual §11.4, Pragma Strings: of the load that follows."""
_TARGETS = re.compile(r"\.(?:branch|call)targets\s+(.*)$", re.DOTALL)
_LIST = re.compile(r"\s*\.(?:branchtargets|calltargets|callprototype)")
_INTEGER = re.compile(r"([-~]?)\s*(0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)U?$")
_FLOAT = re.compile(r"0([fFdD])([0-9a-fA-F]+)$")
_DECIMAL = re.compile(r"-?\d+\.\d*(?:[eE][-+]?\d+)?$")
_NAME = re.compile(r"%?[A-Za-z_$%][\w$.:]*$")
_SUM = re.compile(r"([\w$%.:]+)\s*\+\s*(-?\s*(?:0[xX][0-9a-fA-F]+|\d+))$")


ReadVariable = Callable[[str, int], Variable]
ReadPrototype = Callable[[str, int], Prototype]


def read_body(
    found: FunctionText, read_variable: ReadVariable, read_prototype: ReadPrototype
) -> Function:
    """Read a function whose body is at hand."""
    assert found.body is not None
    head = found.head
    function = Function(head.name, head.is_entry, head.results, head.parameters, head.line)
    _Body(function, read_variable, read_prototype).read(found.body, found.body_line)
    return function


class _Body:
    def __init__(
        self, function: Function, read_variable: ReadVariable, read_prototype: ReadPrototype
    ) -> None:
        self._function = function
        self._read_variable = read_variable
        self._read_prototype = read_prototype
        self._blocks: list[dict[str, str]] = [{}]
        self._block_count = 0
        self._line = 0
        self._used_bytes: int | None = None

    def read(self, text: str, first_line: int) -> None:
        label = ""
        branches: list[tuple[int, tuple[dict[str, str], ...]]] = []
        for piece in pieces(text, Lines(text, first_line)):
            self._line = piece.line
            if piece.ended_by == ":":
                label = piece.text
                if not _LIST.match(text, piece.end):
                    own = self._declared(label)
                    self._function.statements.append(Label(own, piece.line))
                continue
            if piece.ended_by == "{":
                self._open()
            elif piece.text:
                self._statement(piece.text, label)
                if re.search(r"\bbra\b", piece.text):
                    branches.append((len(self._function.statements) - 1, tuple(self._blocks)))
            if piece.ended_by == "}":
                self._close()
        if len(self._blocks) != 1:
            self._fail("a block is never closed")
        for index, blocks in branches:
            self._aim(index, blocks)

    def _aim(self, index: int, blocks: tuple[dict[str, str], ...]) -> None:
        """Resolve the target of a branch; its label may be later in the text."""
        branch = self._function.statements[index]
        if isinstance(branch, Instruction) and branch.operands:
            target = branch.operands[0]
            if isinstance(target, Symbol):
                own = next((one[target.name] for one in reversed(blocks) if target.name in one), "")
                aimed = Symbol(own or target.name)
                self._function.statements[index] = replace(branch, operands=(aimed,))

    def _open(self) -> None:
        self._block_count += 1
        self._blocks.append({})

    def _close(self) -> None:
        self._blocks.pop()
        if not self._blocks:
            self._fail("a block is closed that was never opened")

    def _statement(self, text: str, label: str) -> None:
        if not text.startswith("."):
            self._instruction(text)
        elif text.startswith(".reg"):
            self._declare_registers(text)
        elif text.startswith(".branchtargets"):
            targets = _TARGETS.match(text)
            assert targets is not None
            names = tuple(self._resolved(one.strip()) for one in targets[1].split(","))
            self._function.branch_targets[label] = names
        elif text.startswith(".calltargets"):
            targets = _TARGETS.match(text)
            assert targets is not None
            called = tuple(one.strip() for one in targets[1].split(","))
            self._function.call_targets[label] = called
        elif text.startswith(".callprototype"):
            self._function.prototypes[label] = self._read_prototype(text, self._line)
        elif text.startswith((".local", ".shared", ".param", ".global", ".const")):
            variable = self._read_variable(text, self._line)
            self._function.variables[self._declared(variable.name)] = replace(
                variable, name=self._resolved(variable.name)
            )
        elif text.startswith(".pragma"):
            used = _USED_BYTES.search(text)
            self._used_bytes = int(used[1], 0) if used is not None else None
        elif not text.startswith((".maxn", ".minn", ".loc", ".file")):
            self._fail(f"an unknown directive: {text[:60]!r}")

    def _declare_registers(self, text: str) -> None:
        found = _REGISTERS.match(text)
        if found is None or found[1] not in TYPES:
            self._fail(f"registers cannot be read: {text[:60]!r}")
        declared = TYPES[found[1]]
        for part in found[2].split(","):
            one = _REGISTER.match(part.strip())
            if one is None:
                self._fail(f"a register cannot be read: {part.strip()[:60]!r}")
            names = [one[1]]
            if one[2] is not None:
                names = [f"{one[1]}{index}" for index in range(min(int(one[2]), MAX_REGISTERS + 1))]
            if len(names) + len(self._function.registers) > MAX_REGISTERS:
                raise UnsupportedPtxError(f"more than {MAX_REGISTERS} registers", self._line)
            for name in names:
                self._function.registers[self._declared(name)] = declared

    def _declared(self, name: str) -> str:
        """Give a name of this block its name in the function."""
        own = name if len(self._blocks) == 1 else f"{name}.{self._block_count}"
        self._blocks[-1][name] = own
        return own

    def _resolved(self, name: str) -> str:
        for block in reversed(self._blocks):
            if name in block:
                return block[name]
        return name

    def _instruction(self, text: str) -> None:
        found = _INSTRUCTION.match(text)
        if found is None:
            self._fail(f"an instruction cannot be read: {text[:60]!r}")
        guard: Operand | None = None
        if found[2]:
            guard = self._operand(found[2])
            if not isinstance(guard, Register):
                self._fail(f"the guard {found[2]} is no register")
            guard = Negated(guard) if found[1] else guard
        operands = tuple(self._optional(one) for one in self._split(found[4]))
        used, self._used_bytes = self._used_bytes, None
        self._function.statements.append(Instruction(found[3], operands, self._line, guard, used))

    def _split(self, text: str) -> list[str]:
        """Cut operands at the commas outside brackets."""
        if not text.strip():
            return []
        parts: list[str] = []
        depth = 0
        start = 0
        for index, character in enumerate(text):
            if character in "[{(":
                depth += 1
            elif character in "]})":
                depth -= 1
            elif character == "," and depth == 0:
                parts.append(text[start:index].strip())
                start = index + 1
        if depth:
            self._fail("brackets do not match")
        return [*parts, text[start:].strip()]

    def _optional(self, text: str) -> Operand | None:
        return None if text == "_" else self._operand(text)

    def _operand(self, text: str) -> Operand:
        if text.startswith("{"):
            return Vector(tuple(self._optional(one) for one in self._split(text[1:-1])))
        if text.startswith("("):
            return Group(tuple(self._operand(one) for one in self._split(text[1:-1])))
        if text.startswith("["):
            return self._address(text[1:-1].strip())
        if text.startswith("!"):
            return Negated(self._operand(text[1:].strip()))
        if "|" in text:
            first, _, second = text.partition("|")
            return Pair(self._optional(first.strip()), self._optional(second.strip()))
        if re.match(r"-\s*[%A-Za-z_$]", text):
            return Minus(self._operand(text[1:].strip()))
        return self._simple(text)

    def _simple(self, text: str) -> Operand:
        number = _INTEGER.match(text)
        if number is not None:
            value = int(number[2], 0) if not number[2].isdigit() else int(number[2])
            return Immediate({"-": -value, "~": ~value}.get(number[1], value))
        real = _FLOAT.match(text)
        if real is not None:
            return Immediate(int(real[2], 16), 32 if real[1] in "fF" else 64)
        if _DECIMAL.match(text):
            return Immediate(int.from_bytes(struct.pack("<d", float(text)), "little"), 64)
        added = _SUM.match(text)
        if added is not None:
            return Symbol(self._resolved(added[1]), int(added[2].replace(" ", ""), 0))
        if _NAME.match(text) is None:
            self._fail(f"an operand cannot be read: {text[:60]!r}")
        name = self._resolved(text)
        if name in self._function.registers:
            return Register(name)
        whole, dot, selector = text.rpartition(".")
        if dot and self._resolved(whole) in self._function.registers:
            return Part(Register(self._resolved(whole)), selector)
        if text.startswith("%") or text == "WARP_SZ":
            return Special(text)
        return Symbol(name)

    def _address(self, text: str) -> Operand:
        parts = self._split(text)
        if len(parts) != 1:
            # Textures and tensors: the table decides whether an instruction takes them.
            return Group(tuple(self._operand(one) for one in parts))
        added = re.match(r"([\w$%.]+)\s*([-+].*)$", text, re.DOTALL)
        if added is None:
            return Address(self._simple(text))
        offset = re.sub(r"[\s+]", "", added[2])
        number = _INTEGER.match(offset)
        if number is None:
            self._fail(f"an address cannot be read: [{text[:60]}]")
        return Address(self._simple(added[1]), int(offset.rstrip("U"), 0))

    def _fail(self, problem: str) -> NoReturn:
        raise PtxSyntaxError(problem, self._line)
