"""Comparison and selection (ISA manual §9.7.6, §9.7.7)."""

from __future__ import annotations

from .emitter import Emitter
from .floating import half_of
from .program import Instruction, Operand, Pair
from .table import instruction
from .types import B32, BITS, PRED, PtxType

_FLOAT_CONDITIONS = {
    "eq": "oeq",
    "ne": "one",
    "lt": "olt",
    "le": "ole",
    "gt": "ogt",
    "ge": "oge",
    "equ": "ueq",
    "neu": "une",
    "ltu": "ult",
    "leu": "ule",
    "gtu": "ugt",
    "geu": "uge",
    "num": "ord",
    "nan": "uno",
}
_UNSIGNED_NAMES = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}


def compared(e: Emitter, i: Instruction, kind: PtxType, first: str, second: str) -> str:
    """The truth of the instruction's comparison of two bit patterns."""
    condition = i.one_of(*_FLOAT_CONDITIONS, *_UNSIGNED_NAMES)
    if kind.is_float:
        one, other = (e.to_real(each, kind, flush=i.has("ftz")) for each in (first, second))
        return e.value(f"fcmp {_FLOAT_CONDITIONS[condition]} {kind.real} {one}, {other}")
    condition = _UNSIGNED_NAMES.get(condition, condition)
    if condition not in ("eq", "ne"):
        condition = ("s" if kind.is_signed else "u") + condition
    return e.value(f"icmp {condition} {kind.llvm} {first}, {second}")


def combined(e: Emitter, i: Instruction, truth: str, operand: Operand | None) -> str:
    """Join a truth with a predicate as `.and`, `.or` or `.xor` says."""
    how = i.one_of("and", "or", "xor")
    return e.value(f"{how} i1 {truth}, {e.read(operand, PRED)}") if how else truth


@instruction("setp")
def set_predicate(e: Emitter, i: Instruction) -> None:
    truth = compared(e, i, i.type, e.read(i.operands[1], i.type), e.read(i.operands[2], i.type))
    _write_truths(e, i, truth, e.value(f"xor i1 {truth}, true"))


@instruction("setp.pairs")
def set_predicates_of_halves(e: Emitter, i: Instruction) -> None:
    truths = []
    for shift in (0, 16):
        first, second = (half_of(e, one, shift) for one in i.operands[1:3])
        truths.append(compared(e, i, i.type.element, first, second))
    _write_truths(e, i, *truths)


def _write_truths(e: Emitter, i: Instruction, first: str, second: str) -> None:
    joined = i.operands[3] if len(i.operands) > 3 else None
    target = i.operands[0]
    if isinstance(target, Pair):
        # Both results are computed before the first write: the joined predicate may be a target.
        one, other = combined(e, i, first, joined), combined(e, i, second, joined)
        e.write_predicate(target.first, one)
        e.write_predicate(target.second, other)
    else:
        e.write_predicate(target, combined(e, i, first, joined))


@instruction("set")
def set_value(e: Emitter, i: Instruction) -> None:
    result, kind = i.types
    truth = compared(e, i, kind, e.read(i.operands[1], kind), e.read(i.operands[2], kind))
    truth = combined(e, i, truth, i.operands[3] if len(i.operands) > 3 else None)
    true = _true_of(result)
    e.write(
        i.operands[0], e.value(f"select i1 {truth}, {result.llvm} {true}, {result.llvm} 0"), result
    )


@instruction("set.pairs")
def set_values_of_halves(e: Emitter, i: Instruction) -> None:
    result, kind = i.types
    joined = "0"
    for shift in (0, 16):
        first, second = (half_of(e, one, shift) for one in i.operands[1:3])
        truth = compared(e, i, kind.element, first, second)
        truth = combined(e, i, truth, i.operands[3] if len(i.operands) > 3 else None)
        bits = _true_of(result.element) << shift
        joined = e.value(f"or i32 {joined}, {e.value(f'select i1 {truth}, i32 {bits}, i32 0')}")
    e.write(i.operands[0], joined, B32)


def _true_of(kind: PtxType) -> int:
    ones = {"f32": 0x3F800000, "f16": 0x3C00, "bf16": 0x3F80}
    return ones.get(kind.name, (1 << kind.width) - 1)


@instruction("selp")
def select(e: Emitter, i: Instruction) -> None:
    bits = BITS[i.type.width]
    first, second = e.read(i.operands[1], bits), e.read(i.operands[2], bits)
    if i.type.is_float:
        first, second = (e.read(one, i.type) for one in i.operands[1:3])
    chosen = e.read(i.operands[3], PRED)
    e.write(
        i.operands[0],
        e.value(f"select i1 {chosen}, {bits.llvm} {first}, {bits.llvm} {second}"),
        bits,
    )


@instruction("slct")
def select_by_sign(e: Emitter, i: Instruction) -> None:
    """A NaN selects the second operand; -0 counts as not negative."""
    result, kind = i.types
    first, second = e.read(i.operands[1], result), e.read(i.operands[2], result)
    if kind.is_float:
        value = e.real(i.operands[3], kind, flush=i.has("ftz"))
        chosen = e.value(f"fcmp oge float {value}, 0.0")
    else:
        chosen = e.value(f"icmp sge i32 {e.read(i.operands[3], kind)}, 0")
    e.write(
        i.operands[0],
        e.value(f"select i1 {chosen}, {result.llvm} {first}, {result.llvm} {second}"),
        result,
    )
