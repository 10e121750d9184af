"""Device functions, messages, and instructions by name.

A plain Python function that a kernel calls is inlined. `@function` makes a separate function, which
the kernel calls on the device.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from uhal.ptx.builder import Builder, Program, braces, current, refuse, refuse_value
from uhal.ptx.instructions import Version, find, forms_of
from uhal.ptx.memory import Pointer, local, named_array
from uhal.ptx.parameters import Body, ParameterType, build, parameters_of
from uhal.ptx.types import FLOATS, INTEGERS, TYPES, Type, f64, i32, pred, u8, u16, u32, u64
from uhal.ptx.values import Operand, Value, check, emitted, emitted_list, expect, operand

# -- functions -------------------------------------------------------------------------------------


class DeviceFunction:
    """A function that kernels call on the device. Made by `@function`."""

    def __init__(self, body: Body, signature: str, returns: Type | None) -> None:
        self.name = body.__name__
        self.returns = returns
        self.parameters = parameters_of(body, signature)
        self._body = body

    def __call__(self, *arguments: Operand | Pointer) -> Value | None:
        """Emit a call; numbers take the types of the parameters."""
        builder = current(self.name)
        if len(arguments) != len(self.parameters):
            refuse(f"{self.name}: expected {len(self.parameters)} arguments, got {len(arguments)}.")
        pairs = zip(self.parameters, arguments, strict=True)
        given = [(one.held, self._argument(one, argument)) for one, argument in pairs]
        return _call(builder, self._built(builder.program), given, self.returns)

    def _argument(self, parameter: ParameterType, given: Operand | Pointer) -> str:
        what = f"{self.name}, {parameter.name}"
        if not parameter.is_pointer:
            return operand(given, parameter.held, what)
        if not isinstance(given, Pointer) or given.of is not parameter.of:
            shown = f"one to {given.of}" if isinstance(given, Pointer) else repr(given)
            refuse(f"{what}: expected a pointer to {parameter.of}, got {shown}.")
        if given.is_const and not parameter.is_const:
            refuse(f"{what}: expected a pointer to write through, got a const one. Say const.")
        address = given.generic()
        return (address.base + address.offset).text if address.offset else address.base.text

    def _built(self, program: Program) -> str:
        """The function's name in the module, built at its first call."""
        name = program.names.get(self)
        if name is None:
            name = program.names[self] = f"{self.name}_{len(program.names)}"
            body = build(program, name, self._body, self.parameters, "generic", self.returns)
            kinds = (one.held.register for one in self.parameters)
            held = ", ".join(f".param .{kind} {name}_{i}" for i, kind in enumerate(kinds))
            kind = "" if self.returns is None else self.returns.register
            result = f"(.param .{kind} {name}_result) " if kind else ""
            program.functions[self] = f".func {result}{name}({held})\n{body}\n"
        elif self not in program.functions:
            refuse(f"{self.name}: expected no call of itself, got one. Use a loop.")
        return name


def _call(
    builder: Builder, name: str, given: Sequence[tuple[Type, str]], returns: Type | None
) -> Value | None:
    """Emit a call in a separate block, which holds the call's parameters."""
    builder.lines.append("{")
    for index, (of, text) in enumerate(given):
        builder.lines.append(f".param .{of.register} given{index};")
        builder.emit(f"st.param.{of.register}", f"[given{index}]", text)
    names = ", ".join(f"given{index}" for index in range(len(given)))
    texts = [name, f"({names})"] if given else [name]
    made = None
    if returns is None:
        builder.emit("call.uni", *texts)
    else:
        builder.lines.append(f".param .{returns.register} result;")
        builder.emit("call.uni", "(result)", *texts)
        made = emitted(builder, returns, f"ld.param.{returns.register}", "[result]")
    builder.lines.append("}")
    return made


def function(signature: str, returns: Type | None = None) -> Callable[[Body], DeviceFunction]:
    """Decorate a function that kernels call on the device: `@function("f32 x", returns=f32)`.

    `signature` is written as for `uhal.Signature`. Pointers may be into any space.
    """
    return lambda body: DeviceFunction(body, signature, returns)


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
        types = FLOATS if conversion in "fFeEgGaA" else (*INTEGERS, pred)
        expect(value, "printf", f"a number for %{conversion}", types)
        widened.append(_widened(value))
    symbol, data = builder.symbol("text"), (*text.encode(), 0)
    content = ", ".join(map(str, data))
    head = f".global .align 1 .b8 {symbol}[{len(data)}]"
    builder.program.declarations[symbol] = f"{head} = {{{content}}};"
    builder.program.declarations.setdefault("vprintf", _VPRINTF)
    held, end = local(u64, max(len(widened), 1)), 0
    for one in widened:
        end = -(-end // one.type.bytes) * one.type.bytes
        replace(held, of=one.type, offset=end).store(0, one)
        end += one.type.bytes
    pointers = named_array(builder, u8, "global", symbol, (), "the text"), held
    _call(builder, "vprintf", [(u64, one.generic().base.text) for one in pointers], i32)


def _widened(value: Value) -> Any:
    if value.type.is_float:
        return f64(value)
    return value if value.type.bits >= 32 else (i32 if value.type.kind == "int" else u32)(value)


# -- instructions by name --------------------------------------------------------------------------

_NAMED: dict[str, Type] = {
    **{one.ptx: one.value_type for one in (*TYPES.values(), pred)},
    **dict.fromkeys("b16 e4m3x2 e5m2x2".split(), u16),
    **dict.fromkeys("b8 b32 tf32 f16x2 bf16x2 u16x2 s16x2".split(), u32),
    "b64": u64,
}
"""Types of values by PTX's names; packed pairs and bytes are words."""


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
        refuse_value(f"op: expected an instruction of PTX, got {spelling!r}. {hint}")
    words = form.operands.split()
    named = [one for one in spelling.split(".")[1:] if one in _NAMED]
    results = [one[1:].partition("|")[0] for one in words if one[0] == "="]
    wanted = [one for one in words if one[0] != "="]
    if "l" in words:
        refuse(f"op: {spelling} is control flow. Use `if_`, `loop` or `function`.")
    fewest = sum(not one.endswith("?") for one in wanted)
    if not fewest <= len(operands) <= len(wanted):
        given = f"({form.operands}), got {len(operands)}"
        refuse(f"op: expected {fewest} operands of {spelling} {given}.")
    pairs = zip(wanted, operands, strict=False)
    texts = [_operand(spelling, word.rstrip("?"), named, one) for word, one in pairs]
    if not results:
        builder.emit(spelling, *texts)
        return None
    of = _resolved(results[0].strip("{}"), named)
    if results[0][0] != "{" or (count := re.search(r"\.[vx]([1248])\b", spelling)) is None:
        return emitted(builder, of, spelling, *texts)
    return emitted_list(builder, of, int(count[1]), spelling, *texts)


def _resolved(word: str, named: list[str]) -> Type:
    if word == "w":
        word = f"{named[-1][0]}{2 * int(named[-1][1:])}"
    return _NAMED[{"t": named[-1], "t0": named[0]}.get(word, word) if named else word]


def _operand(spelling: str, word: str, named: list[str], given: Any) -> str:
    what = f"op {spelling}"
    if word == "n":
        if not isinstance(given, int):
            refuse(f"{what}: expected an integer constant, got {given!r}.")
        return str(given)
    if word == "[]":
        if not isinstance(given, Pointer):
            refuse(f"{what}: expected a pointer, got {given!r}.")
        return given.address()
    if word[0] == "{" and isinstance(given, (tuple, list)):
        return braces(_operand(spelling, word[1:-1], named, one) for one in given)
    of = _resolved(word.strip("{}"), named)
    if not isinstance(given, Value):
        return operand(given, of, what)
    check(given, what)
    if given.type.register != of.register or (of.is_float and given.type is not of):
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

    Instructions outside the table need the first `target`, such as 90, and PTX `version`.
    """
    builder = current("text")
    for one in operands:
        check(one, "text")
    made = builder.register(result) if result is not None else ""
    try:
        filled = template.format(*(one.text for one in operands), result=made)
    except (IndexError, KeyError, ValueError) as error:
        refuse_value(f"text: expected places {{0}} … for operands, got {error!r}.")
    builder.program.need(target, version)
    for statement in filter(None, (one.strip() for one in filled.split(";"))):
        guard, opcode, rest = re.fullmatch(
            r"(@!?\S+\s+)?(\S+)\s*(.*)", statement, re.DOTALL
        ).groups()  # type: ignore[union-attr]
        if find(opcode) is not None:
            builder.emit(opcode, *([rest] if rest else []), guard=guard or "")
        elif target:
            builder.lines.append(f"{statement};")
        else:
            given = f"got {opcode!r}. Say its first target=… and version=…."
            refuse_value(f"text: expected an instruction of the table, {given}")
    return Value(builder, result, made) if result is not None else None
