"""Threads: their places, barriers, and operations of a warp's 32 lanes."""

from __future__ import annotations

from collections.abc import Sequence

from uhal.errors import ArgumentValueError
from uhal.ptx.builder import current, refuse
from uhal.ptx.conversions import bits_as
from uhal.ptx.instructions import MMA_REGISTERS, SPECIAL, find
from uhal.ptx.memory import Pointer, require
from uhal.ptx.types import TYPES, Type, f32, f64, i32, pred, u32
from uhal.ptx.values import Operand, Value, Variable, check, describe, emitted, operand, pair

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
    made = builder.register(TYPES[kind])
    builder.emit(f"mov.{kind}", made, f"%{name}")
    return Value(builder, TYPES[kind], made)


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
    """Wait for all threads of the block, or at a barrier of a number for that many threads.

    `threads` is a multiple of 32. What they wrote to memory before is seen behind it.
    """
    current("barrier").emit("bar.sync", *_barrier(number, threads, "barrier"))


def barrier_arrive(number: int, threads: int) -> None:
    """Count at a barrier without waiting; others wait there with `barrier`."""
    current("barrier_arrive").emit("bar.arrive", *_barrier(number, threads, "barrier_arrive"))


def _barrier(number: int, threads: int | None, operation: str) -> list[str]:
    if not isinstance(number, int) or not 0 <= number < 16:
        refuse(
            f"{operation}: expected a number of 0 … 15, got {describe(number)}.", ArgumentValueError
        )
    if threads is None:
        return [str(number)]
    if not isinstance(threads, int) or threads % WARP or not 0 < threads <= 1024:
        refuse(
            f"{operation}: expected a multiple of 32 threads up to 1024, got {describe(threads)}.",
            ArgumentValueError,
        )
    return [str(number), str(threads)]


def warp_barrier(mask: Operand = FULL) -> None:
    """Wait for the lanes of the mask."""
    current("warp_barrier").emit("bar.warp.sync", operand(mask, u32, "warp_barrier"))


def fence(scope: str = "gpu") -> None:
    """Order this thread's accesses before it ahead of those behind it: `cta`, `gpu` or `sys`."""
    if find(f"fence.acq_rel.{scope}") is None:
        refuse(f"fence: expected cta, gpu or sys, got {scope!r}.", ArgumentValueError)
    current("fence").emit(f"fence.acq_rel.{scope}")


# -- shuffles --------------------------------------------------------------------------------------


def shuffle(
    mode: str, value: Value, lane: Operand, width: int = WARP, mask: Operand = FULL
) -> Value:
    """Return another lane's value: `up`, `down`, `bfly` (lane XOR) or `idx`.

    Lanes of `width` neighbours form a group; a lane outside the group gives one's own value. All
    lanes of the mask take part.
    """
    builder = current("shuffle")
    if mode not in ("up", "down", "bfly", "idx"):
        refuse(f"shuffle: expected up, down, bfly or idx, got {mode!r}.", ArgumentValueError)
    if width not in (1, 2, 4, 8, 16, 32):
        refuse(f"shuffle: expected a width of 1, 2, 4, … 32, got {width!r}.", ArgumentValueError)
    if not isinstance(value, Value) or value.type is pred:
        refuse(f"shuffle: expected a number, got {describe(value)}. Use `vote`.")
    check(value, "shuffle")
    if value.type.bits == 16:
        short = bits_as(value, TYPES["u16"])
        return bits_as(TYPES["u16"](shuffle(mode, u32(short), lane, width, mask)), value.type)
    clamp = (WARP - width) << 8 | (0 if mode == "up" else 31)
    kind = i32 if isinstance(lane, Value) and lane.type is i32 else u32
    texts = [operand(lane, kind, "shuffle"), str(clamp), operand(mask, u32, "shuffle")]
    halves = [value.text]
    if value.type.bits == 64:
        halves = [builder.register(u32) for _ in range(2)]
        builder.emit("mov.b64", f"{{{', '.join(halves)}}}", value.text)
    moved = [builder.register(u32) for _ in halves]
    for target, source in zip(moved, halves, strict=True):
        builder.emit(f"shfl.sync.{mode}.b32", target, source, *texts)
    if len(moved) == 1:
        return Value(builder, value.type, moved[0])
    return emitted(builder, value.type, "mov.b64", f"{{{', '.join(moved)}}}")


def vote(mode: str, condition: Value, mask: Operand = FULL) -> Value:
    """Return whether `all` or `any` lanes hold, or `uni`form ones; `ballot` gives a bit a lane."""
    builder = current("vote")
    if mode not in ("all", "any", "uni", "ballot"):
        refuse(f"vote: expected all, any, uni or ballot, got {mode!r}.", ArgumentValueError)
    of = u32 if mode == "ballot" else pred
    made = builder.register(of)
    spelling = f"vote.sync.{mode}.{of.register}"
    truth = operand(condition, pred, "vote")
    builder.emit(spelling, made, truth, operand(mask, u32, "vote"))
    return Value(builder, of, made)


def match_any(value: Value, mask: Operand = FULL) -> Value:
    """Return the mask of lanes that have this lane's value of 32 or 64 bits."""
    builder = check(value, "match_any")
    if value.type.bits not in (32, 64):
        refuse(f"match_any: expected 32 or 64 bits, got {value.type}. Convert it.")
    made = builder.register(u32)
    spelling = f"match.any.sync.{value.type.register}"
    builder.emit(spelling, made, value.text, operand(mask, u32, "match_any"))
    return Value(builder, u32, made)


def active_mask() -> Value:
    """Return the mask of lanes that run together now."""
    builder = current("active_mask")
    return emitted(builder, u32, "activemask.b32")


def warp_reduce(operation: str, value: Value, mask: Operand = FULL) -> Value:
    """Return the result of all lanes of the mask, in every lane: `add min max and or xor`.

    For 32-bit integers it is one instruction from sm_80 on; `warp_sum` and its kind run everywhere.
    """
    builder = check(value, "warp_reduce")
    kind = value.type.register if operation in ("and", "or", "xor") else value.type.ptx
    spelling = f"redux.sync.{operation}.{kind}"
    if find(spelling) is None:
        refuse(
            f"warp_reduce: expected a sum, an extreme or logic of u32 or i32, got {operation!r} "
            f"of {value.type}. Use `shuffle`."
        )
    return emitted(builder, value.type, spelling, value.text, operand(mask, u32, "warp_reduce"))


# -- matrices --------------------------------------------------------------------------------------


def load_matrices(row: Pointer, count: int = 4, transposed: bool = False) -> tuple[Value, ...]:
    """Load `count` 8×8 matrices of 16-bit elements from shared memory, one register each.

    Lane i gives the address of row i; of two matrices the lanes 0 … 15, of one 0 … 7.
    """
    builder = current("load_matrices")
    require(row, "load_matrices", "shared")
    if row.of.bits != 16:
        refuse(f"load_matrices: expected elements of 16 bits, got {row.of}.")
    if count not in (1, 2, 4):
        refuse(f"load_matrices: expected 1, 2 or 4, got {count!r}.", ArgumentValueError)
    made = [builder.register(u32) for _ in range(count)]
    trans = ".trans" if transposed else ""
    spelling = f"ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16"
    builder.emit(spelling, f"{{{', '.join(made)}}}", row.address())
    return tuple(Value(builder, u32, one) for one in made)


def multiply_matrices(
    shape: str,
    kinds: str,
    a: Sequence[Value],
    b: Sequence[Value],
    c: Sequence[Value],
    into: Sequence[Variable] = (),
) -> tuple[Value, ...]:
    """Return D = A × B + C of a warp's tensor core, as registers of this lane.

    `shape` is as `m16n8k16`, `kinds` the types of D, A, B and C: `f32.f16.f16.f32`. Which elements
    a lane holds, the manual says (9.7.14 mma). Variables given as `into` receive D.
    """
    builder = current("multiply_matrices")
    spelling = f"mma.sync.aligned.{shape}.row.col.{kinds}"
    if find(spelling) is None:
        refuse(
            f"multiply_matrices: expected a shape and types that PTX has, got {shape} {kinds}. "
            "The reference of instructions lists them under mma."
        )
    result, factor = kinds.split(".")[:2]
    counts = MMA_REGISTERS.get(f"{shape}.{result}.{factor}") or MMA_REGISTERS[f"{shape}.{result}"]
    of = {"f32": f32, "f64": f64, "s32": i32}.get(result, u32)
    texts = []
    for name, given, count in zip("ABC", (a, b, c), counts[1:], strict=True):
        if len(given) != count:
            refuse(f"multiply_matrices: expected {count} registers of {name}, got {len(given)}.")
        kind = of if name == "C" else (f64 if result == "f64" else u32)
        parts = [operand(one, kind, f"multiply_matrices, {name}") for one in given]
        texts.append(f"{{{', '.join(parts)}}}")
    made = [operand(one, of, "multiply_matrices, D") for one in into]
    made = made or [builder.register(of) for _ in range(counts[0])]
    builder.emit(spelling, f"{{{', '.join(made)}}}", *texts)
    return tuple(Value(builder, of, one) for one in made)


def pack(first: Value, second: Value) -> Value:
    """Return two 16-bit values as one of 32 bits, the first in the lower half."""
    a, b = pair("pack", first, second)
    if a.type.bits != 16:
        refuse(f"pack: expected two values of 16 bits, got {a.type}. Convert them.")
    return emitted(a.builder, u32, "mov.b32", f"{{{a.text}, {b.text}}}")


def unpack(word: Value, of: Type) -> tuple[Value, Value]:
    """Return the lower and the upper half of a value of 32 bits, as values of a 16-bit type."""
    builder = check(word, "unpack")
    if word.type.bits != 32 or of.bits != 16:
        refuse(f"unpack: expected 32 bits and a type of 16, got {word.type} and {of}.")
    made = [builder.register(of) for _ in range(2)]
    builder.emit("mov.b32", f"{{{', '.join(made)}}}", word.text)
    return Value(builder, of, made[0]), Value(builder, of, made[1])
