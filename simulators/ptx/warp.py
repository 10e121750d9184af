"""Threads that wait for threads: barriers and warp operations (ISA manual §9.7.13, §9.7.14).

The operands go to the run time as words; runtime/warp.c defines the answers.
"""

from __future__ import annotations

from typing import Literal

from .emitter import Emitter
from .memory import elements, space_of
from .program import Instruction, Operand, Pair
from .table import instruction
from .types import B32, BITS, PRED, U32, PtxType

SYNC_BARRIER, ARRIVE, COUNT, ALL, ANY = range(5)
WARP = 32
ROW_BYTES = 16
"""Bytes of a row of a matrix that ldmatrix loads: eight 16-bit values."""
ALIGNED = 16
"""Added to a barrier's operation when all threads of a warp must come together."""


def word(e: Emitter, operand: Operand | None) -> str:
    """A 32-bit operand as a word of a request."""
    return e.value(f"zext i32 {e.read(operand, B32)} to i64")


def _barrier(e: Emitter, i: Instruction, operation: int, count_at: int, *more: str) -> None:
    aligned = ALIGNED if i.name == "bar" or i.has("aligned") else 0
    identity = word(e, i.operands[count_at - 1])
    count = word(e, i.operands[count_at]) if len(i.operands) > count_at else "0"
    e.ask("barrier", operation + aligned, identity, count, *more)


@instruction("bar.sync", suspends=True)
def barrier(e: Emitter, i: Instruction) -> None:
    _barrier(e, i, SYNC_BARRIER, 1)


@instruction("bar.arrive", suspends=True)
def arrive(e: Emitter, i: Instruction) -> None:
    _barrier(e, i, ARRIVE, 1)


@instruction("bar.red", suspends=True)
def barrier_with_reduction(e: Emitter, i: Instruction) -> None:
    operation = {"popc": COUNT, "and": ALL, "or": ANY}[i.one_of("popc", "and", "or")]
    aligned = ALIGNED if i.name == "bar" or i.has("aligned") else 0
    count = word(e, i.operands[2]) if len(i.operands) > 3 else "0"
    truth = e.value(f"zext i1 {e.read(i.operands[-1], PRED)} to i64")
    e.ask("barrier", operation + aligned, word(e, i.operands[1]), count, truth)
    kind = U32 if operation == COUNT else PRED
    e.write(i.operands[0], e.answer(0, kind.width), kind)


@instruction("bar.warp", suspends=True)
def warp_barrier(e: Emitter, i: Instruction) -> None:
    e.ask("warp_barrier", 0, word(e, i.operands[0]))


@instruction("shfl", suspends=True)
def shuffle(e: Emitter, i: Instruction) -> None:
    mode = ("up", "down", "bfly", "idx").index(i.modifiers[1])
    value, lane, clamp, mask = i.operands[1:5]
    e.ask("shuffle", mode, *(word(e, one) for one in (mask, value, lane, clamp)))
    target = i.operands[0]
    got, valid = e.answer(0, 32), e.answer(1, 1)
    if isinstance(target, Pair):
        e.write(target.first, got, B32)
        e.write_predicate(target.second, valid)
    else:
        e.write(target, got, B32)


@instruction("vote", suspends=True)
def vote(e: Emitter, i: Instruction) -> None:
    mode = ("all", "any", "uni", "ballot").index(i.modifiers[1])
    truth = e.value(f"zext i1 {e.read(i.operands[1], PRED)} to i64")
    e.ask("vote", mode, word(e, i.operands[2]), truth)
    e.write(i.operands[0], e.answer(0, i.type.width), i.type)


@instruction("match", suspends=True)
def match(e: Emitter, i: Instruction) -> None:
    value = e.resized(e.read(i.operands[1], i.type), i.type.width, 64, signed=False)
    e.ask("match", int(i.has("all")), word(e, i.operands[2]), value)
    target = i.operands[0]
    if isinstance(target, Pair):
        e.write(target.first, e.answer(0, 32), B32)
        e.write_predicate(target.second, e.answer(1, 1))
    else:
        e.write(target, e.answer(0, 32), B32)


@instruction("redux", suspends=True)
def reduce_warp(e: Emitter, i: Instruction) -> None:
    mode = ("add", "min", "max", "and", "or", "xor").index(i.modifiers[1])
    signed = 8 if i.type.is_signed else 0
    e.ask("reduce", mode + signed, word(e, i.operands[2]), word(e, i.operands[1]))
    e.write(i.operands[0], e.answer(0, 32), B32)


@instruction("activemask", suspends=True)
def active_mask(e: Emitter, i: Instruction) -> None:
    e.ask("active_mask", 0)
    e.write(i.operands[0], e.answer(0, 32), B32)


@instruction("elect", suspends=True)
def elect(e: Emitter, i: Instruction) -> None:
    e.ask("elect", 0, word(e, i.operands[1]))
    target = i.operands[0]
    if isinstance(target, Pair):
        e.write(target.first, e.answer(0, 32), B32)
        e.write_predicate(target.second, e.answer(1, 1))


@instruction("ldmatrix", suspends=True)
def load_matrices(e: Emitter, i: Instruction) -> None:
    registers = elements(i.operands[0])
    row = _row(e, i, 8 * len(registers), "load")
    e.ask("matrix_load", len(registers) + (8 if i.has("trans") else 0), "-1", row)
    for index, register in enumerate(registers):
        e.write(register, e.answer(index, 32), B32)


@instruction("stmatrix", suspends=True)
def store_matrices(e: Emitter, i: Instruction) -> None:
    registers = elements(i.operands[1])
    row = _row(e, i, 8 * len(registers), "store")
    operation = len(registers) + (8 if i.has("trans") else 0)
    e.ask("matrix_store", operation, "-1", row, *(word(e, one) for one in registers))


@instruction("movmatrix", suspends=True)
def move_matrix(e: Emitter, i: Instruction) -> None:
    e.ask("matrix_move", 0, "-1", word(e, i.operands[1]))
    e.write(i.operands[0], e.answer(0, 32), B32)


def _row(e: Emitter, i: Instruction, lanes: int, access: Literal["load", "store"]) -> str:
    """The row that a lane names, as an i64; only the first lanes name rows."""
    address = i.operands[access == "load"]
    if e.check == "off" or lanes == WARP:
        return _reached(e, address, i, access)
    held = e.slot("i64")
    e.line(f"store i64 0, ptr {held}")
    names_one = e.value(f"icmp ult i32 {e.special('%laneid', 32)}, {lanes}")
    named, after = e.label(), e.label()
    e.line(f"br i1 {names_one}, label %{named}, label %{after}")
    e.begin(named)
    e.line(f"store i64 {_reached(e, address, i, access)}, ptr {held}")
    e.fall_into(after)
    return e.value(f"load i64, ptr {held}")


def _reached(
    e: Emitter, address: Operand | None, i: Instruction, access: Literal["load", "store"]
) -> str:
    return e.value(f"ptrtoint ptr {e.reach(address, space_of(i), ROW_BYTES, access)} to i64")


_SHAPES = {
    "m16n8k16.row.col.f32.f16.f16.f32": 0,
    "m16n8k16.row.col.f32.bf16.bf16.f32": 1,
    "m16n8k16.row.col.f16.f16.f16.f16": 2,
    "m16n8k8.row.col.f32.f16.f16.f32": 3,
    "m16n8k8.row.col.f32.bf16.bf16.f32": 4,
    "m16n8k8.row.col.f32.tf32.tf32.f32": 5,
    "m16n8k8.row.col.f16.f16.f16.f16": 6,
    "m16n8k4.row.col.f32.tf32.tf32.f32": 7,
    "m8n8k4.row.col.f64.f64.f64.f64": 8,
} | {
    f"{size}.row.col{clamp}.s32.{a}8.{b}8.s32": 16
    + kind
    + 2 * (a == "s")
    + 4 * (b == "s")
    + 8 * bool(clamp)
    for size, kind in (("m16n8k16", 0), ("m16n8k32", 1), ("m8n8k16", 16))
    for a in "su"
    for b in "su"
    for clamp in ("", ".satfinite")
}
"""The supported shapes, in the numbering of runtime/matrix.c."""


@instruction("mma", suspends=True)
def multiply_matrices(e: Emitter, i: Instruction) -> None:
    shape = _SHAPES[i.spelling.removeprefix("mma.sync.aligned.")]
    words = ["-1"] + ["0"] * 12
    for operand, first in zip(i.operands[1:4], (1, 5, 9), strict=True):
        for index, register in enumerate(elements(operand)):
            words[first + index] = _fragment(e, register, i.type)
    e.ask("matrix_multiply", shape, *words)
    kind = BITS[max(i.type.width, 32)]
    for index, register in enumerate(elements(i.operands[0])):
        e.write(register, e.answer(index, kind.width), kind)


def _fragment(e: Emitter, register: Operand | None, kind: PtxType) -> str:
    return e.read(register, kind) if kind.width == 64 else word(e, register)
