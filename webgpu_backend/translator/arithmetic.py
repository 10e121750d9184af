"""Results of instructions, as expressions."""

from __future__ import annotations

import math
from collections.abc import Mapping

from webgpu_backend.translator.analysis import EXTENDED, SELECT
from webgpu_backend.translator.calls import Words
from webgpu_backend.translator.kinds import BOOL, F16, F32, F64, I64, Kind, refuse
from webgpu_backend.translator.memory import Memory

_INTEGER = {128: "+", 130: "-", 132: "*", 134: "/", 137: "%", 197: "|", 198: "^", 199: "&"}
_FLOAT = {129: "+", 131: "-", 133: "*", 136: "/"}
_SUMS = frozenset((129, 131))
_ORDERED = {180: "==", 184: "<", 186: ">", 188: "<=", 190: ">="}
_UNORDERED = {183: "==", 185: ">=", 187: "<=", 189: ">", 191: "<"}
"""Comparisons as negated opposites: 183 is `!(a == b)`, 185 is `!(a >= b)`."""
_UNSIGNED = {172: ">", 174: ">=", 176: "<", 178: "<="}
_SIGNED = {173: ">", 175: ">=", 177: "<", 179: "<="}
_LOGICAL = {164: "==", 165: "!=", 166: "||", 167: "&&"}
_NUMBER_OF_POINTER = 117
_PRODUCT = 133
_LEAST_POWER, _INFINITY, _FRACTION = 0x4B800000, 0x7F800000, 0x7FFFFF
"""Bits of f32: 2^24, which makes all subnormal numbers normal; infinity; the fraction's mask."""
_COPY, _NOT, _NEGATE, _NEGATE_FLOAT, _BITCAST, _LOGICAL_NOT = 83, 200, 126, 127, 124, 168

_EXACT = {
    "ceil": "ceil",
    "fabs": "abs",
    "floor": "floor",
    "rint": "round",
    "trunc": "trunc",
}
"""Functions whose builtin is exact."""
_OPENCL = {
    0: "acos",
    3: "asin",
    6: "atan",
    7: "atan2",
    12: "ceil",
    13: "copysign",
    14: "cos",
    15: "cosh",
    17: "erfc",
    18: "erf",
    19: "exp",
    20: "exp2",
    22: "expm1",
    23: "fabs",
    25: "floor",
    26: "fma",
    27: "fmax",
    28: "fmin",
    29: "fmod",
    37: "log",
    38: "log2",
    39: "log10",
    40: "log1p",
    42: "fma",
    48: "pow",
    50: "powr",
    53: "rint",
    55: "round",
    56: "rsqrt",
    57: "sin",
    59: "sinh",
    61: "sqrt",
    62: "tan",
    63: "tanh",
    66: "trunc",
    81: "cos",
    83: "exp",
    84: "exp2",
    86: "log",
    87: "log2",
    89: "powr",
    90: "recip",
    91: "rsqrt",
    92: "sin",
    93: "sqrt",
    94: "tan",
}
"""Numbers of the OpenCL.std set; from 81 on, native_… functions, which are exact here."""
_KEPT_IN_F16 = frozenset(("ceil", "copysign", "fabs", "floor", "fmax", "fmin", "rint", "trunc"))
"""Functions of f16 arguments whose result is always exact in f16."""
_F64_FUNCTIONS = frozenset(
    ("ceil", "copysign", "fabs", "floor", "fma", "fmax", "fmin", "rint", "sqrt", "trunc")
)
_S_ABS, _CLZ, _CTZ, _POPCOUNT = 141, 151, 152, 166
_PICKS = {156: (True, ">"), 157: (False, ">"), 158: (True, "<"), 159: (False, "<")}
"""s_max, u_max, s_min, u_min → whether signed, and which operand is taken."""
_U_SUB_SAT, _U_MUL_HI, _S_MUL_HI = 163, 203, 160


class Arithmetic(Memory):
    """What computes."""

    def expression(self, opcode: int, words: Words, kind: Kind) -> str:
        """Return the text of an instruction with a scalar result."""
        if opcode == EXTENDED:
            return self._function(words, kind)
        if opcode == SELECT:
            wide = self.is_wide(words[2]) if kind == I64 else None
            no, yes = self.value(words[5], wide), self.value(words[4], wide)
            return f"select({no}, {yes}, {self.value(words[3])})"
        if kind == BOOL:
            return self._truth(opcode, words)
        if kind.tag == "int":
            return self._integer(opcode, words, kind)
        if kind == F64:
            return self._double(opcode, words)
        if kind.tag == "float":
            return self._float(opcode, words, kind)
        refuse(f"instruction {opcode} with a result of the kind {kind.tag}")

    # -- integers ----------------------------------------------------------------------------------

    def _integer(self, opcode: int, words: Words, kind: Kind) -> str:
        bits = kind.bits
        wide = self.is_wide(words[2]) if bits == 64 else None
        a = words[3]
        if opcode in _INTEGER:
            return self._binary(opcode, words, bits, wide)
        if opcode in (135, 138, 139):  # OpSDiv, OpSRem, OpSMod
            if opcode == 139:
                refuse("a signed modulus")
            left = self.signed(self.value(a, wide), bits)
            right = self.signed(self.value(words[4], wide), bits)
            text = f"({left} / {right})"
            if opcode == 138:
                # Vulkan's SPIR-V leaves the remainder of negative integers undefined, and naga's
                # `%` relies on it (gfx-rs/wgpu issue 8191): NVIDIA's differs.
                text = f"({left} - {left} / {right} * {right})"
            return f"bitcast<u64>{text}" if bits == 64 else self.cut(f"bitcast<u32>{text}", bits)
        if opcode == 196:
            return self.cut(f"({self.value(a, wide)} << {self._shift(words[4], bits)})", bits)
        if opcode == 194:
            return f"({self.value(a, wide)} >> {self._shift(words[4], bits)})"
        if opcode == 195:
            left = self.signed(self.value(a, wide), bits)
            text = f"({left} >> {self._shift(words[4], bits)})"
            return f"bitcast<u64>{text}" if bits == 64 else self.cut(f"bitcast<u32>{text}", bits)
        if opcode == _NEGATE:
            return self.cut(f"({'0lu' if wide else '0u'} - {self.value(a, wide)})", bits)
        if opcode == _NOT:
            return self.cut(f"(~{self.value(a, wide)})", bits)
        if opcode == _COPY:
            return self.value(a, wide)
        if opcode in (113, 114):
            return self._resized(opcode == 114, a, bits, bool(wide))
        if opcode in (109, 110):
            return self._from_float(opcode == 110, a, bits, bool(wide))
        if opcode == _BITCAST:
            return self._bits_of(a, wide)
        refuse(f"instruction {opcode} on integers")

    def _binary(self, opcode: int, words: Words, bits: int, wide: bool | None) -> str:
        left, right = self.value(words[3], wide), self.value(words[4], wide)
        return self.cut(f"({left} {_INTEGER[opcode]} {right})", bits)

    def _shift(self, value: int, bits: int) -> str:
        if value in self.kinds.constants:
            return f"{self.kinds.number(value) & (bits - 1)}u"
        return f"({self.value(value, False)} & {max(bits, 32) - 1}u)"

    def _resized(self, signed: bool, value: int, bits: int, wide: bool) -> str:
        kind = self.kinds.kind_of(value)
        if kind.bits == 64:
            return self.value(value, True) if wide else self.cut(self.value(value, False), bits)
        text = self.value(value)
        if signed:
            number = self.signed(text, kind.bits)
            return self._extended(number) if wide else self.cut(f"bitcast<u32>({number})", bits)
        if wide:
            return f"u64({text})"
        return self.cut(text, bits) if kind.bits > bits else text

    def _extended(self, text: str) -> str:
        """Return an `i32` as 64 bits."""
        self.need("extended")
        return f"extended({text})"

    def _from_float(self, signed: bool, value: int, bits: int, wide: bool) -> str:
        kind, text = self.kinds.kind_of(value), self.value(value)
        if kind == F64:
            self.need("double_to_integer")
            found = f"{'i64_of_double' if signed else 'u64_of_double'}({text})"
            return found if wide else self.cut(f"u32({found} & 0xfffffffflu)", bits)
        if bits == 64:
            self.need("long_of_float")
            found = f"{'i64_of_float' if signed else 'u64_of_float'}({text})"
            return found if wide else f"u32({found} & 0xfffffffflu)"
        found = f"bitcast<u32>(i32({text}))" if signed else f"u32({text})"
        return self.cut(found, bits)

    def _bits_of(self, value: int, wide: bool | None) -> str:
        kind = self.kinds.kind_of(value)
        text = self.value(value, wide if kind.tag == "int" else None)
        if kind == F32:
            return f"bitcast<u32>({text})"
        if kind == F16:
            self.need("half")
            return f"half_bits({text})"
        if kind == F64:
            return text if wide else f"u32({text} & 0xfffffffflu)"
        if kind.tag == "int":
            return text
        refuse(f"the bits of a value of the kind {kind.tag}")

    # -- truth -------------------------------------------------------------------------------------

    def _truth(self, opcode: int, words: Words) -> str:
        a = words[3]
        if opcode == _LOGICAL_NOT:
            return f"(!{self.value(a)})"
        if opcode in _LOGICAL:
            return f"({self.value(a)} {_LOGICAL[opcode]} {self.value(words[4])})"
        kind = self.kinds.kind_of(a)
        if opcode in (170, 171):
            return self._equality(opcode == 170, a, words[4])
        if opcode in _UNSIGNED or opcode in _SIGNED:
            wide = True if kind.bits == 64 else None
            left, right = self.value(a, wide), self.value(words[4], wide)
            if opcode in _UNSIGNED:
                return f"({left} {_UNSIGNED[opcode]} {right})"
            left, right = self.signed(left, kind.bits), self.signed(right, kind.bits)
            return f"({left} {_SIGNED[opcode]} {right})"
        if kind.tag != "float":
            refuse(f"instruction {opcode} on values of the kind {kind.tag}")
        texts = [self.value(one) for one in words[3:]]
        return self._double_truth(opcode, texts) if kind == F64 else self._order(opcode, texts)

    def _equality(self, equal: bool, a: int, b: int) -> str:
        sign = "==" if equal else "!="
        for one, other in ((a, b), (b, a)):
            if self._is_null(one) and self._is_address(other):
                return f"({self.tag(other)} {sign} 0u)"
        if self._is_address(a) and self._is_address(b):
            same = f"(({self.tag(a)} == {self.tag(b)}) && ({self.offset(a)} == {self.offset(b)}))"
            return same if equal else f"(!{same})"
        wide = True if self.kinds.kind_of(a).bits == 64 else None
        return f"({self.value(a, wide)} {sign} {self.value(b, wide)})"

    def _is_null(self, value: int) -> bool:
        return value in self.kinds.constants and not self.kinds.constants[value]

    def _is_address(self, value: int) -> bool:
        """Return whether a value is a pointer or its integer: only the null pointer is 0."""
        if self.kinds.kind_of(value).tag == "pointer":
            return True
        one = self.analysis.definitions.get(value)
        if one is None or one.opcode != _NUMBER_OF_POINTER:
            return False
        return self.analysis.is_pointer(value)

    def _order(self, opcode: int, texts: list[str]) -> str:
        """Comparisons of f32; a builtin that assumes no NaN would ignore NaN."""
        self.need("nan")
        numbers = [f"is_nan({text})" for text in texts]
        if opcode == 156:
            return numbers[0]
        if opcode == 157:
            return f"((bitcast<u32>({texts[0]}) & 0x7fffffffu) == 0x7f800000u)"
        a, b = texts
        if opcode in _ORDERED:
            return f"({a} {_ORDERED[opcode]} {b})"
        if opcode in _UNORDERED:
            return f"(!({a} {_UNORDERED[opcode]} {b}))"
        if opcode in (181, 182):  # unordered equal, ordered not equal
            differs = f"(({a} < {b}) || ({a} > {b}))"
            return differs if opcode == 182 else f"(!{differs})"
        if opcode in (162, 163):
            either = f"({' || '.join(dict.fromkeys(numbers))})"
            return either if opcode == 163 else f"(!{either})"
        refuse(f"instruction {opcode} on floats")

    # -- floats ------------------------------------------------------------------------------------

    def _float(self, opcode: int, words: Words, kind: Kind) -> str:
        a = words[3]
        given = self.kinds.kind_of(a)
        if opcode in _FLOAT and self._is_compensation(words):
            left, right = (self._kept(one) for one in words[3:5])
            text = f"({left} {_FLOAT[opcode]} {right})"
        elif opcode == _PRODUCT and self._is_raised(*words[3:5]):
            self.need("raised")
            text = f"raised(bitcast<u32>({self.value(a)}), {self.value(words[4])})"
        elif opcode in _FLOAT:
            text = f"({self.value(a)} {_FLOAT[opcode]} {self.value(words[4])})"
        elif opcode == _NEGATE_FLOAT:
            self.need("negate")
            return f"negated({self.value(a)})"
        elif opcode == _COPY:
            return self.value(a)
        elif opcode == _BITCAST and kind == F32:
            return f"bitcast<f32>({self.value(a)})"
        elif opcode == _BITCAST:
            self.need("half")
            return f"half_of({self.value(a)})"
        elif opcode == 115:
            return self._resized_float(a, kind)
        elif opcode in (111, 112):
            return self._from_integer(opcode == 111, a, kind)
        else:
            refuse(f"instruction {opcode} on floats")
        return self._rounded(text, kind) if given == F16 or kind == F16 else text

    def _is_raised(self, value: int, factor: int) -> bool:
        """Whether bits may be a subnormal number, which a product makes a normal number.

        Kernels read f8e4m3 this way, but drivers may take subnormal operands for 0.
        """
        one = self.analysis.definitions.get(value)
        bits = self.kinds.constants.get(factor)
        return (
            one is not None
            and one.opcode == _BITCAST
            and isinstance(bits, int)
            and self.kinds.kind_of(factor) == F32
            and _LEAST_POWER <= bits < _INFINITY
            and bits & _FRACTION == 0
        )

    def _is_compensation(self, words: Words) -> bool:
        """Whether the result is a rounding error: one operand is a sum, the other its term."""
        pairs = ((words[3], words[4]), (words[4], words[3]))
        return any(other in self._parts_of_sum(one) for one, other in pairs)

    def _parts_of_sum(self, value: int) -> Words | tuple[()]:
        one = self.analysis.definitions.get(value)
        return one.words[3:5] if one is not None and one.opcode in _SUMS else ()

    def _kept(self, value: int) -> str:
        """A sum that the compiler must not simplify."""
        if not self._parts_of_sum(value):
            return self.value(value)
        self.need("kept")
        return f"kept({self.value(value)})"

    def _rounded(self, text: str, kind: Kind) -> str:
        if kind != F16:
            return text
        self.need("half")
        return f"half_rounded({text})"

    def _resized_float(self, value: int, kind: Kind) -> str:
        given, text = self.kinds.kind_of(value), self.value(value)
        if given == F64:
            self.need("double_resize")
            # To f16 through an f32 whose last bit records inexactness.
            found = f"float_of_double({text}, {'true' if kind == F16 else 'false'})"
            return self._rounded(found, kind)
        return self._rounded(text, kind)

    def _from_integer(self, signed: bool, value: int, kind: Kind) -> str:
        given = self.kinds.kind_of(value)
        text = self.value(value, True if given.bits == 64 else None)
        if given.bits == 64:
            self.need("float_of_long")
            odd = "true" if kind == F16 else "false"
            found = f"{'float_of_i64' if signed else 'float_of_u64'}({text}, {odd})"
        elif kind == F16 and given.bits == 32:
            self.need("float_of_long")
            longer = self._extended(self.signed(text, 32)) if signed else f"u64({text})"
            found = f"{'float_of_i64' if signed else 'float_of_u64'}({longer}, true)"
        else:
            found = f"f32({self.signed(text, given.bits) if signed else text})"
        return self._rounded(found, kind)

    # -- f64 ---------------------------------------------------------------------------------------

    def _double(self, opcode: int, words: Words) -> str:
        a = words[3]
        texts = [self.value(one) for one in words[3:5] if one in self.kinds.type_of]
        names = {129: "double_sum", 133: "double_product", 136: "double_quotient"}
        if opcode in names:
            self.need("double_arithmetic")
            return f"{names[opcode]}({texts[0]}, {texts[1]})"
        if opcode == 131:
            self.need("double_arithmetic")
            return f"double_sum({texts[0]}, {texts[1]} ^ 0x8000000000000000lu)"
        if opcode == _NEGATE_FLOAT:
            return f"({texts[0]} ^ 0x8000000000000000lu)"
        if opcode == _COPY:
            return texts[0]
        if opcode == _BITCAST:
            return self.value(a, True)
        if opcode == 115:
            self.need("double_resize")
            return f"double_of_float({texts[0]})"
        if opcode in (111, 112):
            self.need("double_of_integer")
            kind = self.kinds.kind_of(a)
            text = self.value(a, True if kind.bits == 64 else None)
            if opcode == 112:
                return f"double_of_u64({text if kind.bits == 64 else f'u64({text})'})"
            longer = text if kind.bits == 64 else self._extended(self.signed(text, kind.bits))
            return f"double_of_i64({longer})"
        refuse(f"instruction {opcode} on f64")

    def _double_truth(self, opcode: int, texts: list[str]) -> str:
        self.need("double_order")
        a, b = texts[0], texts[-1]
        less, more = f"double_less({a}, {b})", f"double_less({b}, {a})"
        table: Mapping[int, str] = {
            156: f"double_nan({a})",
            157: f"(({a} & 0x7ffffffffffffffflu) == 0x7ff0000000000000lu)",
            162: f"(!(double_nan({a}) || double_nan({b})))",
            163: f"(double_nan({a}) || double_nan({b}))",
            180: f"double_equal({a}, {b})",
            181: f"(!({less} || {more}))",
            182: f"({less} || {more})",
            183: f"(!double_equal({a}, {b}))",
            184: less,
            185: f"(!double_at_most({b}, {a}))",
            186: more,
            187: f"(!double_at_most({a}, {b}))",
            188: f"double_at_most({a}, {b})",
            189: f"(!{more})",
            190: f"double_at_most({b}, {a})",
            191: f"(!{less})",
        }
        if opcode not in table:
            refuse(f"instruction {opcode} on f64")
        return table[opcode]

    # -- functions ---------------------------------------------------------------------------------

    def _function(self, words: Words, kind: Kind) -> str:
        number, given = words[4], words[5:]
        if kind.tag == "int":
            return self._integer_function(number, words, kind)
        name = _OPENCL.get(number)
        if name is None:
            refuse(f"function {number} of OpenCL.std")
        texts = [self.value(one) for one in given]
        if kind == F64:
            return self._double_function(name, texts)
        if name == "fabs":
            self.need("negate")
            return f"absolute({texts[0]})"
        if name == "fma" and kind == F32 and (lost := self._lost(given)) is not None:
            text = lost
        elif name in _EXACT:
            text = f"{_EXACT[name]}({', '.join(texts)})"
        else:
            self.need(name)
            text = f"math_{name}({', '.join(texts)})"
        return text if name in _KEPT_IN_F16 else self._rounded(text, kind)

    def _lost(self, given: Words) -> str | None:
        """Return what the rounding of a product lost, if fma(x, y, -(x * y)) asks for it.

        Drivers may round twice in `fma`, and then this is always 0.
        """
        (x, y, product), signs = zip(*map(self._unsigned, given), strict=True)
        one = self.analysis.definitions.get(product)
        if one is None or one.opcode != _PRODUCT:
            return None
        factors, factor_signs = zip(*map(self._unsigned, one.words[3:5]), strict=True)
        if {*factors} != {x, y} or math.prod((*signs, *factor_signs)) > 0:
            return None
        self.need("product_pair")
        return f"product_pair({self.value(given[0])}, {self.value(given[1])}).y"

    def _unsigned(self, value: int) -> tuple[int, int]:
        """Return what names the magnitude of a value, and the value's sign."""
        one = self.analysis.definitions.get(value)
        if one is not None and one.opcode == _NEGATE_FLOAT:
            return one.words[3], -1
        bits = self.kinds.constants.get(value)
        if isinstance(bits, int):
            return -(bits & 0x7FFFFFFF) - 1, -1 if bits >> 31 else 1
        return value, 1

    def _double_function(self, name: str, texts: list[str]) -> str:
        if name not in _F64_FUNCTIONS:
            refuse(f"{name} of f64, which WebGPU devices do not compute")
        if name == "fabs":
            return f"({texts[0]} & 0x7ffffffffffffffflu)"
        if name == "copysign":
            return f"(({texts[0]} & 0x7ffffffffffffffflu) | ({texts[1]} & 0x8000000000000000lu))"
        self.need("double_functions")
        return f"double_{name}({', '.join(texts)})"

    def _integer_function(self, number: int, words: Words, kind: Kind) -> str:
        bits = kind.bits
        wide = bits == 64
        texts = [self.value(one, True if wide else None) for one in words[5:]]
        zero = "0lu" if wide else "0u"
        found = self._integer_formula(number, texts, bits, zero)
        if bits < 32:
            return self.cut(found, bits)
        return f"u32({found})" if wide and not self.is_wide(words[2]) else found

    def _integer_formula(self, number: int, texts: list[str], bits: int, zero: str) -> str:
        a, b = texts[0], texts[-1]
        if number == _S_ABS:
            return f"select({a}, {zero} - {a}, {self.signed(a, bits)} < 0)"
        if number in _PICKS:
            signed, sign = _PICKS[number]
            left, right = (self.signed(one, bits) if signed else one for one in (a, b))
            return f"select({b}, {a}, {left} {sign} {right})"
        if number == _U_SUB_SAT:
            return f"select({zero}, {a} - {b}, {a} > {b})"
        longer = ""
        if number == _S_MUL_HI:
            longer = " * ".join(self._extended(f"bitcast<i32>({one})") for one in (a, b))
        formulas: Mapping[int, str] = {
            _CLZ: f"(countLeadingZeros({a}) - {32 - bits}u)",
            _CTZ: f"min(countTrailingZeros({a}), {bits}u)",
            _POPCOUNT: f"countOneBits({a})",
            _U_MUL_HI: f"u32((u64({a}) * u64({b})) >> {bits}u)",
            _S_MUL_HI: f"u32(({longer}) >> 32u)",
        }
        if number not in formulas or bits > 32 or (number == _S_MUL_HI and bits < 32):
            refuse(f"function {number} of OpenCL.std on integers of {bits} bits")
        return formulas[number]
