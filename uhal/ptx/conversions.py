"""Conversions between types of values."""

from __future__ import annotations

from uhal.ptx.builder import refuse
from uhal.ptx.types import NUMBERS, Type, bf16, f16, f32, f64, pred, u32
from uhal.ptx.values import Value, Variable, check, constant_of, expect, select, unary


def convert(value: object, to: Type) -> Value:
    """Convert a value or a number; integers wrap, floats become integers by truncation."""
    if to.value_type is not to:
        refuse(f"{to}: exists in memory only. Convert to {to.value_type}; a store takes that.")
    if not isinstance(value, Value):
        return constant_of(value, to, str(to))
    check(value, str(to))
    of = value.type
    if of is to:
        return value.copy() if isinstance(value, Variable) else value
    if to is pred:
        return value != 0
    if of is pred:
        return select(value, to(1), to(0))
    if bf16 in (of, to):
        return _of_bfloat(value, to)
    if of.is_integer and to.is_integer and of.bits == to.bits:
        return bits_as(value, to)
    rounding = ""
    if of.is_float and to.is_integer:
        rounding = ".rzi"
    elif to.is_float and (of.is_integer or to.bits < of.bits):
        rounding = ".rn"
    return unary(f"cvt{rounding}.{to.ptx}.{of.ptx}", value, to)


def _of_bfloat(value: Value, to: Type) -> Value:
    """Through f32, whose upper half is a bf16; older devices have no direct conversion."""
    if to is bf16:
        return unary("cvt.rn.bf16.f32", convert(value, f32), bf16)
    wide = unary("cvt.u32.u16", value, u32)
    return convert(bits_as(wide << 16, f32), to)


def bits_as(value: Value, to: Type) -> Value:
    """Return the same bits as a value of another type of equal width."""
    expect(value, "bits_as", "a number", NUMBERS, "Use `select` of a predicate.")
    if not isinstance(to, Type) or to.register != value.type.register or to.value_type is not to:
        hint = f"Convert with {value.type}(…)."
        refuse(f"bits_as: expected a type of {value.type.bits} bits, got {to!r}. {hint}")
    if isinstance(value, Variable):
        value = value.copy()
    return Value(value.builder, to, value.text, value.scope)


def rounded(value: Value, how: str, operation: str) -> Value:
    """Round a float to an integral float; `how` is PTX's `rni`, `rmi`, …."""
    expect(value, operation, "f16, f32 or f64", (f16, f32, f64))
    return unary(f"cvt.{how}.{value.type.ptx}.{value.type.ptx}", value)


Type.convert = staticmethod(convert)
