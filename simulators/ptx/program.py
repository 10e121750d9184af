"""A PTX program as the parser leaves it: plain data, names resolved within their blocks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from .types import TYPES, PtxType


@dataclass(frozen=True)
class Register:
    """A declared register, by its name within the function."""

    name: str


@dataclass(frozen=True)
class Special:
    """A predefined register such as `%tid.x`."""

    name: str


@dataclass(frozen=True)
class Immediate:
    """A constant: an integer, or the bits of a float with their width."""

    value: int
    float_width: int = 0


@dataclass(frozen=True)
class Symbol:
    """A variable, function, label or parameter, with a byte offset."""

    name: str
    offset: int = 0


@dataclass(frozen=True)
class Address:
    """`[base + offset]`."""

    base: Operand
    offset: int = 0


@dataclass(frozen=True)
class Vector:
    """`{a, b}`; `None` is `_`, an unused result."""

    elements: tuple[Operand | None, ...]


@dataclass(frozen=True)
class Negated:
    """`!p`."""

    operand: Operand


@dataclass(frozen=True)
class Part:
    """`r.h1`: bytes or halves of a register, as the video instructions name them."""

    register: Register
    selector: str


@dataclass(frozen=True)
class Minus:
    """`-r`: a negated factor or summand of `vmad`."""

    operand: Operand


@dataclass(frozen=True)
class Pair:
    """`p|q`: two results."""

    first: Operand | None
    second: Operand | None


@dataclass(frozen=True)
class Group:
    """`(a, b)`: the results or arguments of a call."""

    elements: tuple[Operand, ...]


_TAKEN = re.compile(r"\bmov\.[bsu]64\s+[\w$%]+\s*,\s*([A-Za-z_$][\w$]*)\s*;")

Operand = (
    Register
    | Special
    | Immediate
    | Symbol
    | Address
    | Vector
    | Negated
    | Part
    | Minus
    | Pair
    | Group
)


@dataclass(frozen=True)
class Instruction:
    """One instruction. `spelling` is the opcode with all its modifiers."""

    spelling: str
    operands: tuple[Operand | None, ...]
    line: int
    guard: Operand | None = None
    used_bytes: int | None = None
    """Mask of the used bytes of a load; all bytes if the text has no mask."""

    @property
    def name(self) -> str:
        """The opcode alone."""
        return self.spelling.partition(".")[0]

    @property
    def modifiers(self) -> tuple[str, ...]:
        """Modifiers after the opcode, without dots."""
        return tuple(self.spelling.split(".")[1:])

    @property
    def types(self) -> list[PtxType]:
        """The modifiers that name a type, in order."""
        return [TYPES[one] for one in self.modifiers if one in TYPES]

    @property
    def type(self) -> PtxType:
        """The last type named."""
        return self.types[-1]

    def has(self, modifier: str) -> bool:
        """Say whether a modifier is given."""
        return modifier in self.modifiers

    def one_of(self, *names: str) -> str:
        """The first of these modifiers that is present; empty if none is."""
        return next((one for one in self.modifiers if one in names), "")


@dataclass(frozen=True)
class Label:
    """A label to branch to."""

    name: str
    line: int


@dataclass(frozen=True)
class Reference:
    """A word of an initializer that holds an address: filled in when the program is loaded."""

    offset: int
    symbol: str
    addend: int


@dataclass(frozen=True)
class Variable:
    """A variable of a module or of a function."""

    name: str
    space: str
    """`global`, `const`, `shared`, `local` or `param`."""
    alignment: int
    size: int
    """Bytes; 0 for an array whose extent is left open (dynamic shared memory)."""
    line: int
    data: bytes = b""
    """Its initial value; the rest is zero."""
    references: tuple[Reference, ...] = ()
    functions: tuple[str, ...] = ()
    """Functions whose addresses are in `data`."""


@dataclass(frozen=True)
class ParameterSlot:
    """A parameter or result, with its offset in the parameter block."""

    name: str
    offset: int
    size: int
    alignment: int


@dataclass(frozen=True)
class Prototype:
    """Arguments and results of a call through a register: bytes of each parameter and result."""

    results: tuple[int, ...]
    parameters: tuple[int, ...]


@dataclass
class Function:
    """An entry or a device function with its body."""

    name: str
    is_entry: bool
    results: tuple[ParameterSlot, ...]
    parameters: tuple[ParameterSlot, ...]
    line: int
    registers: dict[str, PtxType] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
    branch_targets: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Label lists for `brx.idx`, by their name."""
    prototypes: dict[str, Prototype] = field(default_factory=dict)
    """Prototypes of calls through a register, by their labels."""
    call_targets: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Functions that a call through a register may reach, by the label of their list."""
    statements: list[Label | Instruction] = field(default_factory=list)

    @property
    def parameter_bytes(self) -> int:
        """Bytes of the parameter block."""
        return max((slot.offset + slot.size for slot in self.parameters), default=0)

    @property
    def prototype(self) -> Prototype:
        """Layout of a call's arguments and results."""
        results, parameters = (
            tuple(slot.size for slot in slots) for slots in (self.results, self.parameters)
        )
        return Prototype(results, parameters)


@dataclass
class FunctionText:
    """A function whose body has not been read yet."""

    name: str
    is_entry: bool
    head: Function
    body: str | None
    """`None` for a declaration."""
    body_line: int


@dataclass
class Program:
    """A PTX module."""

    version: tuple[int, int]
    target: str
    target_line: int
    functions: Mapping[str, FunctionText]
    variables: Mapping[str, Variable]

    @property
    def entries(self) -> list[str]:
        """Names of the kernels, in the text's order."""
        return [one.name for one in self.functions.values() if one.is_entry and one.body]

    @cached_property
    def function_addresses(self) -> dict[str, int]:
        """Addresses of the defined functions: numbers in text order, not memory."""
        defined = (one.name for one in self.functions.values() if not one.is_entry and one.body)
        return {name: 16 * (1 + index) for index, name in enumerate(defined)}

    @cached_property
    def functions_with_taken_address(self) -> list[str]:
        """Functions named by a variable's initial value or a `mov`, in text order."""
        taken = {name for one in self.variables.values() for name in one.functions}
        for function in self.functions.values():
            taken.update(found[1] for found in _TAKEN.finditer(function.body or ""))
        return [name for name in self.function_addresses if name in taken]
