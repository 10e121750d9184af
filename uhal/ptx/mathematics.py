"""Functions of numbers. `fast_…` are the device's approximations; all others round once.

The PTX manual, 9.7.3, lists the largest errors of approximations: `fast_exp2` is `ex2.approx`.
"""

from __future__ import annotations

from uhal.ptx.conversions import convert, rounded
from uhal.ptx.types import FLOATS, INTEGERS, NUMBERS, SIGNED, WORDS, Type, f32, f64, i16, i32, u32
from uhal.ptx.values import Operand, Value, emitted, expect, operand, pair, unary

LOG2_E = 1.4426950408889634
LN_2 = 0.6931471805599453


def _float(value: Value, operation: str, *types: Type) -> Value:
    names = ", ".join(one.name for one in types)
    expect(value, operation, names, types, "Convert it: f32(…).")
    return value


def fma(a: Operand, b: Operand, c: Operand) -> Value:
    """Return a · b + c, rounded once."""
    first, second = pair("fma", a, b)
    of = first.type
    expect(first, "fma", "floats", FLOATS, "Use `a * b + c`.")
    third = operand(c, of, "fma")
    return emitted(first.builder, of, f"fma.rn.{of.ptx}", first.text, second.text, third)


def _extreme(operation: str, a: Operand, b: Operand) -> Value:
    first, second = pair(operation, a, b)
    builder = expect(first, operation, "numbers", NUMBERS, "Use `&` or `|`.")
    return emitted(builder, first.type, f"{operation}.{first.type.ptx}", first.text, second.text)


def minimum(a: Operand, b: Operand) -> Value:
    """Return the smaller operand; for a NaN and a number, the number."""
    return _extreme("min", a, b)


def maximum(a: Operand, b: Operand) -> Value:
    """Return the larger operand; for a NaN and a number, the number."""
    return _extreme("max", a, b)


def absolute(value: Value) -> Value:
    """Return the magnitude of a signed integer or a float; the least integer stays the same."""
    expect(value, "absolute", "a signed integer or a float", SIGNED)
    # An H200 compares abs.s16 of the least number as 32768 (nvcc 13.0).
    wide = convert(value, i32) if value.type is i16 else value
    return convert(unary(f"abs.{wide.type.ptx}", wide), value.type)


def sqrt(value: Value) -> Value:
    """Return the square root of an f32 or f64, rounded to nearest."""
    return unary(f"sqrt.rn.{_float(value, 'sqrt', f32, f64).type.ptx}", value)


def reciprocal(value: Value) -> Value:
    """Return 1 / value of an f32 or f64, rounded to nearest."""
    return unary(f"rcp.rn.{_float(value, 'reciprocal', f32, f64).type.ptx}", value)


def floor(value: Value) -> Value:
    """Return the largest whole number not above a float, as a float."""
    return rounded(value, "rmi", "floor")


def ceil(value: Value) -> Value:
    """Return the smallest whole number not below a float, as a float."""
    return rounded(value, "rpi", "ceil")


def trunc(value: Value) -> Value:
    """Return a float without its fraction, as a float."""
    return rounded(value, "rzi", "trunc")


def round_even(value: Value) -> Value:
    """Return the nearest whole number as a float; ties round to even."""
    return rounded(value, "rni", "round_even")


def _approximate(name: str, value: Value, operation: str) -> Value:
    return unary(f"{name}.approx.f32", _float(value, operation, f32))


def fast_exp2(value: Value) -> Value:
    """Return 2 to the power of an f32 by `ex2.approx`."""
    return _approximate("ex2", value, "fast_exp2")


def fast_exp(value: Value) -> Value:
    """Return e to the power of an f32 by `ex2.approx`; the error grows with the magnitude."""
    return _approximate("ex2", _float(value, "fast_exp", f32) * LOG2_E, "fast_exp")


def fast_log2(value: Value) -> Value:
    """Return the binary logarithm of an f32 by `lg2.approx`."""
    return _approximate("lg2", value, "fast_log2")


def fast_log(value: Value) -> Value:
    """Return the natural logarithm of an f32 by `lg2.approx`."""
    return _approximate("lg2", value, "fast_log") * LN_2


def fast_sin(value: Value) -> Value:
    """Return the sine of an f32 in radians by `sin.approx`."""
    return _approximate("sin", value, "fast_sin")


def fast_cos(value: Value) -> Value:
    """Return the cosine of an f32 in radians by `cos.approx`."""
    return _approximate("cos", value, "fast_cos")


def fast_tanh(value: Value) -> Value:
    """Return the hyperbolic tangent of an f32 by `tanh.approx`."""
    return _approximate("tanh", value, "fast_tanh")


def fast_rsqrt(value: Value) -> Value:
    """Return 1 / √value of an f32 by `rsqrt.approx`."""
    return _approximate("rsqrt", value, "fast_rsqrt")


def fast_reciprocal(value: Value) -> Value:
    """Return 1 / value of an f32 by `rcp.approx`."""
    return _approximate("rcp", value, "fast_reciprocal")


def fast_divide(a: Operand, b: Operand) -> Value:
    """Return a / b of two f32 by `div.approx`."""
    first, second = pair("fast_divide", a, b)
    _float(first, "fast_divide", f32)
    return emitted(first.builder, f32, "div.approx.f32", first.text, second.text)


def count_ones(value: Value) -> Value:
    """Return the number of set bits of a 32-bit or 64-bit value, as a u32."""
    return unary(f"popc.{_word(value, 'count_ones')}", value, u32)


def leading_zeros(value: Value) -> Value:
    """Return the number of leading zero bits, as a u32."""
    return unary(f"clz.{_word(value, 'leading_zeros')}", value, u32)


def reverse_bits(value: Value) -> Value:
    """Return the bits in the opposite order."""
    return unary(f"brev.{_word(value, 'reverse_bits')}", value)


def _word(value: Value, operation: str) -> str:
    expect(value, operation, "an integer of 32 or 64 bits", WORDS)
    return value.type.register


def multiply_high(a: Operand, b: Operand) -> Value:
    """Return the upper half of an integer product."""
    first, second = pair("multiply_high", a, b)
    builder = expect(first, "multiply_high", "integers", INTEGERS)
    return emitted(builder, first.type, f"mul.hi.{first.type.ptx}", first.text, second.text)


def dot4(a: Value, b: Value, c: Operand) -> Value:
    """Return c + the dot product of the four bytes of a and b: `dp4a`.

    `i32` operands hold signed bytes, `u32` unsigned ones; the result has the type of c, or `i32`.
    """
    for one in (a, b):
        builder = expect(one, "dot4", "i32 or u32", (i32, u32))
    of = c.type if isinstance(c, Value) and c.type is u32 else i32
    spelling = f"dp4a.{a.type.ptx}.{b.type.ptx}"
    return emitted(builder, of, spelling, a.text, b.text, operand(c, of, "dot4"))
