"""Floating point as the standard defines it, in fractions: the reference for every rounding."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import isqrt


@dataclass(frozen=True)
class Format:
    exponent_bits: int
    mantissa_bits: int
    has_infinity: bool = True

    @property
    def width(self) -> int:
        return 1 + self.exponent_bits + self.mantissa_bits

    @property
    def bias(self) -> int:
        return (1 << (self.exponent_bits - 1)) - 1

    @property
    def largest(self) -> int:
        """Bits of the largest finite value."""
        if self.has_infinity:
            return self.infinity - 1
        return (1 << (self.width - 1)) - 2

    @property
    def infinity(self) -> int:
        return ((1 << self.exponent_bits) - 1) << self.mantissa_bits


FORMATS = {
    "f16": Format(5, 10),
    "bf16": Format(8, 7),
    "f32": Format(8, 23),
    "f64": Format(11, 52),
    "e4m3": Format(4, 3, has_infinity=False),
    "e5m2": Format(5, 2),
}


@dataclass(frozen=True)
class Real:
    """A number, an infinity or NaN; zero keeps its sign."""

    value: Fraction = Fraction(0)
    negative: bool = False
    kind: str = "finite"

    @property
    def is_nan(self) -> bool:
        return self.kind == "nan"

    @property
    def is_infinite(self) -> bool:
        return self.kind == "infinity"

    @property
    def is_zero(self) -> bool:
        return self.kind == "finite" and self.value == 0


NAN = Real(kind="nan")
INFINITY = Real(kind="infinity")
MINUS_INFINITY = Real(kind="infinity", negative=True)


def number(value: Fraction, negative_zero: bool = False) -> Real:
    return Real(value, value < 0 or (value == 0 and negative_zero))


def decode(bits: int, name: str) -> Real:
    f = FORMATS[name]
    negative = bool(bits >> (f.width - 1) & 1)
    magnitude = bits & ((1 << (f.width - 1)) - 1)
    if magnitude > f.largest:
        if f.has_infinity and magnitude == f.infinity:
            return MINUS_INFINITY if negative else INFINITY
        return NAN
    exponent = magnitude >> f.mantissa_bits
    mantissa = magnitude & ((1 << f.mantissa_bits) - 1)
    if exponent:
        mantissa |= 1 << f.mantissa_bits
    power = max(exponent, 1) - f.bias - f.mantissa_bits
    value = Fraction(mantissa) * Fraction(2) ** power
    return Real(-value if negative else value, negative)


def encode(real: Real, name: str, mode: str = "rn", *, saturate: bool = False) -> int | None:
    """Bits of a number rounded once; None for any NaN."""
    f = FORMATS[name]
    sign = int(real.negative) << (f.width - 1)
    if real.is_nan:
        return None
    if real.is_infinite:
        if saturate:
            return sign | f.largest
        return sign | f.infinity if f.has_infinity else None
    magnitude = abs(real.value)
    if magnitude == 0:
        return sign
    exponent = _exponent(magnitude)
    exponent = max(exponent, 1 - f.bias)
    scaled = magnitude / Fraction(2) ** (exponent - f.mantissa_bits)
    count = round_to_integer(-scaled if real.negative else scaled, mode)
    count = abs(count)
    bits = ((exponent + f.bias - 1) << f.mantissa_bits) + count
    if exponent == 1 - f.bias and count < 1 << f.mantissa_bits:
        bits = count
    if bits > f.largest:
        inwards = mode == "rz" or (mode == "rm" and not sign) or (mode == "rp" and sign)
        if inwards or saturate:
            bits = f.largest
        elif f.has_infinity:
            bits = f.infinity
        else:
            return None
    return sign | bits


def _exponent(magnitude: Fraction) -> int:
    guess = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    return guess if Fraction(2) ** guess <= magnitude else guess - 1


def round_to_integer(value: Fraction, mode: str) -> int:
    down = value.numerator // value.denominator
    rest = value - down
    if mode in ("rm", "rmi"):
        return down
    if mode in ("rp", "rpi"):
        return down + (rest > 0)
    if mode in ("rz", "rzi"):
        return down + (rest > 0 and value < 0)
    half = Fraction(1, 2)
    if mode == "rna":
        return down + (rest > half or (rest == half and value > 0))
    return down + (rest > half or (rest == half and down % 2))


def add(a: Real, b: Real, mode: str) -> Real:
    if a.is_nan or b.is_nan:
        return NAN
    if a.is_infinite and b.is_infinite:
        return a if a.negative == b.negative else NAN
    if a.is_infinite or b.is_infinite:
        return a if a.is_infinite else b
    total = a.value + b.value
    if total == 0:
        both = a.negative and b.negative
        cancelled = mode == "rm" and not (
            a.is_zero and b.is_zero and not (a.negative or b.negative)
        )
        return number(total, both or cancelled)
    return number(total)


def negated(a: Real) -> Real:
    return Real(-a.value, not a.negative, a.kind)


def multiply(a: Real, b: Real) -> Real:
    if a.is_nan or b.is_nan or (a.is_infinite and b.is_zero) or (a.is_zero and b.is_infinite):
        return NAN
    negative = a.negative != b.negative
    if a.is_infinite or b.is_infinite:
        return MINUS_INFINITY if negative else INFINITY
    return Real(a.value * b.value, negative)


def divide(a: Real, b: Real) -> Real:
    if a.is_nan or b.is_nan or (a.is_zero and b.is_zero) or (a.is_infinite and b.is_infinite):
        return NAN
    negative = a.negative != b.negative
    if a.is_infinite or b.is_zero:
        return MINUS_INFINITY if negative else INFINITY
    return Real(Fraction(0) if b.is_infinite else a.value / b.value, negative)


def square_root(a: Real) -> Real:
    """Return the root with enough digits to round like the exact root."""
    if a.is_nan or (a.negative and not a.is_zero):
        return NAN
    if a.is_infinite or a.is_zero:
        return a
    shift = 2400
    scaled = (a.value * (1 << shift)).numerator // (a.value * (1 << shift)).denominator
    root = isqrt(scaled)
    exact = Fraction(root * root, 1 << shift) == a.value
    # The root lies between two values that no format distinguishes; half a step more avoids ties.
    return number(Fraction(2 * root + (not exact), 1 << (shift // 2 + 1)))
