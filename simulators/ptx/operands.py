"""Operands of instructions: registers, constants, vectors, and the memory an address names."""

from __future__ import annotations

import struct

from .errors import PtxSyntaxError, UnsupportedPtxError
from .layout import BLOCK
from .program import (
    Address,
    Function,
    Immediate,
    Negated,
    Operand,
    Register,
    Special,
    Symbol,
    Vector,
)
from .reals import Reals
from .types import BITS, PtxType
from .unit import Unit


class Operands(Reals):
    """Reads and writes the operands of the function being emitted."""

    def __init__(self, unit: Unit) -> None:
        super().__init__()
        self.unit = unit
        self._prefix = ""
        self._function: Function
        self._parameter_pointers: dict[str, str] = {}
        self._line = 0
        self._carry = ""
        self._roots: dict[str, str] = {}

    def unsupported(self, what: str) -> UnsupportedPtxError:
        """The error for valid PTX that is not executed; the caller raises it."""
        return UnsupportedPtxError(what, self._line)

    def read(self, operand: Operand | None, kind: PtxType) -> str:
        """The bits of an operand as an LLVM integer of the type's width."""
        if isinstance(operand, Register):
            declared = self._function.registers[operand.name]
            held = self.value(f"load {declared.llvm}, ptr {self._register(operand.name)}")
            return self.resized(held, declared.width, kind.width, signed=False)
        if isinstance(operand, Immediate):
            return self._immediate(operand, kind)
        if isinstance(operand, Negated):
            return self.value(f"xor i1 {self.read(operand.operand, kind)}, true")
        if isinstance(operand, Special):
            return self.special(operand.name, kind.width)
        if isinstance(operand, Symbol):
            return self.resized(self.symbol_address(operand), 64, kind.width, signed=False)
        if isinstance(operand, Vector):
            return self.packed(operand, kind)
        raise PtxSyntaxError("an operand does not fit its instruction", self._line)

    def special(self, name: str, width: int) -> str:
        """A predefined register."""
        raise NotImplementedError

    def packed(self, vector: Vector, kind: PtxType) -> str:
        """The elements of a vector side by side, the first in the low bits."""
        part = BITS[kind.width // len(vector.elements)]
        joined = "0"
        for index, element in enumerate(vector.elements):
            wide = self.resized(self.read(element, part), part.width, kind.width, signed=False)
            shifted = self.value(f"shl {kind.llvm} {wide}, {index * part.width}")
            joined = self.value(f"or {kind.llvm} {joined}, {shifted}")
        return joined

    def write(self, operand: Operand | None, bits: str, kind: PtxType) -> None:
        """Store bits of a type into a register, extended as the type's sign says."""
        if operand is None:
            return
        if isinstance(operand, Vector):
            part = BITS[kind.width // len(operand.elements)]
            for index, element in enumerate(operand.elements):
                moved = self.value(f"lshr {kind.llvm} {bits}, {index * part.width}")
                self.write(element, self.resized(moved, kind.width, part.width, signed=False), part)
            return
        if not isinstance(operand, Register):
            raise PtxSyntaxError("the result is no register", self._line)
        declared = self._function.registers[operand.name]
        held = self.resized(bits, kind.width, declared.width, signed=kind.is_signed)
        self.line(f"store {declared.llvm} {held}, ptr {self._register(operand.name)}")

    def resized(self, value: str, width: int, wanted: int, *, signed: bool) -> str:
        """An integer in another width."""
        if width == wanted:
            return value
        how = "trunc" if width > wanted else "sext" if signed else "zext"
        return self.value(f"{how} i{width} {value} to i{wanted}")

    def register_type(self, operand: Operand | None) -> PtxType:
        """The type a register was declared with."""
        if not isinstance(operand, Register):
            raise PtxSyntaxError("expected a register", self._line)
        return self._function.registers[operand.name]

    def constant(self, operand: Operand | None) -> int:
        """The value of an operand that must be an integer constant."""
        if not isinstance(operand, Immediate):
            raise PtxSyntaxError("expected a constant", self._line)
        return operand.value

    def _register(self, name: str) -> str:
        return f'%"r.{self._prefix}{name}"'

    def _immediate(self, operand: Immediate, kind: PtxType) -> str:
        value = operand.value
        if operand.float_width == 64 and kind.name in ("f32", "b32"):
            real = struct.unpack("<d", value.to_bytes(8, "little"))[0]
            value = int.from_bytes(struct.pack("<f", real), "little")
        if operand.float_width == 32 and kind.name == "f64":
            real = struct.unpack("<f", value.to_bytes(4, "little"))[0]
            value = int.from_bytes(struct.pack("<d", real), "little")
        if kind.width == 1:
            return "true" if value else "false"
        return str(value & ((1 << kind.width) - 1))

    def real(self, operand: Operand | None, kind: PtxType, *, flush: bool = False) -> str:
        """An operand as a value to compute with: double for f64, else float."""
        return self.to_real(self.read(operand, kind), kind, flush=flush)

    def write_predicate(self, operand: Operand | None, truth: str) -> None:
        """Store an i1 into a predicate register."""
        self.write(operand, truth, BITS[1])

    def carry_flag(self) -> str:
        """The slot of the condition code register (ISA manual §9.7.2)."""
        if not self._carry:
            self._carry = self.slot("i1")
        return self._carry

    def write_real(
        self, operand: Operand | None, value: str, kind: PtxType, *, flush: bool = False
    ) -> None:
        """Store a computed value into a register."""
        self.write(operand, self.from_real(value, kind, flush=flush), kind)

    # -- addresses ---------------------------------------------------------------------------------

    def field(self, name: str, llvm: str, index: int = 0) -> str:
        """A field of the block's record; it does not change while the block runs."""
        size = {"i32": 4, "i64": 8, "ptr": 8}[llvm]
        where = self.value(f"getelementptr i8, ptr %block, i64 {BLOCK[name] + index * size}")
        return self.value(f"load {llvm}, ptr {where}, !invariant.load !0")

    def symbol_address(self, symbol: Symbol) -> str:
        """The address of a variable in its own space, as an i64."""
        shared = self.unit.shared_offset(self._function, symbol.name)
        if shared is not None:
            return str(shared + symbol.offset)
        local = self._function.variables.get(symbol.name)
        if symbol.name in self._parameter_pointers or (local and local.space in ("local", "param")):
            where = self._own_memory(symbol.name)
            base = self.value(f"ptrtoint ptr {where} to i64")
        elif self.unit.variable_offset(symbol.name) is not None:
            start = self.field("variables", "i64")
            base = self.value(f"add i64 {start}, {self.unit.variable_offset(symbol.name)}")
        elif symbol.name in self.unit.program.function_addresses:
            base = str(self.unit.program.function_addresses[symbol.name])
        else:
            raise self.unsupported(f"the address of {symbol.name}, which is no variable here")
        return self.value(f"add i64 {base}, {symbol.offset}") if symbol.offset else base

    def _own_memory(self, name: str) -> str:
        if name in self._parameter_pointers:
            return self._parameter_pointers[name]
        return f'%"m.{self._prefix}{name}"'

    def pointer(self, operand: Operand | None, space: str) -> str:
        """A host pointer to the memory of an address operand."""
        if not isinstance(operand, Address):
            raise PtxSyntaxError("expected an address in brackets", self._line)
        base, offset = operand.base, operand.offset
        if isinstance(base, Symbol) and base.name in self._known_memory():
            where = self._own_memory(base.name)
            return self._moved(where, base.offset + offset)
        if space == "shared":
            start = self.field("shared", "ptr")
            at = self._shared_index(base)
            return self._moved(self.value(f"getelementptr i8, ptr {start}, i64 {at}"), offset)
        address = self.read(base, BITS[64])
        if offset:
            address = self.value(f"add i64 {address}, {offset}")
        if space in ("local", "param"):
            return self.value(f"inttoptr i64 {address} to ptr")
        root = self._root(base)
        if root is None:
            return self.value(f"inttoptr i64 {self._on_the_host(address)} to ptr")
        # As an offset from a pointer, because LLVM can follow pointers through a loop.
        start = self.value(f"inttoptr i64 {self._on_the_host(root)} to ptr")
        distance = self.value(f"sub i64 {address}, {root}")
        return self.value(f"getelementptr i8, ptr {start}, i64 {distance}")

    def _shared_index(self, base: Operand) -> str:
        if isinstance(base, Register):
            width = self._function.registers[base.name].width
            return self.resized(self.read(base, BITS[width]), width, 64, signed=False)
        return self.read(base, BITS[64])

    def _known_memory(self) -> set[str]:
        own = {
            name
            for name, variable in self._function.variables.items()
            if variable.space in ("local", "param")
        }
        return own | set(self._parameter_pointers)

    def _moved(self, pointer: str, offset: int) -> str:
        return self.value(f"getelementptr i8, ptr {pointer}, i64 {offset}") if offset else pointer

    def _root(self, base: Operand) -> str | None:
        """The pointer that an address was made from, if all threads share it.

        Then the distance to host memory is found once and not in every turn of a loop.
        """
        if not isinstance(base, Register) or base.name not in self._roots:
            return None
        return self.read(Register(self._roots[base.name]), BITS[64])

    def _on_the_host(self, address: str) -> str:
        """A device address in the engine's window; every other address unchanged."""
        base = self.field("window_base", "i64")
        span = self.field("window_span", "i64")
        delta = self.field("window_delta", "i64")
        inside = self.value(f"sub i64 {address}, {base}")
        belongs = self.value(f"icmp ult i64 {inside}, {span}")
        moved = self.value(f"select i1 {belongs}, i64 {delta}, i64 0")
        return self.value(f"add i64 {address}, {moved}")
