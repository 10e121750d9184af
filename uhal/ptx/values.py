"""Values of a kernel and their operators; variables, which statements change.

Every operator emits one instruction and returns a new value. Both sides need one type; a Python
number takes the type of the other side. Floating point operators round each result (`.rn`), so
`a * b + c` rounds twice on every device; `fma(a, b, c)` rounds once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn, Union

import numpy as np

from uhal.errors import ArgumentValueError
from uhal.ptx.builder import Builder, Scope, caller, current, location, refuse
from uhal.ptx.types import Type, i32, pred, u32

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

    `//` and `%` of integers truncate toward zero, as in C. `>>` is arithmetic for signed types. An
    amount beyond the width shifts everything out.
    """

    __slots__ = ("builder", "scope", "text", "type")

    __array_ufunc__ = None
    """numpy leaves operators with its scalars to this class."""

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
        if self.type.is_float:
            refuse(f"~: expected an integer or a predicate, got {self.type}. Convert it.")
        return unary(f"not.{self.type.register}", self)

    def __neg__(self) -> Value:
        if self.type.kind in ("uint", "pred"):
            refuse(f"-: expected a signed integer or a float, got {self.type}. Convert it.")
        return unary(f"neg.{self.type.ptx}", self)

    def __pos__(self) -> Value:
        return self

    __hash__ = object.__hash__

    def __bool__(self) -> NoReturn:
        refuse(
            "if, while, and, or, not: expected a value known while the kernel is built, got one "
            f"that only the device knows ({self.type}). Use `if_`, `while_`, `select`, `&`, `|`, "
            "`~`."
        )

    def __iter__(self) -> NoReturn:
        refuse(f"for: expected a range, got a value of type {self.type}. Use `loop`.")

    def __index__(self) -> NoReturn:
        refuse(
            "expected an integer known while the kernel is built, got a value that only the "
            f"device knows ({self.type}). Use `loop` for ranges of such values."
        )

    __int__ = __index__
    __float__ = __index__

    def __repr__(self) -> str:
        return f"<{self.type} {self.text}>"


class Variable(Value):
    """A register that statements change: `x.set(v)`, `x += v`. Made by `variable`.

    Names share it as they share a Python list; `x.type(x)` does not copy, `x.copy()` does.
    """

    __slots__ = ("where",)

    where: tuple[str, int]
    """File and line where it was made."""

    def set(self, value: Operand) -> None:
        """Assign a value of the variable's type."""
        text = operand(value, self.type, "set")
        self.builder.emit(f"mov.{self.type.register}", self.text, text)
        self.builder.unset.pop(self, None)

    def copy(self) -> Value:
        """Return the present value, which later statements do not change."""
        return unary(f"mov.{self.type.register}", self)

    __iadd__, __isub__, __imul__ = _updating("add"), _updating("sub"), _updating("mul")
    __itruediv__, __ifloordiv__, __imod__ = _updating("/"), _updating("//"), _updating("%")
    __iand__, __ior__, __ixor__ = _updating("and"), _updating("or"), _updating("xor")
    __ilshift__, __irshift__ = _updating("shl"), _updating("shr")


def variable(of: Type, value: Operand | None = None) -> Variable:
    """Make a variable of a type, with or without a first value.

    Reading it where it may have no value is an `ArgumentValueError` while the kernel is built.
    """
    builder = current("variable")
    made = Variable(builder, _computable(of, "variable"), builder.register(of))
    made.where = caller()
    if value is None:
        builder.unset[made] = None
    else:
        made.set(value)
    return made


def _computable(of: object, operation: str) -> Type:
    if not isinstance(of, Type) or of.value_type is not of:
        hint = f" Use {of.value_type}." if isinstance(of, Type) else " Import it from uhal.ptx."
        refuse(f"{operation}: expected a type of values such as f32 or u32, got {of!r}.{hint}")
    return of


# -- operands --------------------------------------------------------------------------------------


def check(value: Value, operation: str) -> Builder:
    """Refuse a value of another kernel, of a body that has ended, or without a value yet."""
    builder = current(operation)
    if value.builder is not builder:
        refuse(
            f"{operation}: expected a value of {builder.name}, got one of {value.builder.name}. "
            "Pass it as an argument.",
            ArgumentValueError,
        )
    if not value.scope.is_open:
        refuse(
            f"{operation}: expected a value that is computed on every way here, got one made in "
            f"the body of the {value.scope.kind} at {location(value.scope.where)}. Make a "
            "`variable` before it and set it there.",
            ArgumentValueError,
        )
    if value in builder.unset:
        assert isinstance(value, Variable)
        refuse(
            f"{operation}: expected a variable with a value, got the one made at "
            f"{location(value.where)}, which may have none here. Give it a first value.",
            ArgumentValueError,
        )
    return builder


def operand(value: object, of: Type, operation: str) -> str:
    """The text of an operand that must have a type."""
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
        made = builder.register(pred)
        builder.emit("setp.ne.u32", made, str(bits), "0")
        return Value(builder, of, made)
    if of.is_float and of.bits == 16:
        made = builder.register(of)
        builder.emit("mov.b16", made, f"0x{bits:04X}")
        return Value(builder, of, made)
    if of.is_float:
        return Value(builder, of, f"0f{bits:08X}" if of.bits == 32 else f"0d{bits:016X}")
    return Value(builder, of, str(int(number)))  # type: ignore[call-overload]


def pair(operation: str, first: object, second: object) -> tuple[Value, Value]:
    """Two operands of one type."""
    if isinstance(first, Value):
        check(first, operation)
        if not isinstance(second, Value):
            return first, constant_of(second, first.type, operation)
        check(second, operation)
        if first.type is not second.type:
            refuse(
                f"{operation}: expected operands of one type, got {first.type} and {second.type}. "
                f"Convert one: {first.type}(…)."
            )
        return first, second
    if isinstance(second, Value):
        check(second, operation)
        return constant_of(first, second.type, operation), second
    given = f"{type(first).__name__} and {type(second).__name__}"
    refuse(f"{operation}: expected at least one value of the kernel, got {given}.")


def emitted(builder: Builder, of: Type, spelling: str, *texts: str, into: str = "") -> Value:
    """Emit an instruction with one result, in a new register or in the one named."""
    made = into or builder.register(of)
    builder.emit(spelling, made, *texts)
    return Value(builder, of, made)


def unary(spelling: str, value: Value, of: Type | None = None) -> Value:
    """Emit an instruction with one operand; the result has its type, or the one named."""
    builder = check(value, spelling.partition(".")[0])
    result = of or value.type
    return emitted(builder, result, spelling, value.text)


# -- operators -------------------------------------------------------------------------------------

_CONDITIONS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
_SYMBOLS = {
    **dict(zip(("add", "sub", "mul", "and", "or", "xor"), "+-*&|^", strict=True)),
    **_CONDITIONS,
    "shl": "<<",
    "shr": ">>",
}


def operate(operation: str, first: object, second: object, result: str = "") -> Value:
    """Emit the operator; `result` is the register it goes to, a new one when empty."""
    if operation in ("shl", "shr"):
        return _shifted(operation, first, second, result)
    symbol = _SYMBOLS.get(operation, operation)
    a, b = pair(symbol, first, second)
    if operation in _CONDITIONS:
        return _compared(operation, a, b)
    spelling = _spelled(operation, symbol, a.type)
    return emitted(a.builder, a.type, spelling, a.text, b.text, into=result)


def _spelled(operation: str, symbol: str, of: Type) -> str:
    if operation in ("and", "or", "xor"):
        if of.is_float:
            refuse(f"{symbol}: expected integers or predicates, got {of}. Compare or convert them.")
        return f"{operation}.{of.register}"
    if of is pred:
        refuse(f"{symbol}: expected numbers, got predicates. Use `&`, `|`, `^` or `select`.")
    if operation in ("//", "%"):
        if of.is_float:
            refuse(f"{symbol}: expected integers, got {of}. Use `/` or `floor`.")
        return f"{'div' if operation == '//' else 'rem'}.{of.ptx}"
    if operation == "/":
        if not of.is_float or of.bits == 16:
            hint = "Use `//`." if of.is_integer else "Convert them: f32(…)."
            refuse(f"/: expected f32 or f64, got {of}. {hint}")
        return f"div.rn.{of.ptx}"
    if of.is_float:
        return f"{operation}.rn.{of.ptx}"
    return f"mul.lo.{of.ptx}" if operation == "mul" else f"{operation}.{of.ptx}"


def _shifted(operation: str, value: object, amount: object, result: str) -> Value:
    symbol = _SYMBOLS[operation]
    if not isinstance(value, Value):
        value, amount = pair(symbol, value, amount)
    if not value.type.is_integer:
        refuse(f"{symbol}: expected an integer, got {value.type}. Convert it.")
    builder = check(value, symbol)
    by = u32 if not isinstance(amount, Value) or amount.type is not i32 else i32
    kind = value.type.ptx if operation == "shr" else value.type.register
    texts = value.text, operand(amount, by, symbol)
    return emitted(builder, value.type, f"{operation}.{kind}", *texts, into=result)


def _compared(condition: str, a: Value, b: Value) -> Value:
    """A NaN is equal to nothing and different from everything."""
    builder = a.builder
    made = builder.register(pred)
    if a.type is pred:
        if condition not in ("eq", "ne"):
            refuse(f"{_SYMBOLS[condition]}: expected numbers, got predicates. Use `&` and `~`.")
        builder.emit("xor.pred", made, a.text, b.text)
        differ = Value(builder, pred, made)
        return differ if condition == "ne" else ~differ
    if condition == "ne" and a.type.is_float:
        condition = "neu"
    builder.emit(f"setp.{condition}.{a.type.ptx}", made, a.text, b.text)
    return Value(builder, pred, made)


def select(condition: Value, first: Operand, second: Operand) -> Value:
    """Return `first` where the condition holds, else `second`; both are computed."""
    if not isinstance(condition, Value) or condition.type is not pred:
        refuse(f"select: expected a predicate first, got {describe(condition)}. Compare something.")
    check(condition, "select")
    a, b = pair("select", first, second)
    if a.type is pred:
        return (condition & a) | (~condition & b)
    made = a.builder.register(a.type)
    spelling = f"selp.{a.type.register}"
    a.builder.emit(spelling, made, a.text, b.text, condition.text)
    return Value(a.builder, a.type, made)


def describe(given: object) -> str:
    """An operand as messages name it."""
    return f"a value of type {given.type}" if isinstance(given, Value) else repr(given)
