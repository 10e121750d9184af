"""Values of a kernel and their operators; variables, which statements change.

Every operator emits one instruction and returns a new value. Both sides need one type; a Python
number takes the type of the other side. Floating point operators round each result (`.rn`), so
`a * b + c` rounds twice on every device; `fma(a, b, c)` rounds once.
"""

from __future__ import annotations

from typing import NoReturn, Union

import numpy as np

from uhal.errors import ArgumentValueError
from uhal.ptx.builder import Builder, Scope, caller, current, place, refuse
from uhal.ptx.types import Type, i32, pred, u32

Operand = Union["Value", int, float, bool]
Number = (int, float, np.integer, np.floating, np.bool_)


class Value:
    """What a register holds, or a constant. Immutable; made by operations."""

    __slots__ = ("builder", "scope", "text", "type")

    __array_ufunc__ = None
    """numpy leaves operators with its scalars to this class."""

    def __init__(self, builder: Builder, type: Type, text: str, scope: Scope | None = None) -> None:
        self.builder = builder
        self.type = type
        self.text = text
        self.scope = builder.scopes[-1] if scope is None else scope

    def __add__(self, other: Operand) -> Value:
        return binary("add", self, other)

    def __radd__(self, other: Operand) -> Value:
        return binary("add", other, self)

    def __sub__(self, other: Operand) -> Value:
        return binary("sub", self, other)

    def __rsub__(self, other: Operand) -> Value:
        return binary("sub", other, self)

    def __mul__(self, other: Operand) -> Value:
        return binary("mul", self, other)

    def __rmul__(self, other: Operand) -> Value:
        return binary("mul", other, self)

    def __truediv__(self, other: Operand) -> Value:
        return binary("/", self, other)

    def __rtruediv__(self, other: Operand) -> Value:
        return binary("/", other, self)

    def __floordiv__(self, other: Operand) -> Value:
        """Quotient of integers, truncated toward zero as in C."""
        return binary("//", self, other)

    def __rfloordiv__(self, other: Operand) -> Value:
        return binary("//", other, self)

    def __mod__(self, other: Operand) -> Value:
        """Remainder of integers, with the sign of the dividend as in C."""
        return binary("%", self, other)

    def __rmod__(self, other: Operand) -> Value:
        return binary("%", other, self)

    def __and__(self, other: Operand) -> Value:
        return binary("and", self, other)

    __rand__ = __and__

    def __or__(self, other: Operand) -> Value:
        return binary("or", self, other)

    __ror__ = __or__

    def __xor__(self, other: Operand) -> Value:
        return binary("xor", self, other)

    __rxor__ = __xor__

    def __lshift__(self, other: Operand) -> Value:
        return shift("shl", self, other)

    def __rshift__(self, other: Operand) -> Value:
        """Arithmetic for signed types; an amount beyond the width shifts everything out."""
        return shift("shr", self, other)

    def __rlshift__(self, other: Operand) -> Value:
        return shift("shl", self.type(other), self)

    def __rrshift__(self, other: Operand) -> Value:
        return shift("shr", self.type(other), self)

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

    def __lt__(self, other: Operand) -> Value:
        return compare("lt", self, other)

    def __le__(self, other: Operand) -> Value:
        return compare("le", self, other)

    def __gt__(self, other: Operand) -> Value:
        return compare("gt", self, other)

    def __ge__(self, other: Operand) -> Value:
        return compare("ge", self, other)

    def __eq__(self, other: object) -> Value:  # type: ignore[override]
        return compare("eq", self, other)

    def __ne__(self, other: object) -> Value:  # type: ignore[override]
        return compare("ne", self, other)

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

    def _update(self, operation: str, other: Operand) -> Variable:
        binary(operation, self, other, result=self.text)
        return self

    def __iadd__(self, other: Operand) -> Variable:
        return self._update("add", other)

    def __isub__(self, other: Operand) -> Variable:
        return self._update("sub", other)

    def __imul__(self, other: Operand) -> Variable:
        return self._update("mul", other)

    def __itruediv__(self, other: Operand) -> Variable:
        return self._update("/", other)

    def __ifloordiv__(self, other: Operand) -> Variable:
        return self._update("//", other)

    def __imod__(self, other: Operand) -> Variable:
        return self._update("%", other)

    def __iand__(self, other: Operand) -> Variable:
        return self._update("and", other)

    def __ior__(self, other: Operand) -> Variable:
        return self._update("or", other)

    def __ixor__(self, other: Operand) -> Variable:
        return self._update("xor", other)

    def __ilshift__(self, other: Operand) -> Variable:
        shift("shl", self, other, result=self.text)
        return self

    def __irshift__(self, other: Operand) -> Variable:
        shift("shr", self, other, result=self.text)
        return self


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
            f"the body of the {value.scope.kind} at {place(value.scope.where)}. Make a `variable` "
            "before it and set it there.",
            ArgumentValueError,
        )
    if value in builder.unset:
        assert isinstance(value, Variable)
        refuse(
            f"{operation}: expected a variable with a value, got the one made at "
            f"{place(value.where)}, which may have none here. Give it a first value.",
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


def unary(spelling: str, value: Value, of: Type | None = None) -> Value:
    """Emit an instruction with one operand; the result has its type, or the one named."""
    builder = check(value, spelling.partition(".")[0])
    result = of or value.type
    made = builder.register(result)
    builder.emit(spelling, made, value.text)
    return Value(builder, result, made)


# -- operators -------------------------------------------------------------------------------------

_SYMBOLS = {"add": "+", "sub": "-", "mul": "*", "and": "&", "or": "|", "xor": "^"}


def binary(operation: str, first: object, second: object, result: str = "") -> Value:
    """Emit the operator; `result` is the register it goes to, a new one when empty."""
    symbol = _SYMBOLS.get(operation, operation)
    a, b = pair(symbol, first, second)
    return _emitted(_spelled(operation, symbol, a.type), a.type, a, b, result)


def _emitted(spelling: str, of: Type, a: Value, b: Value, result: str) -> Value:
    builder = a.builder
    made = result or builder.register(of)
    builder.emit(spelling, made, a.text, b.text)
    return Value(builder, of, made)


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


def shift(operation: str, value: object, amount: object, result: str = "") -> Value:
    """Emit a shift by a 32-bit amount."""
    symbol = "<<" if operation == "shl" else ">>"
    if not isinstance(value, Value) or not value.type.is_integer:
        refuse(f"{symbol}: expected an integer, got {getattr(value, 'type', value)}. Convert it.")
    builder = check(value, symbol)
    by = u32 if not isinstance(amount, Value) or amount.type is not i32 else i32
    kind = value.type.ptx if operation == "shr" else value.type.register
    made = result or builder.register(value.type)
    builder.emit(f"{operation}.{kind}", made, value.text, operand(amount, by, symbol))
    return Value(builder, value.type, made)


_CONDITIONS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}


def compare(condition: str, first: object, second: object) -> Value:
    """Emit a comparison; a NaN is equal to nothing and different from everything."""
    a, b = pair(_CONDITIONS[condition], first, second)
    builder = a.builder
    made = builder.register(pred)
    if a.type is pred:
        if condition not in ("eq", "ne"):
            refuse(f"{_CONDITIONS[condition]}: expected numbers, got predicates. Use `&` and `~`.")
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
