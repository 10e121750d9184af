"""Integer arithmetic (ISA manual §9.7.1, §9.7.2) and dot products."""

from __future__ import annotations

from .emitter import Emitter
from .program import Instruction
from .table import instruction
from .types import BITS, TYPES, U32, PtxType


def widened(e: Emitter, value: str, kind: PtxType, width: int) -> str:
    """An integer with more bits: with its sign if its type is signed, else with zeros."""
    return e.resized(value, kind.width, width, signed=kind.is_signed)


def clamped(e: Emitter, value: str, width: int, low: int, high: int) -> str:
    """A signed integer, clamped to a range."""
    raised = e.call(f"i{width}", f"llvm.smax.i{width}", f"i{width} {value}", f"i{width} {low}")
    return e.call(f"i{width}", f"llvm.smin.i{width}", f"i{width} {raised}", f"i{width} {high}")


@instruction("add.integer", "sub.integer")
def add_or_subtract(e: Emitter, i: Instruction) -> None:
    kind = i.type
    first, second = e.read(i.operands[1], kind), e.read(i.operands[2], kind)
    if i.has("sat"):
        name = f"llvm.s{i.name}.sat.{kind.llvm}"
        result = e.call(kind.llvm, name, f"{kind.llvm} {first}", f"{kind.llvm} {second}")
    else:
        result = e.value(f"{i.name} {kind.llvm} {first}, {second}")
    e.write(i.operands[0], result, kind)


@instruction("add.pairs", "min.pairs", "max.pairs")
def on_halves(e: Emitter, i: Instruction) -> None:
    first, second = (
        e.value(f"bitcast i32 {e.read(one, U32)} to <2 x i16>") for one in i.operands[1:]
    )
    if i.name == "add":
        result = e.value(f"add <2 x i16> {first}, {second}")
    else:
        name = f"llvm.{i.type.name[0]}{i.name}.v2i16"
        e.declarations[name] = f"declare <2 x i16> @{name}(<2 x i16>, <2 x i16>)"
        result = e.value(f"call <2 x i16> @{name}(<2 x i16> {first}, <2 x i16> {second})")
    e.write(i.operands[0], e.value(f"bitcast <2 x i16> {result} to i32"), U32)


def product(e: Emitter, i: Instruction, first: str, second: str) -> tuple[str, PtxType]:
    """The part of a product that `.lo`, `.hi` or `.wide` asks for, with its type."""
    kind = i.type
    if not (i.has("hi") or i.has("wide")):
        return e.value(f"mul {kind.llvm} {first}, {second}"), kind
    width = 2 * kind.width
    wide = e.value(
        f"mul i{width} {widened(e, first, kind, width)}, {widened(e, second, kind, width)}"
    )
    if i.has("wide"):
        return wide, TYPES[f"{kind.name[0]}{width}"]
    high = e.value(f"lshr i{width} {wide}, {kind.width}")
    return e.resized(high, width, kind.width, signed=False), kind


@instruction("mul.integer")
def multiply(e: Emitter, i: Instruction) -> None:
    result, kind = product(e, i, e.read(i.operands[1], i.type), e.read(i.operands[2], i.type))
    e.write(i.operands[0], result, kind)


@instruction("mad.integer")
def multiply_add(e: Emitter, i: Instruction) -> None:
    part, kind = product(e, i, e.read(i.operands[1], i.type), e.read(i.operands[2], i.type))
    added = e.read(i.operands[3], kind)
    if i.has("sat"):
        result = e.call("i32", "llvm.sadd.sat.i32", f"i32 {part}", f"i32 {added}")
    else:
        result = e.value(f"add {kind.llvm} {part}, {added}")
    e.write(i.operands[0], result, kind)


@instruction("mul24", "mad24")
def multiply_24(e: Emitter, i: Instruction) -> None:
    kind = i.type
    shift = "ashr" if kind.is_signed else "lshr"
    factors = []
    for operand in i.operands[1:3]:
        raised = e.value(f"shl i32 {e.read(operand, kind)}, 8")
        factors.append(widened(e, e.value(f"{shift} i32 {raised}, 8"), kind, 64))
    whole = e.value(f"mul i64 {factors[0]}, {factors[1]}")
    if i.has("hi"):
        whole = e.value(f"lshr i64 {whole}, 16")
    result = e.value(f"trunc i64 {whole} to i32")
    if i.has("sat"):
        result = e.call(
            "i32", "llvm.sadd.sat.i32", f"i32 {result}", f"i32 {e.read(i.operands[3], kind)}"
        )
    elif i.name == "mad24":
        result = e.value(f"add i32 {result}, {e.read(i.operands[3], kind)}")
    e.write(i.operands[0], result, kind)


@instruction("sad")
def sum_of_difference(e: Emitter, i: Instruction) -> None:
    kind = i.type
    first, second, third = (e.read(one, kind) for one in i.operands[1:4])
    less = e.value(f"icmp {'s' if kind.is_signed else 'u'}lt {kind.llvm} {first}, {second}")
    up = e.value(f"sub {kind.llvm} {second}, {first}")
    down = e.value(f"sub {kind.llvm} {first}, {second}")
    distance = e.value(f"select i1 {less}, {kind.llvm} {up}, {kind.llvm} {down}")
    e.write(i.operands[0], e.value(f"add {kind.llvm} {third}, {distance}"), kind)


@instruction("div.integer", "rem.integer")
def divide(e: Emitter, i: Instruction) -> None:
    """Division by zero is unspecified; the answer is all ones, and the dividend for `rem`."""
    kind = i.type
    first, second = e.read(i.operands[1], kind), e.read(i.operands[2], kind)
    is_zero = e.value(f"icmp eq {kind.llvm} {second}, 0")
    safe = e.value(f"select i1 {is_zero}, {kind.llvm} 1, {kind.llvm} {second}")
    is_minus_one = "false"
    if kind.is_signed:
        # The least value divided by -1 traps on some processors; a negation wraps.
        is_minus_one = e.value(f"icmp eq {kind.llvm} {second}, -1")
        safe = e.value(f"select i1 {is_minus_one}, {kind.llvm} 1, {kind.llvm} {safe}")
    operation = f"{'s' if kind.is_signed else 'u'}{i.name}"
    result = e.value(f"{operation} {kind.llvm} {first}, {safe}")
    if i.name == "div":
        negative = e.value(f"sub {kind.llvm} 0, {first}")
        result = e.value(f"select i1 {is_minus_one}, {kind.llvm} {negative}, {kind.llvm} {result}")
    by_zero = "-1" if i.name == "div" else first
    result = e.value(f"select i1 {is_zero}, {kind.llvm} {by_zero}, {kind.llvm} {result}")
    e.write(i.operands[0], result, kind)


@instruction("abs.integer")
def absolute(e: Emitter, i: Instruction) -> None:
    kind = i.type
    value = e.read(i.operands[1], kind)
    result = e.call(kind.llvm, f"llvm.abs.{kind.llvm}", f"{kind.llvm} {value}", "i1 false")
    e.write(i.operands[0], result, kind)


@instruction("neg.integer")
def negate(e: Emitter, i: Instruction) -> None:
    kind = i.type
    e.write(i.operands[0], e.value(f"sub {kind.llvm} 0, {e.read(i.operands[1], kind)}"), kind)


@instruction("min.integer", "max.integer")
def extreme(e: Emitter, i: Instruction) -> None:
    kind = i.type
    name = f"llvm.{'s' if kind.is_signed else 'u'}{i.name}.{kind.llvm}"
    first, second = e.read(i.operands[1], kind), e.read(i.operands[2], kind)
    result = e.call(kind.llvm, name, f"{kind.llvm} {first}", f"{kind.llvm} {second}")
    if i.has("relu"):
        result = e.call("i32", "llvm.smax.i32", f"i32 {result}", "i32 0")
    e.write(i.operands[0], result, kind)


@instruction("dp4a", "dp2a")
def dot_product(e: Emitter, i: Instruction) -> None:
    kinds = i.types
    first, second, total = (e.read(one, BITS[32]) for one in i.operands[1:4])
    count, width = (4, 8) if i.name == "dp4a" else (2, 16)
    for index in range(count):
        # dp2a pairs 16-bit halves of the first with bytes of one half of the second.
        at = index * 8 + (16 if i.has("hi") else 0)
        one = _field(e, first, kinds[0], index * width, width)
        other = _field(e, second, kinds[1], at, 8)
        total = e.value(f"add i32 {total}, {e.value(f'mul i32 {one}, {other}')}")
    e.write(i.operands[0], total, U32)


def _field(e: Emitter, value: str, kind: PtxType, at: int, width: int) -> str:
    raised = e.value(f"shl i32 {value}, {32 - width - at}")
    return e.value(f"{'ashr' if kind.is_signed else 'lshr'} i32 {raised}, {32 - width}")


# -- with a carry ----------------------------------------------------------------------------------


@instruction("add.carry", "sub.carry")
def with_carry(e: Emitter, i: Instruction) -> None:
    first, second = e.read(i.operands[1], i.type), e.read(i.operands[2], i.type)
    _accumulate(e, i, first, second, i.type, takes=i.name.endswith("c"))


@instruction("mad.carry")
def multiply_with_carry(e: Emitter, i: Instruction) -> None:
    part, kind = product(e, i, e.read(i.operands[1], i.type), e.read(i.operands[2], i.type))
    added = e.read(i.operands[3], kind)
    _accumulate(e, i, part, added, kind, takes=i.name == "madc")


def _accumulate(
    e: Emitter, i: Instruction, first: str, second: str, kind: PtxType, *, takes: bool
) -> None:
    width = kind.width + 8
    operation = "sub" if i.name.startswith("sub") else "add"
    one, other = (e.resized(each, kind.width, width, signed=False) for each in (first, second))
    result = e.value(f"{operation} i{width} {one}, {other}")
    if takes:
        held = e.value(f"load i1, ptr {e.carry_flag()}")
        result = e.value(f"{operation} i{width} {result}, {e.value(f'zext i1 {held} to i{width}')}")
    if i.has("cc"):
        over = e.value(f"lshr i{width} {result}, {kind.width}")
        e.line(f"store i1 {e.value(f'trunc i{width} {over} to i1')}, ptr {e.carry_flag()}")
    e.write(i.operands[0], e.resized(result, width, kind.width, signed=False), kind)
