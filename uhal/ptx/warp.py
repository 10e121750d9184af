"""Threads: indices, barriers, and operations of a warp's 32 lanes."""

from __future__ import annotations

from collections.abc import Sequence

from uhal.ptx.builder import braces, current, refuse, refuse_value
from uhal.ptx.conversions import bits_as
from uhal.ptx.instructions import MMA_REGISTERS, SPECIAL, find
from uhal.ptx.memory import Pointer, require
from uhal.ptx.types import NUMBERS, SHORTS, TYPES, WORDS, Type, f32, f64, i32, pred, u16, u32
from uhal.ptx.values import Operand, Value, Variable, emitted, emitted_list, expect, one_of, operand

FULL = 0xFFFFFFFF
"""The mask of all 32 lanes."""
WARP = 32


def special(name: str) -> Value:
    """Return a predefined register by PTX's name, such as `laneid` or `clock64`."""
    builder = current("special")
    kind = SPECIAL.get(f"%{name}")
    if kind is None:
        known = ", ".join(one[1:] for one in SPECIAL)
        refuse(f"special: expected a predefined register, got {name!r}. There are {known}.")
    return emitted(builder, TYPES[kind], f"mov.{kind}", f"%{name}")


def thread_index(axis: str = "x") -> Value:
    """Return the thread's index in its block."""
    return special(f"tid.{axis}")


def block_index(axis: str = "x") -> Value:
    """Return the block's index in the grid."""
    return special(f"ctaid.{axis}")


def block_size(axis: str = "x") -> Value:
    """Return the number of threads of a block."""
    return special(f"ntid.{axis}")


def grid_size(axis: str = "x") -> Value:
    """Return the number of blocks of the grid."""
    return special(f"nctaid.{axis}")


def global_index(axis: str = "x") -> Value:
    """Return the thread's index in the whole grid, `block_index * block_size + thread_index`."""
    return block_index(axis) * block_size(axis) + thread_index(axis)


def global_size(axis: str = "x") -> Value:
    """Return the number of threads of the whole grid."""
    return grid_size(axis) * block_size(axis)


def lane_index() -> Value:
    """Return the thread's lane in its warp, 0 … 31."""
    return special("laneid")


# -- barriers --------------------------------------------------------------------------------------


def barrier(number: int = 0, threads: int | None = None) -> None:
    """Wait for all threads of the block, or for `threads` of them at a numbered barrier.

    `threads` is a multiple of 32. Earlier writes of these threads to memory are visible afterwards.
    """
    current("barrier").emit("bar.sync", *_barrier(number, threads, "barrier"))


def barrier_arrive(number: int, threads: int) -> None:
    """Count at a barrier without waiting; other threads wait with `barrier`."""
    current("barrier_arrive").emit("bar.arrive", *_barrier(number, threads, "barrier_arrive"))


def _barrier(number: int, threads: int | None, operation: str) -> list[str]:
    if number not in range(16):
        refuse_value(f"{operation}: expected a number of 0 … 15, got {number!r}.")
    if threads is not None and threads not in range(WARP, 1025, WARP):
        refuse_value(f"{operation}: expected a multiple of 32 up to 1024, got {threads!r}.")
    return [str(number)] if threads is None else [str(number), str(threads)]


def warp_barrier(mask: Operand = FULL) -> None:
    """Wait for the lanes of the mask."""
    current("warp_barrier").emit("bar.warp.sync", operand(mask, u32, "warp_barrier"))


def fence(scope: str = "gpu") -> None:
    """Order this thread's earlier before its later accesses, for `cta`, `gpu` or `sys`."""
    one_of(scope, ("cta", "gpu", "sys"), "fence")
    current("fence").emit(f"fence.acq_rel.{scope}")


# -- shuffles --------------------------------------------------------------------------------------


def shuffle(
    mode: str, value: Value, lane: Operand, width: int = WARP, mask: Operand = FULL
) -> Value:
    """Return another lane's value: `up`, `down`, `bfly` (lane XOR) or `idx`.

    Groups have `width` neighbouring lanes. If the source is outside the group, a lane keeps its own
    value. All lanes of the mask take part.
    """
    one_of(mode, ("up", "down", "bfly", "idx"), "shuffle")
    one_of(width, (1, 2, 4, 8, 16, 32), "shuffle, width")
    builder = expect(value, "shuffle", "a number", NUMBERS, "Use `vote`.")
    if value.type.bits == 16:
        wide = shuffle(mode, u32(bits_as(value, u16)), lane, width, mask)
        return bits_as(u16(wide), value.type)
    if value.type.bits == 64:
        halves = emitted_list(builder, u32, 2, "mov.b64", value.text)
        moved = [shuffle(mode, half, lane, width, mask).text for half in halves]
        return emitted(builder, value.type, "mov.b64", braces(moved))
    clamp = (WARP - width) << 8 | (0 if mode == "up" else 31)
    kind = i32 if isinstance(lane, Value) and lane.type is i32 else u32
    texts = [operand(lane, kind, "shuffle"), str(clamp), operand(mask, u32, "shuffle")]
    return emitted(builder, value.type, f"shfl.sync.{mode}.b32", value.text, *texts)


def vote(mode: str, condition: Value, mask: Operand = FULL) -> Value:
    """Vote on a predicate: `all`, `any` or `uni`; `ballot` gives a bit for each lane."""
    one_of(mode, ("all", "any", "uni", "ballot"), "vote")
    of = u32 if mode == "ballot" else pred
    texts = operand(condition, pred, "vote"), operand(mask, u32, "vote")
    return emitted(current("vote"), of, f"vote.sync.{mode}.{of.register}", *texts)


def match_any(value: Value, mask: Operand = FULL) -> Value:
    """Return the mask of lanes that have this lane's value of 32 or 64 bits."""
    builder = expect(value, "match_any", "32 or 64 bits", (*WORDS, f32, f64))
    spelling = f"match.any.sync.{value.type.register}"
    return emitted(builder, u32, spelling, value.text, operand(mask, u32, "match_any"))


def active_mask() -> Value:
    """Return the mask of lanes that run together at this point."""
    return emitted(current("active_mask"), u32, "activemask.b32")


def warp_reduce(operation: str, value: Value, mask: Operand = FULL) -> Value:
    """Return the result of all lanes of the mask, in every lane: `add min max and or xor`.

    This is one instruction for 32-bit integers, from sm_80 on; `warp_sum` and similar functions run
    everywhere.
    """
    one_of(operation, ("add", "min", "max", "and", "or", "xor"), "warp_reduce")
    builder = expect(value, "warp_reduce", "u32 or i32", (u32, i32), "Use `shuffle`.")
    kind = value.type.register if operation in ("and", "or", "xor") else value.type.ptx
    texts = value.text, operand(mask, u32, "warp_reduce")
    return emitted(builder, value.type, f"redux.sync.{operation}.{kind}", *texts)


# -- matrices --------------------------------------------------------------------------------------


def load_matrices(row: Pointer, count: int = 4, transposed: bool = False) -> tuple[Value, ...]:
    """Load `count` 8×8 matrices of 16-bit elements from shared memory, one register each.

    Lane i gives the address of row i: lanes 0 … 15 for two matrices, 0 … 7 for one.
    """
    builder = current("load_matrices")
    require(row, "load_matrices", "shared")
    if row.of.bits != 16:
        refuse(f"load_matrices: expected elements of 16 bits, got {row.of}.")
    one_of(count, (1, 2, 4), "load_matrices")
    spelling = f"ldmatrix.sync.aligned.m8n8.x{count}{'.trans' * transposed}.shared.b16"
    return emitted_list(builder, u32, count, spelling, row.address())


def multiply_matrices(
    shape: str,
    kinds: str,
    a: Sequence[Value],
    b: Sequence[Value],
    c: Sequence[Value],
    into: Sequence[Variable] = (),
) -> tuple[Value, ...]:
    """Return D = A × B + C of a warp's tensor core, as registers of this lane.

    `shape` is for example `m16n8k16`, `kinds` the types of D, A, B and C: `f32.f16.f16.f32`. The
    manual lists the elements that each lane holds (9.7.14 mma). Variables given as `into` receive
    D.
    """
    builder = current("multiply_matrices")
    spelling = f"mma.sync.aligned.{shape}.row.col.{kinds}"
    if find(spelling) is None:
        hint = "The reference of instructions lists them under mma."
        refuse(f"multiply_matrices: expected a shape that PTX has, got {shape} {kinds}. {hint}")
    result, factor = kinds.split(".")[:2]
    counts = MMA_REGISTERS.get(f"{shape}.{result}.{factor}") or MMA_REGISTERS[f"{shape}.{result}"]
    of = {"f32": f32, "f64": f64, "s32": i32}.get(result, u32)
    texts = []
    for name, given, count in zip("ABC", (a, b, c), counts[1:], strict=True):
        if len(given) != count:
            refuse(f"multiply_matrices: expected {count} registers of {name}, got {len(given)}.")
        kind = of if name == "C" else (f64 if result == "f64" else u32)
        texts.append(braces(operand(one, kind, f"multiply_matrices, {name}") for one in given))
    if not into:
        return emitted_list(builder, of, counts[0], spelling, *texts)
    builder.emit(spelling, braces(operand(one, of, "multiply_matrices, D") for one in into), *texts)
    return tuple(into)


def pack(first: Value, second: Value) -> Value:
    """Return two 16-bit values as one of 32 bits, the first in the lower half."""
    builder = expect(first, "pack", "a value of 16 bits", SHORTS)
    texts = first.text, operand(second, first.type, "pack")
    return emitted(builder, u32, "mov.b32", braces(texts))


def unpack(word: Value, of: Type) -> tuple[Value, Value]:
    """Return the lower and the upper half of a value of 32 bits, as values of a 16-bit type."""
    builder = expect(word, "unpack", "a value of 32 bits", (i32, u32, f32))
    if of.bits != 16:
        refuse(f"unpack: expected a type of 16 bits, got {of}.")
    low, high = emitted_list(builder, of, 2, "mov.b32", word.text)
    return low, high
