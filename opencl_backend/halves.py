"""Rewrites a SPIR-V module so that devices without numbers of 16 bits (`cl_khr_fp16`) run it.

Kernels store numbers in f16 and compute in f32; compilers then leave some additions, comparisons
and negations in f16. Here each f16 number becomes the integer with the same bits. Functions added
at the end of the module widen the integer to f32 before an operation, and round the result after
it. The result has the same bits as on a device that computes in f16. A sum, difference, product or
quotient rounded to 24 bits and then to 11 equals the result rounded once to 11 (Figueroa, "When is
double rounding innocuous?", 1995). For an f64, the bits that f32 cannot hold are folded into its
last bit first.

A vector of f16 becomes a vector of integers, and its operations work on the components.
Modules with functions of mathematics or atomic operations in f16 cannot be rewritten.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable

from uhal.images.spirv import SpirvModule
from uhal.images.spirv_words import (
    HEADER_WORDS,
    OP_CAPABILITY,
    OP_CONSTANT,
    OP_DECORATE,
    OP_EXT_INST,
    OP_FUNCTION,
    OP_FUNCTION_END,
    OP_FUNCTION_PARAMETER,
    OP_NAME,
    OP_TYPE_BOOL,
    OP_TYPE_FLOAT,
    OP_TYPE_FUNCTION,
    OP_TYPE_INT,
    OP_TYPE_POINTER,
    OP_TYPE_VECTOR,
    OP_TYPES,
    pack_words,
)

CAPABILITY_FLOAT16 = 9
_CAPABILITY_FLOAT16_BUFFER, _CAPABILITY_INT16 = 8, 22
_DECORATIONS_OF_FLOATS = (39, 40)  # FPRoundingMode, FPFastMathMode

_CALL, _LABEL, _RETURN_VALUE, _SELECT, _BITCAST, _COPY = 57, 248, 254, 169, 124, 83
_F_CONVERT, _U_CONVERT, _NEGATE = 115, 113, 127
_CONSTRUCT, _EXTRACT = 80, 81
_S_TO_F, _U_TO_F = 111, 112
_ADD, _SUBTRACT, _F_ADD, _F_MULTIPLY = 128, 130, 129, 133
_AND, _OR, _XOR, _LEFT, _RIGHT = 199, 197, 198, 196, 194
_LESS, _GREATER, _GREATER_EQUAL = 176, 172, 174  # of integers without a sign
_F_UNEQUAL, _F_LESS, _F_GREATER = 182, 184, 186  # false with a NaN

_ARITHMETIC = frozenset((129, 131, 133, 136))  # add, subtract, multiply, divide
_COMPARED = frozenset((156, 157, 158, 162, 163, *range(180, 192)))  # to a boolean
_TO_INTEGERS = frozenset((109, 110))
_FROM_INTEGERS = frozenset((_S_TO_F, _U_TO_F))
_COMPUTED = _ARITHMETIC | _COMPARED | _TO_INTEGERS | _FROM_INTEGERS | {_NEGATE, _F_CONVERT}
# Undefined, call, variable, load, store, access chains, members of vectors and structures, shuffle,
# copy, choice, φ, return: these move bits and do not interpret them.
_MOVED = frozenset((1, 55, 57, 59, 61, 62, 65, 66, 67, 70, *range(77, 84), 169, 245, 254))
_DECLARED_AGAIN = frozenset((28, 29, 30, OP_TYPE_POINTER))
"""Types that a module may declare twice: arrays, structures, pointers."""


class _Unfit(Exception):
    """A use of f16 without a counterpart."""


def without_halves(module: SpirvModule) -> bytes | None:
    """Return the module without f16; `None` if that is impossible."""
    try:
        return _Rewriting(module).image()
    except _Unfit:
        return None


class _Rewriting:
    """A module being rewritten. Identifiers of results stay; f16 becomes the integer type."""

    def __init__(self, module: SpirvModule) -> None:
        self._module = module
        self._next = module.bound
        self._types: array[int] = array("I")
        """Added declarations, after the module's own."""
        self._functions: array[int] = array("I")
        self._helpers: dict[str, int] = {}
        self._constants: dict[tuple[int, int], int] = {}
        self._of: dict[int, int] = {}
        """Type of each value before the rewrite."""
        self._changed: set[int] = set()
        """Results whose instruction becomes a call or a construction."""
        self._halves: set[int] = set()
        """Types of f16 and its vectors before the rewrite."""
        self._declared: dict[tuple[int, ...], int] = {}
        """Types by opcode and operands."""
        self._equal: dict[int, int] = {}
        """Types that equal an earlier declaration after the rewrite."""
        self._declarations = self._rewritten_declarations()
        self._int = self._type(OP_TYPE_INT, 32, 0)
        self._float = self._type(OP_TYPE_FLOAT, 32)
        self._bool = self._type(OP_TYPE_BOOL)

    # -- the module --------------------------------------------------------------------------------

    def image(self) -> bytes:
        """Return the rewritten module."""
        module = self._module
        functions: array[int] = array("I")
        for function in module.functions.values():
            self._note_types(function.start, function.end)
            for words in self._instructions(function.start, function.end):
                functions.extend(self._rewritten(words))
        header = module.words[:HEADER_WORDS]
        header[3] = self._next
        preamble = self._preamble()
        declared = self._declarations + self._types
        return pack_words(header + preamble + declared + functions + self._functions)

    def _preamble(self) -> array[int]:
        written: array[int] = array("I")
        kept = dict.fromkeys((*self._module.capabilities, _CAPABILITY_INT16))
        for capability in kept:
            if capability not in (CAPABILITY_FLOAT16, _CAPABILITY_FLOAT16_BUFFER):
                written.extend((2 << 16 | OP_CAPABILITY, capability))
        for one in self._module.preamble:
            words = self._module.words[one.start : one.end]
            of_floats = one.opcode == OP_DECORATE and words[2] in _DECORATIONS_OF_FLOATS
            if of_floats and (self._is_half(words[1]) or words[1] in self._changed):
                continue
            if one.opcode not in (OP_CAPABILITY, OP_NAME):
                written.extend(words)
        return written

    def _rewritten_declarations(self) -> array[int]:
        """Write types, constants and variables; the integer type comes before its uses."""
        module = self._module
        written: array[int] = array("I")
        self._bits = self._find(OP_TYPE_FLOAT, 16) or self._id()
        self._halves.add(self._bits)
        self._declare(array("I", (4 << 16 | OP_TYPE_INT, self._bits, 16, 0)), written)
        for identifier, one in module.globals.items():
            if identifier == self._bits:
                continue
            words = module.words[one.start : one.end]
            if one.opcode == OP_TYPE_VECTOR and words[2] == self._bits:
                self._halves.add(identifier)
            if one.opcode in OP_TYPES:
                named = _TYPES_NAMED.get(one.opcode, slice(2, None))
                words[named] = array("I", [self._mapped(word) for word in words[named]])
                self._declare(words, written)
                continue
            self._of[identifier] = words[1]
            if one.opcode == 52 and any(map(self._is_half, words[2:])):  # OpSpecConstantOp
                raise _Unfit
            words[1] = self._mapped(words[1])
            written.extend(words)
        return written

    def _declare(self, words: array[int], written: array[int]) -> None:
        """Write a type, unless an earlier declaration equals it."""
        opcode, identifier = words[0] & 0xFFFF, words[1]
        first = self._declared.setdefault((opcode, *words[2:]), identifier)
        if first != identifier and opcode not in _DECLARED_AGAIN:
            self._equal[identifier] = first
        else:
            written.extend(words)

    def _mapped(self, type_: int) -> int:
        return self._equal.get(type_, type_)

    # -- functions ---------------------------------------------------------------------------------

    def _instructions(self, start: int, end: int) -> Iterable[array[int]]:
        words = self._module.words
        while start < end:
            after = start + (words[start] >> 16)
            yield words[start:after]
            start = after

    def _note_types(self, start: int, end: int) -> None:
        for words in self._instructions(start, end):
            if len(words) > 2 and words[0] & 0xFFFF not in _WITHOUT_RESULT:
                self._of[words[2]] = words[1]

    def _is_half(self, value: int) -> bool:
        return self._of.get(value) in self._halves

    def _rewritten(self, words: array[int]) -> array[int]:
        """The instruction without f16."""
        opcode = words[0] & 0xFFFF
        has_result = opcode not in _WITHOUT_RESULT and len(words) > 2
        gives = has_result and words[1] in self._halves
        operands = words[5 if opcode == OP_EXT_INST else 3 if has_result else 1 :]
        takes = opcode not in _NAMING_NO_HALF and any(map(self._is_half, operands))
        if opcode in _MOVED or opcode == OP_FUNCTION or not (gives or takes):
            if has_result:
                words[1] = self._mapped(words[1])
            if opcode == OP_FUNCTION:
                words[4] = self._mapped(words[4])
            return words
        if len(words) < 4:
            raise _Unfit
        return self._computed(opcode, words)

    def _computed(self, opcode: int, words: array[int]) -> array[int]:
        """An operation on f16, its operands widened and its result narrowed."""
        _, type_, result, *operands = words
        gives = type_ in self._halves
        made: array[int] = array("I")
        if opcode == _BITCAST:
            source = self._mapped(self._of.get(operands[0], 0))
            opcode = _COPY if source == self._mapped(type_) else _BITCAST
            return array("I", (4 << 16 | opcode, self._mapped(type_), result, operands[0]))
        if opcode not in _COMPUTED:
            raise _Unfit
        if self._module.globals[type_].opcode == OP_TYPE_VECTOR:
            return self._computed_by_component(words)
        if opcode == _NEGATE:
            sign = self._constant(self._bits, 0x8000)
            return array("I", (5 << 16 | _XOR, self._bits, result, operands[0], sign))
        if opcode == _F_CONVERT and not gives:
            wide = result if type_ == self._float else self._id()
            made.extend(self._call("widen", operands[0], wide))
            if wide != result:
                made.extend((4 << 16 | _F_CONVERT, type_, result, wide))
            return made
        if opcode == _F_CONVERT:
            of_double = self._of.get(operands[0]) != self._float
            return self._call("narrow_double" if of_double else "narrow", operands[0], result)
        for index, operand in enumerate(operands):
            if self._is_half(operand):
                operands[index] = self._id()
                made.extend(self._call("widen", operand, operands[index]))
        if not gives:
            made.extend((*words[:3], *operands))
            return made
        wide = self._id()
        made.extend((words[0], self._float, wide, *operands))
        made.extend(self._call("narrow", wide, result))
        return made

    def _computed_by_component(self, words: array[int]) -> array[int]:
        """An operation on vectors of f16, component by component."""
        first, type_, result, *operands = words
        element, count = self._element(type_)
        made: array[int] = array("I")
        components: list[int] = []
        for index in range(count):
            taken: list[int] = []
            for operand in operands:
                taken.append(self._id())
                of, _ = self._element(self._of[operand])
                self._of[taken[-1]] = of
                made.extend((5 << 16 | _EXTRACT, self._mapped(of), taken[-1], operand, index))
            components.append(self._id())
            one = array("I", (first, element, components[-1], *taken))
            made.extend(self._computed(first & 0xFFFF, one))
        self._changed.add(result)
        made.extend(((3 + count) << 16 | _CONSTRUCT, self._mapped(type_), result, *components))
        return made

    def _element(self, vector: int) -> tuple[int, int]:
        """The type of the components and their count."""
        start = self._module.globals[vector].start
        return self._module.words[start + 2], self._module.words[start + 3]

    def _call(self, helper: str, operand: int, result: int) -> array[int]:
        self._changed.add(result)
        type_ = self._float if helper == "widen" else self._bits
        return array("I", (5 << 16 | _CALL, type_, result, self._helper(helper), operand))

    # -- added code --------------------------------------------------------------------------------

    def _id(self) -> int:
        self._next += 1
        return self._next - 1

    def _find(self, opcode: int, *facts: int) -> int | None:
        for identifier, one in self._module.globals.items():
            words = self._module.words[one.start : one.end]
            if one.opcode == opcode and tuple(words[2:]) == facts:
                return identifier
        return None

    def _type(self, opcode: int, *facts: int) -> int:
        declared = (opcode, *facts)
        if declared not in self._declared:
            self._declared[declared] = self._id()
            self._types.extend(((2 + len(facts)) << 16 | opcode, self._declared[declared], *facts))
        return self._declared[declared]

    def _constant(self, type_: int, value: int) -> int:
        found = self._constants.get((type_, value))
        if found is None:
            found = self._constants[type_, value] = self._id()
            self._types.extend((4 << 16 | OP_CONSTANT, type_, found, value))
        return found

    def _helper(self, name: str) -> int:
        found = self._helpers.get(name)
        if found is None:
            found = self._helpers[name] = self._id()
            taken, given = self._bits, self._float
            if name == "widen":
                body = self._widen()
            else:
                taken, given = self._float, self._bits
                if name == "narrow":
                    body = self._narrow()
                else:
                    taken = self._type(OP_TYPE_FLOAT, 64)
                    body = self._narrow_double(taken)
            self._define(found, taken, given, body)
        return found

    def _define(self, name: int, taken: int, given: int, body: _Body) -> None:
        kind = self._type(OP_TYPE_FUNCTION, given, taken)
        always_inline = 1
        self._functions.extend((5 << 16 | OP_FUNCTION, given, name, always_inline, kind))
        self._functions.extend((3 << 16 | OP_FUNCTION_PARAMETER, taken, body.argument))
        self._functions.extend((2 << 16 | _LABEL, self._id()))
        self._functions.extend(body.words)
        self._functions.extend((2 << 16 | _RETURN_VALUE, body.result, 1 << 16 | OP_FUNCTION_END))

    def _widen(self) -> _Body:
        """Bits of f16 → f32. A value below 2⁻¹⁴ is an exact multiple of 2⁻²⁴."""
        body = _Body(self._id)
        word, real, constant = self._int, self._float, self._constant
        all_bits = body.add(_U_CONVERT, word, body.argument)
        size = body.add(_AND, word, all_bits, constant(word, 0x7FFF))
        sign = body.add(_AND, word, all_bits, constant(word, 0x8000))
        sign = body.add(_LEFT, word, sign, constant(word, 16))
        count = body.add(_U_TO_F, real, size)
        small = body.add(_F_MULTIPLY, real, count, constant(real, 0x33800000))
        small = body.add(_BITCAST, word, small)
        moved = body.add(_LEFT, word, size, constant(word, 13))
        normal = body.add(_ADD, word, moved, constant(word, 0x38000000))
        endless = body.add(_ADD, word, moved, constant(word, 0x70000000))
        is_small = body.add(_LESS, self._bool, size, constant(word, 0x400))
        is_endless = body.add(_GREATER_EQUAL, self._bool, size, constant(word, 0x7C00))
        found = body.add(_SELECT, word, is_small, small, normal)
        found = body.add(_SELECT, word, is_endless, endless, found)
        body.result = body.add(_BITCAST, real, body.add(_OR, word, found, sign))
        return body

    def _narrow(self) -> _Body:
        """f32 → bits of the nearest f16, ties to even. The last bit of ½ is 2⁻²⁴."""
        body = _Body(self._id)
        word, real, constant = self._int, self._float, self._constant
        all_bits = body.add(_BITCAST, word, body.argument)
        size = body.add(_AND, word, all_bits, constant(word, 0x7FFFFFFF))
        sign = body.add(_RIGHT, word, all_bits, constant(word, 16))
        sign = body.add(_AND, word, sign, constant(word, 0x8000))
        small = body.add(_BITCAST, real, size)
        small = body.add(_F_ADD, real, small, constant(real, 0x3F000000))
        small = body.add(_BITCAST, word, small)
        small = body.add(_SUBTRACT, word, small, constant(word, 0x3F000000))
        moved = body.add(_RIGHT, word, size, constant(word, 13))
        odd = body.add(_AND, word, moved, constant(word, 1))
        normal = body.add(_ADD, word, size, constant(word, 0xC8000FFF))
        normal = body.add(_ADD, word, normal, odd)
        normal = body.add(_RIGHT, word, normal, constant(word, 13))
        quiet = body.add(_AND, word, moved, constant(word, 0x3FF))
        quiet = body.add(_OR, word, quiet, constant(word, 0x7E00))
        is_small = body.add(_LESS, self._bool, size, constant(word, 0x38800000))
        is_large = body.add(_GREATER_EQUAL, self._bool, size, constant(word, 0x477FF000))
        is_none = body.add(_GREATER, self._bool, size, constant(word, 0x7F800000))
        found = body.add(_SELECT, word, is_small, small, normal)
        found = body.add(_SELECT, word, is_large, constant(word, 0x7C00), found)
        found = body.add(_SELECT, word, is_none, quiet, found)
        found = body.add(_OR, word, found, sign)
        body.result = body.add(_U_CONVERT, self._bits, found)
        return body

    def _narrow_double(self, double: int) -> _Body:
        """f64 → bits of the nearest f16, through an f32 whose last bit records lost bits."""
        body = _Body(self._id)
        word, real, boolean = self._int, self._float, self._bool
        near = body.add(_F_CONVERT, real, body.argument)
        back = body.add(_F_CONVERT, double, near)
        zero = body.add(_F_CONVERT, double, self._constant(real, 0))
        bits = body.add(_BITCAST, word, near)
        is_positive = body.add(_F_GREATER, boolean, body.argument, zero)
        above = body.add(_F_GREATER, boolean, back, body.argument)
        below = body.add(_F_LESS, boolean, back, body.argument)
        is_longer = body.add(_SELECT, boolean, is_positive, above, below)
        is_other = body.add(_F_UNEQUAL, boolean, back, body.argument)
        shorter = body.add(_SUBTRACT, word, bits, self._constant(word, 1))
        cut = body.add(_SELECT, word, is_longer, shorter, bits)
        odd = body.add(_OR, word, cut, self._constant(word, 1))
        found = body.add(_SELECT, word, is_other, odd, cut)
        found = body.add(_BITCAST, real, found)
        body.result = body.add(_CALL, self._bits, self._helper("narrow"), found)
        return body


class _Body:
    """Instructions of an added function."""

    def __init__(self, new: Callable[[], int]) -> None:
        self._new = new
        self.argument = new()
        self.result = 0
        self.words: array[int] = array("I")

    def add(self, opcode: int, type_: int, *operands: int) -> int:
        """Append an instruction; return its result."""
        result = self._new()
        self.words.extend(((3 + len(operands)) << 16 | opcode, type_, result, *operands))
        return result


_WITHOUT_RESULT = frozenset((0, 8, 56, 62, 63, 64, 224, 225, 228, *range(246, 258), 317, 319))
"""Instructions in functions whose first two operands are not a type and a result."""
_NAMING_NO_HALF = frozenset((8, 79, 246, 247, 249, 250, 251, 256, 257))
"""Instructions without f16 whose literals may look like an identifier."""
_TYPES_NAMED = {
    OP_TYPE_INT: slice(0, 0),
    OP_TYPE_FLOAT: slice(0, 0),
    OP_TYPE_VECTOR: slice(2, 3),
    OP_TYPE_POINTER: slice(3, 4),
    25: slice(2, 3),  # OpTypeImage
    28: slice(2, 3),  # OpTypeArray: a constant follows the type
    31: slice(0, 0),  # OpTypeOpaque: a text
    38: slice(0, 0),  # OpTypePipe
}
"""The words of a declaration that are types; in other declarations, all words after the first two
are."""
