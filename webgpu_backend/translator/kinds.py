"""Types and constants of a kernel, and how WGSL spells them.

Integers of 8 and 16 bits live zero-extended in a `u32`, f16 as an `f32` whose value f16 can
represent, f64 as its bits in a `u64`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple, NoReturn

from uhal.errors import NotSupportedError
from uhal.images.spirv import SpirvModule
from uhal.images.spirv_words import DECORATION_CPACKED

AGGREGATES = frozenset(("vector", "array", "struct"))
_MOST_SCALARS = 1 << 14
"""Maximum scalars in one value: kernels with larger values are refused."""

_BUILT_IN = 11
_BUILT_INS = {24: "grid", 25: "block", 26: "block_id", 27: "thread_id"}
"""NumWorkgroups, WorkgroupSize, WorkgroupId, LocalInvocationId → a name in the text."""
_NULL, _UNDEFINED, _COMPOSITE, _CONSTANT, _TRUE, _FALSE = 46, 1, 44, 43, 41, 42
_SPEC_OPERATION, _VARIABLE = 52, 59
_CASTS = frozenset((117, 120, 121, 122, 124))
_CHAINS = frozenset((67, 70))

Constant = int | list[int] | None
"""Bits of a number, or of each scalar in an aggregate; `None` for a null pointer."""


def refuse(reason: str) -> NoReturn:
    """Raise `NotSupportedError` for a kernel; the caller adds the kernel's name."""
    raise NotSupportedError(reason, backend="webgpu")


class Kind(NamedTuple):
    """A type."""

    tag: str
    """bool, int, float, vector, array, struct, pointer or void."""
    bits: int = 0
    element: int = 0
    """The type of a vector's or an array's elements, or of a pointer's target."""
    length: int = 0
    storage: int = 0
    """The storage class that a pointer points to."""
    members: tuple[int, ...] = ()

    @property
    def is_aggregate(self) -> bool:
        """Whether it has parts."""
        return self.tag in AGGREGATES


BOOL, I32, I64 = Kind("bool"), Kind("int", 32), Kind("int", 64)
F16, F32, F64 = Kind("float", 16), Kind("float", 32), Kind("float", 64)


_WIDTHS = {21: ("int", (8, 16, 32, 64)), 22: ("float", (16, 32, 64))}
"""Instructions of numbers: the kind and its bits."""


class Scalar(NamedTuple):
    """One number of a value, and its byte offset in the value."""

    kind: Kind
    offset: int


class Kinds:
    """The types and constants of one module."""

    def __init__(self, module: SpirvModule) -> None:
        """Read the module's constants; may refuse a constant."""
        self.module = module
        self._kinds: dict[int, Kind] = {}
        self._scalars: dict[int, Sequence[Scalar]] = {}
        self.type_of: dict[int, int] = {}
        """The type of each value by its identifier."""
        self.constants: dict[int, Constant] = {}
        self.aliases: dict[int, tuple[int, Sequence[int]]] = {}
        """Constant pointers into module variables: the variable, and a chain of indices."""
        self.built_ins: dict[int, str] = {}
        self._read()

    # -- types -------------------------------------------------------------------------------------

    def kind(self, type_: int) -> Kind:
        """Return a type by its identifier."""
        found = self._kinds.get(type_)
        if found is None:
            found = self._kinds[type_] = self._kind(type_)
        return found

    def kind_of(self, value: int) -> Kind:
        """Return the type of a value."""
        type_ = self.type_of.get(value)
        if type_ is None:
            refuse(f"value {value} has no type")
        return self.kind(type_)

    def _kind(self, type_: int) -> Kind:
        words = self.module.operands(type_)
        opcode = words[0] & 0xFFFF
        try:
            if opcode == 20:
                return BOOL
            if opcode in _WIDTHS:
                tag, widths = _WIDTHS[opcode]
                if words[2] not in widths:
                    refuse(f"{tag} numbers of {words[2]} bits")
                return Kind(tag, words[2])
            if opcode == 23:
                return Kind("vector", element=words[2], length=words[3])
            if opcode == 28:
                length = self.constants.get(words[3])
                known = length if isinstance(length, int) else 0
                return Kind("array", element=words[2], length=known)
            if opcode == 30:
                return Kind("struct", members=tuple(words[2:]))
            if opcode == 32:
                return Kind("pointer", storage=words[2], element=words[3])
        except IndexError:
            refuse(f"type {type_} breaks off")
        return Kind("void")

    def size(self, type_: int) -> int:
        """Return the bytes of a type."""
        return self.module.size_and_alignment(type_)[0]

    def member_offset(self, type_: int, index: int) -> int:
        """Return the byte offset of a structure's member."""
        packed = any(kind == DECORATION_CPACKED for kind, _ in self.module.decorations(type_))
        end = 0
        for number, member in enumerate(self.kind(type_).members):
            size, alignment = self.module.size_and_alignment(member)
            if not packed:
                end = -(-end // alignment) * alignment
            if number == index:
                return end
            end += size
        refuse(f"type {type_} has no member {index}")

    def scalars(self, type_: int) -> Sequence[Scalar]:
        """Return the numbers that a value of a type consists of."""
        found = self._scalars.get(type_)
        if found is None:
            found = self._scalars[type_] = self._flatten(type_)
            if len(found) > _MOST_SCALARS:
                refuse("a value is too large")
        return found

    def _flatten(self, type_: int) -> Sequence[Scalar]:
        kind = self.kind(type_)
        if kind.tag in ("vector", "array"):
            size = self.size(kind.element)
            inner = self.scalars(kind.element)
            if len(inner) * kind.length > _MOST_SCALARS:
                refuse("a value is too large")
            return [
                Scalar(one.kind, one.offset + index * size)
                for index in range(kind.length)
                for one in inner
            ]
        if kind.tag == "struct":
            return [
                Scalar(one.kind, one.offset + self.member_offset(type_, index))
                for index, member in enumerate(kind.members)
                for one in self.scalars(member)
            ]
        return [Scalar(kind, 0)]

    def part(self, type_: int, index: int) -> tuple[int, int]:
        """Return a part's index among the type's scalars, and the part's type."""
        kind = self.kind(type_)
        if kind.tag in ("vector", "array"):
            return index * len(self.scalars(kind.element)), kind.element
        if kind.tag != "struct" or index >= len(kind.members):
            refuse(f"type {type_} has no part {index}")
        before = sum(len(self.scalars(member)) for member in kind.members[:index])
        return before, kind.members[index]

    # -- spelling ----------------------------------------------------------------------------------

    @staticmethod
    def spelling(kind: Kind, wide: bool = True) -> str:
        """Return the WGSL type of a scalar. `wide`: a 64-bit type for a 64-bit scalar."""
        if kind.tag == "bool":
            return "bool"
        if kind.tag == "int":
            if kind.bits not in (8, 16, 32, 64):
                refuse(f"integers of {kind.bits} bits")
            return "u64" if kind.bits == 64 and wide else "u32"
        if kind.tag == "float":
            return "u64" if kind.bits == 64 else "f32"
        if kind.tag == "pointer":
            return "u32"
        refuse(f"values of the kind {kind.tag}")

    @staticmethod
    def literal(kind: Kind, bits: int, wide: bool = True) -> str:
        """Return the WGSL literal of a scalar."""
        if kind.tag == "bool":
            return "true" if bits else "false"
        if kind.tag == "float" and kind.bits != 64:
            return _float_literal(kind, bits)
        if kind.bits == 64 and wide:
            return f"{bits & (1 << 64) - 1}lu"
        return f"{bits & 0xFFFFFFFF}u"

    # -- constants ---------------------------------------------------------------------------------

    def _read(self) -> None:
        module = self.module
        for identifier, one in module.globals.items():
            words = module.words[one.start : one.end]
            if one.opcode in range(19, 40) or len(words) < 3:
                continue
            self.type_of[identifier] = words[1]
            if one.opcode == _CONSTANT:
                self.constants[identifier] = sum(
                    word << 32 * index for index, word in enumerate(words[3:5])
                )
            elif one.opcode in (_TRUE, _FALSE):
                self.constants[identifier] = int(one.opcode == _TRUE)
            elif one.opcode in (_NULL, _UNDEFINED):
                self.constants[identifier] = self._nothing(words[1])
            elif one.opcode == _COMPOSITE:
                self.constants[identifier] = self._composite(words[3:])
            elif one.opcode == _SPEC_OPERATION:
                self._operation(identifier, words[3], words[4:])
            elif one.opcode == _VARIABLE:
                for decoration, reported in module.decorations(identifier):
                    if decoration == _BUILT_IN and reported:
                        self.built_ins[identifier] = _BUILT_INS.get(reported[0], "")

    def _nothing(self, type_: int) -> Constant:
        kind = self.kind(type_)
        if kind.tag == "pointer":
            return None
        return [0] * len(self.scalars(type_)) if kind.is_aggregate else 0

    def _composite(self, parts: Sequence[int]) -> list[int]:
        found: list[int] = []
        for part in parts:
            one = self.constants.get(part)
            found += one if isinstance(one, list) else [one or 0]
            if len(found) > _MOST_SCALARS << 6:
                refuse("a constant is too large")
        return found

    def _operation(self, identifier: int, opcode: int, operands: Sequence[int]) -> None:
        if opcode in _CASTS and operands:
            base = operands[0]
            if base in self.constants and not self.constants[base]:
                self.constants[identifier] = None
                return
            self.aliases[identifier] = self.aliases.get(base, (base, ()))
        elif opcode in _CHAINS and len(operands) > 1:
            self.aliases[identifier] = (operands[0], tuple(operands[1:]))
        else:
            refuse(f"a constant that instruction {opcode} computes")

    def number(self, identifier: int) -> int:
        """Return an integer constant."""
        found = self.constants.get(identifier)
        if not isinstance(found, int):
            refuse(f"expected a constant, got value {identifier}")
        return found

    def packed(self, type_: int, identifier: int) -> bytes:
        """Return the bytes of a constant, in the order of memory."""
        value = self.constants.get(identifier)
        if value is None:
            refuse("a constant with a pointer")
        numbers = value if isinstance(value, list) else [value]
        size = self.size(type_)
        if size > _MOST_SCALARS << 4:
            refuse("a constant is too large")
        found = bytearray(size)
        for one, bits in zip(self.scalars(type_), numbers, strict=False):
            width = max(one.kind.bits // 8, 1)
            masked = bits & (1 << 8 * width) - 1
            found[one.offset : one.offset + width] = masked.to_bytes(width, "little")
        return bytes(found)


def _float_literal(kind: Kind, bits: int) -> str:
    if kind.bits == 16:
        (value,) = struct.unpack("<e", struct.pack("<H", bits & 0xFFFF))
        bits = struct.unpack("<I", struct.pack("<f", value))[0]
    elif kind.bits != 32:
        refuse(f"floats of {kind.bits} bits")
    exponent = bits >> 23 & 0xFF
    # WGSL has no literal of NaN and infinity, and may flush a subnormal one.
    if exponent == 0xFF or (exponent == 0 and bits & 0x7FFFFF):
        return f"bitcast<f32>({bits}u ^ nothing)"
    (value,) = struct.unpack("<f", struct.pack("<I", bits & 0xFFFFFFFF))
    return f"(-{(-value).hex()}f)" if bits >> 31 else f"{value.hex()}f"
