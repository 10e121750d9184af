"""Values of a kernel and their operators; variables, which statements change.

Every operator emits one instruction and returns a new value. Both sides need the same type; a
Python number takes the type of the other side. Floating point operators round each result (`.rn`),
so `a * b + c` rounds twice on every device; `fma(a, b, c)` rounds once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NoReturn, Union

import numpy as np

from uhal.ptx.builder import Builder, Scope, braces, current, here, refuse, refuse_value
from uhal.ptx.types import INTEGERS, NUMBERS, SIGNED, Type, f32, f64, i32, pred, u32

Operand = Union["Value", int, float, bool]
Number = (int, float, np.integer, np.floating, np.bool_)


def _operator(operation: str) -> Callable[[Value, object], Value]:
    return lambda value, other: operate(operation, value, other)


def _reflected(operation: str) -> Callable[[Value, object], Value]:
    return lambda value, other: operate(operation, other, value)


def _updating(operation: str) -> Callable[[Variable, object], Variable]:
    def update(value: Variable, other: object) -> Variable:
        operate(operation, value, other, result=value.text)
        return value

    return update


class Value:
    """Value of a register, or a constant. Immutable; made by operations.

    `//` and `%` of integers truncate toward zero, as in C. `>>` is arithmetic for signed types. A
    shift amount beyond the width shifts all bits out.
    """

    __slots__ = ("builder", "scope", "text", "type")

    __array_ufunc__ = None
    """Makes numpy leave operators with numpy's scalars to this class."""

    def __init__(self, builder: Builder, type: Type, text: str, scope: Scope | None = None) -> None:
        self.builder = builder
        self.type = type
        self.text = text
        self.scope = builder.scopes[-1] if scope is None else scope

    __add__, __radd__ = _operator("add"), _reflected("add")
    __sub__, __rsub__ = _operator("sub"), _reflected("sub")
    __mul__, __rmul__ = _operator("mul"), _reflected("mul")
    __truediv__, __rtruediv__ = _operator("/"), _reflected("/")
    __floordiv__, __rfloordiv__ = _operator("//"), _reflected("//")
    __mod__, __rmod__ = _operator("%"), _reflected("%")
    __and__, __rand__ = _operator("and"), _reflected("and")
    __or__, __ror__ = _operator("or"), _reflected("or")
    __xor__, __rxor__ = _operator("xor"), _reflected("xor")
    __lshift__, __rlshift__ = _operator("shl"), _reflected("shl")
    __rshift__, __rrshift__ = _operator("shr"), _reflected("shr")
    __lt__, __le__ = _operator("lt"), _operator("le")
    __gt__, __ge__ = _operator("gt"), _operator("ge")
    __eq__, __ne__ = _operator("eq"), _operator("ne")  # type: ignore[assignment]

    def __invert__(self) -> Value:
        expect(self, "~", "an integer or a predicate", (*INTEGERS, pred))
        return unary(f"not.{self.type.register}", self)

    def __neg__(self) -> Value:
        expect(self, "-", "a signed integer or a float", SIGNED)
        return unary(f"neg.{self.type.ptx}", self)

    def __pos__(self) -> Value:
        return self

    __hash__ = object.__hash__

    def __bool__(self) -> NoReturn:
        known = "expected a value known while the kernel is built"
        hint = "Use `if_`, `while_`, `select`, `&`, `|`, `~`."
        refuse(f"if, while, and, or, not: {known}, got {self!r}. {hint}")

    def __iter__(self) -> NoReturn:
        refuse(f"for: expected a range, got {self!r}. Use `loop`.")

    def __index__(self) -> NoReturn:
        known = "expected a number known while the kernel is built"
        refuse(f"range, int, float: {known}, got {self!r}. Use `loop` for ranges.")

    __int__ = __index__
    __float__ = __index__

    def __repr__(self) -> str:
        return f"a value of type {self.type}"


class Variable(Value):
    """A mutable register: `x.set(v)`, `x += v`. Made by `variable`.

    Several names can refer to a variable, as to a Python list; `x.type(x)` does not copy,
    `x.copy()` does.
    """

    __slots__ = ("where",)

    where: str
    """The source line of the value, for messages."""

    def set(self, value: Operand) -> None:
        """Assign a value of the variable's type."""
        text = operand(value, self.type, "set")
        self.builder.emit(f"mov.{self.type.register}", self.text, text)
        self.builder.unset.pop(self, None)

    def copy(self) -> Value:
        """Return the current value, which later statements do not change."""
        return unary(f"mov.{self.type.register}", self)

    __iadd__, __isub__, __imul__ = _updating("add"), _updating("sub"), _updating("mul")
    __itruediv__, __ifloordiv__, __imod__ = _updating("/"), _updating("//"), _updating("%")
    __iand__, __ior__, __ixor__ = _updating("and"), _updating("or"), _updating("xor")
    __ilshift__, __irshift__ = _updating("shl"), _updating("shr")


def variable(of: Type, value: Operand | None = None) -> Variable:
    """Make a variable of a type, with or without a first value.

    Reading a variable that may have no value raises `ArgumentValueError` while the kernel is built.
    """
    builder = current("variable")
    if not isinstance(of, Type) or of.value_type is not of:
        hint = f"Use {of.value_type}." if isinstance(of, Type) else "Import it from uhal.ptx."
        refuse(f"variable: expected a type of values such as f32 or u32, got {of!r}. {hint}")
    made = Variable(builder, of, builder.register(of))
    made.where = here()
    if value is None:
        builder.unset[made] = None
    else:
        made.set(value)
    return made


# -- operands --------------------------------------------------------------------------------------


def check(value: Value, operation: str) -> Builder:
    """Refuse a value of another kernel, of a body that has ended, or without a value yet."""
    builder = current(operation)
    if value.builder is not builder:
        names = f"{builder.name}, got one of {value.builder.name}"
        refuse_value(f"{operation}: expected a value of {names}. Pass it as an argument.")
    if not value.scope.is_open:
        given = f"got one made in the {value.scope.kind} at {value.scope.where}"
        hint = "Make a `variable` before it and set it there."
        refuse_value(f"{operation}: expected a value computed on every way here, {given}. {hint}")
    if value in builder.unset:
        assert isinstance(value, Variable)
        given = f"got the one made at {value.where}, which may have none here"
        refuse_value(f"{operation}: expected a variable with a value, {given}. Give it a first.")
    return builder


def expect(
    value: object, operation: str, wanted: str, types: Collection[Type], hint: str = "Convert it."
) -> Builder:
    """Refuse anything but a usable value of one of the types."""
    if not isinstance(value, Value) or value.type not in types:
        refuse(f"{operation}: expected {wanted}, got {value!r}. {hint}")
    return check(value, operation)


def one_of(given: object, choices: Sequence[object], operation: str) -> None:
    """Refuse anything but one of the choices."""
    if isinstance(given, Value) or given not in choices:
        listed = ", ".join(map(str, choices))
        refuse_value(f"{operation}: expected one of {listed}, got {given!r}.")


def operand(value: object, of: Type, operation: str) -> str:
    """The text of an operand of a required type."""
    if isinstance(value, Value):
        check(value, operation)
        if value.type is not of:
            refuse(f"{operation}: expected {of}, got {value.type}. Convert it: {of}(…).")
        return value.text
    return constant_of(value, of, operation).text


def constant_of(number: object, of: Type, operation: str) -> Value:
    """A Python number as a value of a type."""
    builder = current(operation)
    if not of.holds(number):
        given = type(number).__name__ if not isinstance(number, Number) else f"{number!r}"
        refuse(f"{operation}: expected a value or a number of type {of}, got {given}.")
    bits = of.pattern(number)
    if of is pred:
        return emitted(builder, of, "setp.ne.u32", str(bits), "0")
    if of.is_float and of.bits == 16:
        return emitted(builder, of, "mov.b16", f"0x{bits:04X}")
    if of.is_float:
        return Value(builder, of, f"0f{bits:08X}" if of.bits == 32 else f"0d{bits:016X}")
    return Value(builder, of, str(int(number)))  # type: ignore[call-overload]


def pair(operation: str, first: object, second: object) -> tuple[Value, Value]:
    """Two operands of one type; a number takes the type of the other."""
    given = [one for one in (first, second) if isinstance(one, Value)]
    if not given:
        names = f"{type(first).__name__} and {type(second).__name__}"
        refuse(f"{operation}: expected at least one value of the kernel, got {names}.")
    for one in given:
        check(one, operation)
    of = given[0].type
    if of is not given[-1].type:
        types = f"got {of} and {given[-1].type}. Convert one: {of}(…)."
        refuse(f"{operation}: expected operands of one type, {types}")
    a, b = (
        one if isinstance(one, Value) else constant_of(one, of, operation)
        for one in (first, second)
    )
    return a, b


def emitted(builder: Builder, of: Type, spelling: str, *texts: str, into: str = "") -> Value:
    """Emit an instruction with one result, in a new or the given register."""
    made = into or builder.register(of)
    builder.emit(spelling, made, *texts)
    return Value(builder, of, made)


def emitted_list(
    builder: Builder, of: Type, count: int, spelling: str, *texts: str
) -> tuple[Value, ...]:
    """Emit an instruction whose result is a vector."""
    made = [builder.register(of) for _ in range(count)]
    builder.emit(spelling, braces(made), *texts)
    return tuple(Value(builder, of, one) for one in made)


def unary(spelling: str, value: Value, of: Type | None = None) -> Value:
    """Emit an instruction with one operand; the result has its type or the given one."""
    builder = check(value, spelling.partition(".")[0])
    return emitted(builder, of or value.type, spelling, value.text)


# -- operators -------------------------------------------------------------------------------------

_CONDITIONS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
_SYMBOLS = {
    **dict(zip(("add", "sub", "mul", "and", "or", "xor"), "+-*&|^", strict=True)),
    **_CONDITIONS,
    "shl": "<<",
    "shr": ">>",
}


def operate(operation: str, first: object, second: object, result: str = "") -> Value:
    """Emit the operator; `result` is the register of the result, or empty for a new one."""
    if operation in ("shl", "shr"):
        return _shifted(operation, first, second, result)
    symbol = _SYMBOLS.get(operation, operation)
    a, b = pair(symbol, first, second)
    if operation in _CONDITIONS:
        return _compared(operation, a, b)
    spelling = _spelled(operation, symbol, a)
    return emitted(a.builder, a.type, spelling, a.text, b.text, into=result)


def _spelled(operation: str, symbol: str, a: Value) -> str:
    of = a.type
    if operation in ("and", "or", "xor"):
        expect(a, symbol, "integers or predicates", (*INTEGERS, pred), "Compare or convert them.")
        return f"{operation}.{of.register}"
    if operation in ("//", "%"):
        expect(a, symbol, "integers", INTEGERS, "Use `/` or `floor`.")
        return f"{'div' if operation == '//' else 'rem'}.{of.ptx}"
    if operation == "/":
        expect(a, symbol, "f32 or f64", (f32, f64), "Use `//` of integers, or convert: f32(…).")
        return f"div.rn.{of.ptx}"
    expect(a, symbol, "numbers", NUMBERS, "Use `&`, `|`, `^` or `select`.")
    if of.is_float:
        return f"{operation}.rn.{of.ptx}"
    return f"mul.lo.{of.ptx}" if operation == "mul" else f"{operation}.{of.ptx}"


def _shifted(operation: str, value: object, amount: object, result: str) -> Value:
    symbol = _SYMBOLS[operation]
    if not isinstance(value, Value):
        value, amount = pair(symbol, value, amount)
    builder = expect(value, symbol, "an integer", INTEGERS)
    by = u32 if not isinstance(amount, Value) or amount.type is not i32 else i32
    kind = value.type.ptx if operation == "shr" else value.type.register
    texts = value.text, operand(amount, by, symbol)
    return emitted(builder, value.type, f"{operation}.{kind}", *texts, into=result)


def _compared(condition: str, a: Value, b: Value) -> Value:
    """A NaN is equal to nothing and different from everything."""
    if a.type is pred:
        if condition not in ("eq", "ne"):
            refuse(f"{_SYMBOLS[condition]}: expected numbers, got predicates. Use `&` and `~`.")
        differ = emitted(a.builder, pred, "xor.pred", a.text, b.text)
        return differ if condition == "ne" else ~differ
    if condition == "ne" and a.type.is_float:
        condition = "neu"
    return emitted(a.builder, pred, f"setp.{condition}.{a.type.ptx}", a.text, b.text)


def select(condition: Value, first: Operand, second: Operand) -> Value:
    """Return `first` where the condition holds, else `second`; both are computed."""
    expect(condition, "select", "a predicate first", (pred,), "Compare something.")
    a, b = pair("select", first, second)
    if a.type is pred:
        return (condition & a) | (~condition & b)
    texts = a.text, b.text, condition.text
    return emitted(a.builder, a.type, f"selp.{a.type.register}", *texts)
