"""Writes a SPIR-V module of one kernel as version 1.0, for drivers that read no later version.

1.1 and 1.2 only add to 1.0, so a kernel without their additions differs from 1.0 only in the
header. Drivers that have only 1.0 are old. Intel's driver of 2022 ends the process at instructions
that its reader lacks. So this module writes sums with a carry as other instructions, and refuses
products of two words.
"""

from __future__ import annotations

from array import array

from uhal.errors import InvalidImageError
from uhal.images.spirv import SpirvModule
from uhal.images.spirv_words import (
    HEADER_WORDS,
    OP_CONSTANT,
    OP_CONSTANT_NULL,
    OP_TYPE_BOOL,
    OP_TYPE_INT,
    OP_TYPE_STRUCT,
    pack_words,
)

EARLIEST, LAST_LIKE_EARLIEST = (1, 0), (1, 2)
"""Versions from the first to the second only add features to 1.0."""

_NEWER = range(321, 4096)
"""Opcodes added after 1.0, from OpSizeOf on; above them are extensions."""
_ADD_CARRY, _SUBTRACT_BORROW = 149, 150
_PRODUCTS = (151, 152)
_ADD, _SUBTRACT, _LESS, _SELECT, _EXTRACT, _COPY = 128, 130, 176, 169, 81, 83


def in_version(image: bytes, version: tuple[int, int], what: str) -> bytes:
    """Return the module in its own version or in 1.0.

    `InvalidImageError` for an instruction that 1.0 lacks.
    """
    module = SpirvModule(image, what)
    if module.version == version:
        return image
    written = _Written(module, what)
    for function in module.functions.values():
        written.add(function.start, function.end)
    return written.image(version)


class _Written:
    """The module being rewritten."""

    def __init__(self, module: SpirvModule, what: str) -> None:
        self._module = module
        self._what = what
        self._next = module.bound
        self._declared: array[int] = array("I")
        self._functions: array[int] = array("I")
        self._numbers: dict[tuple[int, int], int] = {}
        self._bool = 0
        self._pairs: dict[int, tuple[int, int]] = {}
        """Identifiers for a sum and its carry, by the type of the structure that holds both."""
        for one in (*module.preamble, *module.globals.values()):
            self._check(one.opcode)

    def image(self, version: tuple[int, int]) -> bytes:
        """The bytes."""
        module = self._module
        first = next(iter(module.functions.values()), None)
        before = module.words[HEADER_WORDS : first.start if first else len(module.words)]
        header = module.words[:HEADER_WORDS]
        header[1] = version[0] << 16 | version[1] << 8
        header[3] = self._next
        return pack_words(header + before + self._declared + self._functions)

    def add(self, position: int, end: int) -> None:
        """Append a function's instructions."""
        words = self._module.words
        while position < end:
            opcode = words[position] & 0xFFFF
            after = position + (words[position] >> 16)
            self._check(opcode)
            one = words[position:after]
            if opcode in (_ADD_CARRY, _SUBTRACT_BORROW):
                self._add_carry(opcode, one)
            elif opcode == _EXTRACT and one[3] in self._pairs and len(one) == 5:
                value = self._pairs[one[3]][one[4] & 1]
                self._functions.extend((4 << 16 | _COPY, one[1], one[2], value))
            elif not self._pairs.keys().isdisjoint(one[1:]):
                self._refuse("a pair of a sum and its carry as a whole")
            else:
                self._functions.extend(one)
            position = after

    def _check(self, opcode: int) -> None:
        if opcode in _NEWER or opcode in _PRODUCTS:
            self._refuse(f"instruction {opcode}")

    def _refuse(self, reason: str) -> None:
        raise InvalidImageError(
            f"{self._what} cannot be given to a device that takes SPIR-V 1.0 alone: it has {reason}"
        )

    def _add_carry(self, opcode: int, words: array[int]) -> None:
        """Write a sum or a difference, and compute its carry by a comparison."""
        _, pair, result, a, b = words
        module = self._module
        members = module.operands(pair)
        if members[0] & 0xFFFF != OP_TYPE_STRUCT or module.opcode(members[2]) != OP_TYPE_INT:
            self._refuse(f"instruction {opcode} of vectors")
        number = members[2]
        value, is_over, over = self._id(), self._id(), self._id()
        plain, less = (_ADD, (value, a)) if opcode == _ADD_CARRY else (_SUBTRACT, (a, b))
        one, none = self._number(number, 1), self._number(number, 0)
        self._functions.extend((5 << 16 | plain, number, value, a, b))
        self._functions.extend((5 << 16 | _LESS, self._boolean(), is_over, *less))
        self._functions.extend((6 << 16 | _SELECT, number, over, is_over, one, none))
        self._pairs[result] = (value, over)

    def _id(self) -> int:
        self._next += 1
        return self._next - 1

    def _boolean(self) -> int:
        if not self._bool:
            found = self._module.globals.items()
            known = (name for name, one in found if one.opcode == OP_TYPE_BOOL)
            self._bool = next(known, 0) or self._id()
            if self._bool >= self._module.bound:
                self._declared.extend((2 << 16 | OP_TYPE_BOOL, self._bool))
        return self._bool

    def _number(self, type_: int, value: int) -> int:
        found = self._numbers.get((type_, value))
        if found is None:
            found = self._numbers[type_, value] = self._id()
            words = -(-self._module.operands(type_)[2] // 32)
            literal = (value,) + (0,) * (words - 1)
            opcode = OP_CONSTANT if value else OP_CONSTANT_NULL
            given = literal if value else ()
            self._declared.extend(((3 + len(given)) << 16 | opcode, type_, found, *given))
        return found
