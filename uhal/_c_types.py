"""C types as ABI headers use them, and what each is in ctypes. What reads them: `_c_header.py`.

A pointer to what the header does not define is an opaque handle and passes as an address. A
`const char *` passes as bytes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

CData = type[Any]


class CType:
    """A C type."""

    def ctype(self) -> CData:
        """Return the ctypes type of a value, a member or an array element."""
        raise NotImplementedError

    def canonical(self) -> str:
        """Return what matters to the machine: equal strings pass values the same way."""
        raise NotImplementedError

    def resolved(self) -> CType:
        """Return the type behind typedef names and const."""
        return self

    def is_const(self) -> bool:
        """Return whether it is const at the outermost level."""
        return False


@dataclass(frozen=True)
class Void(CType):
    """`void`: only behind a pointer or as a result."""

    def ctype(self) -> CData:
        """Refuse: there are no values of it."""
        raise TypeError("void has no values")

    def canonical(self) -> str:
        """Return `void`."""
        return "void"


VOID = Void()


@dataclass(frozen=True)
class Scalar(CType):
    """An integer or floating type."""

    data: CData

    def ctype(self) -> CData:
        """Return the ctypes scalar."""
        return self.data

    def canonical(self) -> str:
        """Return kind and bits, such as `u64`: `unsigned long` and `uint64_t` are the same."""
        if self.data in (ctypes.c_float, ctypes.c_double):
            kind = "f"
        elif self.data is ctypes.c_char or self.data(-1).value == -1:
            kind = "i"
        else:
            kind = "u"
        return f"{kind}{8 * ctypes.sizeof(self.data)}"


@dataclass(frozen=True)
class Const(CType):
    """A const type: passes as the type itself, but for text."""

    target: CType

    def ctype(self) -> CData:
        """Return the ctypes type of the target."""
        return self.target.ctype()

    def canonical(self) -> str:
        """Return the canonical form of the target."""
        return self.target.canonical()

    def resolved(self) -> CType:
        """Return what is const."""
        return self.target.resolved()

    def is_const(self) -> bool:
        """Return True."""
        return True


@dataclass(frozen=True)
class Named(CType):
    """A typedef in use."""

    name: str
    target: CType

    def ctype(self) -> CData:
        """Return the ctypes type of what it stands for."""
        return self.target.ctype()

    def canonical(self) -> str:
        """Return the canonical form of what it stands for."""
        return self.target.canonical()

    def resolved(self) -> CType:
        """Return what it stands for, through any chain of names."""
        return self.target.resolved()

    def is_const(self) -> bool:
        """Return whether what it stands for is const."""
        return self.target.is_const()


@dataclass(frozen=True)
class Enum(CType):
    """An enumeration: an int, or wider when a value needs it."""

    tag: str
    values: tuple[tuple[str, int], ...]

    def ctype(self) -> CData:
        """Return the first of int, unsigned, and their 64-bit versions that holds every value."""
        numbers = [value for _, value in self.values]
        for data, bits, signed in (
            (ctypes.c_int, 31, True),
            (ctypes.c_uint, 32, False),
            (ctypes.c_int64, 63, True),
        ):
            least = -(1 << bits) if signed else 0
            if all(least <= number < (1 << bits) for number in numbers):
                return data
        return ctypes.c_uint64

    def canonical(self) -> str:
        """Return the integer it is passed as."""
        return f"i{8 * ctypes.sizeof(self.ctype())}"


@dataclass(frozen=True)
class Array(CType):
    """A constant array as a member."""

    target: CType
    length: int

    def ctype(self) -> CData:
        """Return the ctypes array."""
        array: CData = self.target.ctype() * self.length
        return array

    def canonical(self) -> str:
        """Return element and length."""
        return f"{self.target.canonical()}[{self.length}]"


@dataclass(frozen=True)
class Pointer(CType):
    """A pointer to anything."""

    target: CType

    def ctype(self) -> CData:
        """Return c_char_p, c_void_p, a function type or a typed pointer."""
        target = self.target.resolved()
        if isinstance(target, Void) or (isinstance(target, Record) and target.members is None):
            return ctypes.c_void_p
        if isinstance(target, Function):
            return target.ctype()
        is_text = isinstance(target, Scalar) and target.data is ctypes.c_char
        if is_text and self.target.is_const():
            return ctypes.c_char_p
        pointer: CData = ctypes.POINTER(target.ctype())
        return pointer

    def canonical(self) -> str:
        """Return the target with a star; opaque targets are void, functions one word."""
        target = self.target.resolved()
        if isinstance(target, Record) and target.members is None:
            return "void*"
        return f"{target.canonical()}*"


@dataclass(frozen=True)
class Parameter:
    """A parameter of a prototype; the name may be empty."""

    name: str
    type: CType


@dataclass(frozen=True)
class Function(CType):
    """A function type: what a prototype declares and a function pointer points to."""

    result: CType
    parameters: tuple[Parameter, ...]

    def ctype(self) -> CData:
        """Return the ctypes function type; values are callables or addresses cast to it."""
        function: CData = ctypes.CFUNCTYPE(
            result_ctype(self.result), *(parameter.type.ctype() for parameter in self.parameters)
        )
        return function

    def canonical(self) -> str:
        """Return result and parameters."""
        inside = ", ".join(parameter.type.canonical() for parameter in self.parameters)
        return f"{self.result.canonical()}({inside})"


@dataclass(frozen=True)
class Member:
    """A member of a struct or union; anonymous structs and unions have no name."""

    name: str
    type: CType


@dataclass(eq=False)
class Record(CType):
    """A struct or union; `members` is `None` until it is defined."""

    keyword: str
    tag: str
    members: tuple[Member, ...] | None = None
    _data: CData | None = field(default=None, repr=False)

    def ctype(self) -> CData:
        """Return the ctypes structure, made at the first call."""
        if self.members is None:
            raise TypeError(f"{self.keyword} {self.tag} is not defined")
        if self._data is None:
            base: CData = ctypes.Structure if self.keyword == "struct" else ctypes.Union
            data: CData = type(self.tag or "anonymous", (base,), {})
            self._data = data  # before the members, which may point back
            fields = [
                (member.name or f"_anonymous_{index}", member.type.ctype())
                for index, member in enumerate(self.members)
            ]
            data._anonymous_ = [
                f"_anonymous_{index}"
                for index, member in enumerate(self.members)
                if not member.name
            ]
            data._fields_ = fields
        return self._data

    def canonical(self) -> str:
        """Return keyword and tag."""
        return f"{self.keyword} {self.tag}"


@dataclass(frozen=True)
class Prototype:
    """A declared function."""

    name: str
    result: CType
    parameters: tuple[Parameter, ...]
    line: int

    def canonical(self) -> tuple[str, ...]:
        """Return the parameters in canonical form."""
        return tuple(parameter.type.canonical() for parameter in self.parameters)


def result_ctype(ctype: CType) -> CData | None:
    """Return the ctypes type of a function's result; `None` for void."""
    return None if isinstance(ctype.resolved(), Void) else ctype.ctype()


_SCALARS: dict[str, CData] = {
    "char": ctypes.c_char,
    "signed char": ctypes.c_int8,
    "unsigned char": ctypes.c_uint8,
    "short": ctypes.c_int16,
    "unsigned short": ctypes.c_uint16,
    "int": ctypes.c_int,
    "signed": ctypes.c_int,
    "signed int": ctypes.c_int,
    "unsigned": ctypes.c_uint,
    "unsigned int": ctypes.c_uint,
    "long": ctypes.c_long,
    "long int": ctypes.c_long,
    "unsigned long": ctypes.c_ulong,
    "unsigned long int": ctypes.c_ulong,
    "long long": ctypes.c_int64,
    "long long int": ctypes.c_int64,
    "unsigned long long": ctypes.c_uint64,
    "unsigned long long int": ctypes.c_uint64,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
    "_Bool": ctypes.c_bool,
    "bool": ctypes.c_bool,
    "size_t": ctypes.c_size_t,
    "ssize_t": ctypes.c_ssize_t,
    "ptrdiff_t": ctypes.c_ssize_t,
    "intptr_t": ctypes.c_ssize_t,
    "uintptr_t": ctypes.c_size_t,
    "int8_t": ctypes.c_int8,
    "int16_t": ctypes.c_int16,
    "int32_t": ctypes.c_int32,
    "int64_t": ctypes.c_int64,
    "uint8_t": ctypes.c_uint8,
    "uint16_t": ctypes.c_uint16,
    "uint32_t": ctypes.c_uint32,
    "uint64_t": ctypes.c_uint64,
}


def scalar_of(words: Sequence[str]) -> Scalar | None:
    """Return the scalar that the words name together, if they name one."""
    data = _SCALARS.get(" ".join(words))
    return None if data is None else Scalar(data)
