"""Device functions, messages, and instructions by their own names.

A plain Python function that a kernel calls is built into it, as if written there. `@function` makes
a function of its own, which the kernel calls on the device.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from uhal.errors import ArgumentValueError
from uhal.ptx.builder import Builder, Program, building, current, refuse
from uhal.ptx.conversions import convert
from uhal.ptx.instructions import Version, find, forms_of
from uhal.ptx.memory import Pointer
from uhal.ptx.parameters import ParameterType, parameters_of, require_names
from uhal.ptx.python_flow import check_flow
from uhal.ptx.types import TYPES, Type, f64, i16, i32, i64, pred, u16, u32, u64
from uhal.ptx.values import Operand, Value, check, constant_of, describe, operand

# -- functions -------------------------------------------------------------------------------------


class DeviceFunction:
    """A function that kernels call on the device. Made by `@function`."""

    def __init__(self, body: Callable[..., Any], signature: str, returns: Type | None) -> None:
        self.name = body.__name__
        self.returns = returns
        self.parameters = parameters_of(signature, self.name)
        require_names(body, self.parameters, self.name)
        self._body = body

    def __call__(self, *arguments: Operand | Pointer) -> Value | None:
        """Emit a call; numbers take the types of the parameters."""
        builder = current(self.name)
        if len(arguments) != len(self.parameters):
            refuse(f"{self.name}: expected {len(self.parameters)} arguments, got {len(arguments)}.")
        texts = [self._argument(*one) for one in zip(self.parameters, arguments, strict=True)]
        name = self._built(builder.program)
        builder.raw("{")
        for index, (parameter, text) in enumerate(zip(self.parameters, texts, strict=True)):
            kind = parameter.held.register
            builder.raw(f".param .{kind} given{index};")
            builder.emit(f"st.param.{kind}", f"[given{index}]", text)
        given = f"({', '.join(f'given{index}' for index in range(len(texts)))})"
        if self.returns is None:
            builder.emit("call.uni", name, *([given] if texts else []))
            builder.raw("}")
            return None
        kind = self.returns.register
        made = builder.register(self.returns)
        builder.raw(f".param .{kind} result;")
        builder.emit("call.uni", "(result)", name, *([given] if texts else []))
        builder.emit(f"ld.param.{kind}", made, "[result]")
        builder.raw("}")
        return Value(builder, self.returns, made)

    def _argument(self, parameter: ParameterType, given: Operand | Pointer) -> str:
        what = f"{self.name}, {parameter.name}"
        if not parameter.is_pointer:
            return operand(given, parameter.held, what)
        if not isinstance(given, Pointer) or given.of is not parameter.of:
            refuse(f"{what}: expected a pointer to {parameter.of}, got {_described(given)}.")
        if given.is_const and not parameter.is_const:
            refuse(f"{what}: expected a pointer to write through, got a const one. Say const.")
        address = given.generic()
        return (address.base + address.offset).text if address.offset else address.base.text

    def _built(self, program: Program) -> str:
        name = program.names.get(self)
        if name is not None:
            if self not in program.functions:
                refuse(f"{self.name}: expected no call of itself, got one. Use a loop.")
            return name
        check_flow(self._body.__code__)
        name = f"{self.name}_{len(program.names)}"
        program.names[self] = name
        builder = Builder(program, name)
        builder.open_head(self._body)
        values = [one.value(builder, f"{name}_{i}") for i, one in enumerate(self.parameters)]
        builder.head = None
        with building(builder):
            result = self._body(*values)
            head = ""
            if self.returns is not None:
                text = operand(result, self.returns, f"{self.name}, result")
                kind = self.returns.register
                head = f"(.param .{kind} {name}_result) "
                builder.open_head(self._body)
                builder.emit(f"st.param.{kind}", f"[{name}_result]", text)
            elif result is not None:
                refuse(f"{self.name}: expected no result, got one. Say returns=….")
            builder.open_head(self._body)
            builder.emit("ret")
        held = ", ".join(
            f".param .{one.held.register} {name}_{index}"
            for index, one in enumerate(self.parameters)
        )
        program.functions[self] = f".func {head}{name}({held})\n{builder.body()}\n"
        return name


def function(
    signature: str, returns: Type | None = None
) -> Callable[[Callable[..., Any]], DeviceFunction]:
    """Decorate a function that kernels call on the device: `@function("f32 x", returns=f32)`.

    `signature` is written as for `uhal.Signature`. Pointers may be into any space.
    """

    def decorate(body: Callable[..., Any]) -> DeviceFunction:
        return DeviceFunction(body, signature, returns)

    return decorate


def _described(given: object) -> str:
    return f"one to {given.of}" if isinstance(given, Pointer) else describe(given)


# -- messages --------------------------------------------------------------------------------------

_CONVERSION = re.compile(r"%[-+ #0]*\d*(?:\.\d+)?(?:hh|h|ll|l|z)?([diouxXcfFeEgGaAps%])")
_VPRINTF = ".extern .func (.param .b32 status) vprintf (.param .b64 format, .param .b64 arguments);"


def printf(text: str, *values: Value) -> None:
    """Print a line on the host at its next wait for the device, as C's `printf` does.

    Conversions of integers take integers, conversions of floats take floats.
    """
    builder = current("printf")
    wanted = [one for one in _CONVERSION.findall(text) if one != "%"]
    if len(wanted) != len(values):
        refuse(f"printf: expected {len(wanted)} values for {text!r}, got {len(values)}.")
    widened = []
    for conversion, value in zip(wanted, values, strict=True):
        if not isinstance(value, Value) or value.type.is_float != (conversion in "fFeEgGaA"):
            refuse(f"printf: expected a number for %{conversion}, got {describe(value)}.")
        check(value, "printf")
        widened.append(f64(value) if value.type.is_float else _widened(value))
    symbol, data = builder.symbol("text"), (*text.encode(), 0)
    content = ", ".join(map(str, data))
    builder.program.declarations[symbol] = (
        f".global .align 1 .b8 {symbol}[{len(data)}] = {{{content}}};"
    )
    builder.program.declarations.setdefault("vprintf", _VPRINTF)
    offsets, end = [], 0
    for one in widened:
        end = -(-end // one.type.bytes) * one.type.bytes
        offsets.append(end)
        end += one.type.bytes
    held = builder.symbol("given")
    builder.prologue.append(f".local .align 8 .b8 {held}[{max(end, 8)}];")
    addresses = []
    for space, name in (("global", symbol), ("local", held)):
        base = [builder.register(u64) for _ in range(2)]
        builder.emit("mov.u64", base[0], name)
        builder.emit(f"cvta.{space}.u64", base[1], base[0])
        addresses.append(base[1])
    for one, offset in zip(widened, offsets, strict=True):
        builder.emit(f"st.local.{one.type.register}", f"[{held}+{offset}]", one.text)
    builder.raw("{")
    for index, address in enumerate(addresses):
        builder.raw(f".param .b64 given{index};")
        builder.emit("st.param.b64", f"[given{index}]", address)
    builder.raw(".param .b32 status;")
    builder.emit("call.uni", "(status)", "vprintf", "(given0, given1)")
    builder.raw("}")


def _widened(value: Value) -> Value:
    if value.type.bits >= 32:
        return value
    return convert(value, i32 if value.type.kind == "int" else u32)


# -- instructions by name --------------------------------------------------------------------------

_BUILT = dict(
    zip(
        "pred b16 e4m3x2 e5m2x2 s16 s8 s32 b64 s64".split(),
        (pred, u16, u16, u16, i16, i32, i32, u64, i64),
        strict=True,
    )
)
_WIDER = {"u16": u32, "s16": i32, "u32": u64, "s32": i64}
_NAMES = frozenset(
    "pred b8 b16 b32 b64 u8 u16 u32 u64 s8 s16 s32 s64 f16 bf16 f32 f64 tf32 f16x2 bf16x2 u16x2 "
    "s16x2 e4m3x2 e5m2x2".split()
)


def _built_type(name: str) -> Type:
    """The type of values for a type of PTX; packed pairs and bytes are words."""
    return _BUILT.get(name) or (TYPES[name].value_type if name in TYPES else u32)


def op(spelling: str, *operands: Any) -> Any:
    """Emit any instruction of the table by its PTX name; return its result, if it has one.

    `op("mad.hi.u32", a, b, c)`. Operands are values, numbers, pointers for addresses and tuples for
    vectors; a vector result is a tuple. `text` is for instructions outside the table.
    """
    builder = current("op")
    form = find(spelling)
    if form is None:
        near = ", ".join(dict.fromkeys(one.pattern for one in forms_of(spelling.partition(".")[0])))
        hint = f"It has {near[:200]}." if near else "See the reference of instructions."
        refuse(f"op: expected an instruction of PTX, got {spelling!r}. {hint}", ArgumentValueError)
    words = form.operands.split()
    named = [one for one in spelling.split(".")[1:] if one in _NAMES]
    results = [one[1:] for one in words if one[0] == "="]
    wanted = [one for one in words if one[0] != "="]
    fewest = sum(1 for one in wanted if not one.endswith("?"))
    if "l" in words or not fewest <= len(operands) <= len(wanted):
        if "l" in words:
            refuse(f"op: {spelling} is control flow. Use `if_`, `loop` or `function`.")
        refuse(
            f"op: expected {fewest} operands of {spelling} ({form.operands}), got {len(operands)}."
        )
    texts = [
        _operand(builder, spelling, word.rstrip("?"), named, one)
        for word, one in zip(wanted, operands, strict=False)
    ]
    if not results:
        builder.emit(spelling, *texts)
        return None
    of = _resolved(results[0].partition("|")[0].strip("{}"), named)
    count = _result_count(spelling) if results[0][0] == "{" else 0
    made = [builder.register(of) for _ in range(count or 1)]
    builder.emit(spelling, f"{{{', '.join(made)}}}" if count else made[0], *texts)
    values = tuple(Value(builder, of, one) for one in made)
    return values if count else values[0]


def _resolved(word: str, named: list[str]) -> Type:
    if word == "w":
        return _WIDER[named[-1]]
    return _built_type({"t": named[-1], "t0": named[0]}.get(word, word) if named else word)


def _result_count(spelling: str) -> int:
    found = re.search(r"\.[vx]([1248])\b", spelling)
    return int(found[1]) if found else 0


def _operand(builder: Builder, spelling: str, word: str, named: list[str], given: Any) -> str:
    if word == "n":
        if not isinstance(given, int):
            refuse(f"op: expected an integer constant for {spelling}, got {describe(given)}.")
        return str(given)
    if word == "[]":
        if not isinstance(given, Pointer):
            refuse(f"op: expected a pointer for {spelling}, got {describe(given)}.")
        return given.address()
    if word[0] == "{" and isinstance(given, (tuple, list)):
        return f"{{{', '.join(_operand(builder, spelling, word[1:-1], named, x) for x in given)}}}"
    of = _resolved(word.strip("{}"), named)
    if not isinstance(given, Value):
        return constant_of(given, of, f"op {spelling}").text
    check(given, f"op {spelling}")
    fits = given.type.register == of.register and (not of.is_float or given.type is of)
    if not fits:
        refuse(f"op: expected {of} for {spelling}, got {given.type}. Convert it.")
    return given.text


def text(
    template: str,
    *operands: Value,
    result: Type | None = None,
    target: int = 0,
    version: Version = (0, 0),
) -> Value | None:
    """Emit PTX as written, with `{0}`, `{1}`, … for operands and `{result}` for a new register.

    Instructions that the table has not need the first `target`, as 90, and PTX `version`.
    """
    builder = current("text")
    for one in operands:
        check(one, "text")
    texts = [one.text for one in operands]
    made = builder.register(result) if result is not None else ""
    try:
        filled = template.format(*texts, result=made)
    except (IndexError, KeyError, ValueError) as error:
        refuse(f"text: expected places {{0}} … for operands, got {error!r}.", ArgumentValueError)
    builder.program.need(target, version)
    for statement in filter(None, (one.strip() for one in filled.split(";"))):
        guard, opcode, rest = re.fullmatch(
            r"(@!?\S+\s+)?(\S+)\s*(.*)", statement, re.DOTALL
        ).groups()  # type: ignore[union-attr]
        if find(opcode) is not None:
            builder.emit(opcode, *([rest] if rest else []), guard=guard or "")
        elif target:
            builder.raw(f"{statement};")
        else:
            refuse(
                f"text: expected an instruction of the table, got {opcode!r}. Say its first "
                "target=… and version=….",
                ArgumentValueError,
            )
    return Value(builder, result, made) if result is not None else None
