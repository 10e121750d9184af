"""Matrices of a warp whose fragments are opaque: wmma (ISA manual §9.7.14.4).

The manual does not say which elements a lane holds. Here lanes get elements in turn, in the order
of the matrix in memory: A and B by their layout, C and D by rows. If the registers of a warp hold
more elements than a matrix has, as with f16, the rest are copies. runtime/wmma.c multiplies.
"""

from __future__ import annotations

from dataclasses import dataclass

from .emitter import Emitter
from .memory import elements, space_of
from .program import Instruction, Operand
from .table import instruction
from .types import B32, BITS, U32

_EXTENTS = {
    "m16n16k16": (16, 16, 16),
    "m8n32k16": (8, 32, 16),
    "m32n8k16": (32, 8, 16),
    "m16n16k8": (16, 16, 8),
    "m8n8k4": (8, 8, 4),
    "m8n8k32": (8, 8, 32),
    "m8n8k128": (8, 8, 128),
}
_SHAPES = tuple(_EXTENTS)
_KINDS = ("f16", "bf16", "tf32", "f32", "f64", "s8", "u8", "s4", "u4", "b1", "s32")
"""Kinds of elements, in the numbering of runtime/wmma.c."""
_BITS = {
    "f16": 16,
    "bf16": 16,
    "tf32": 32,
    "f32": 32,
    "f64": 64,
    "s8": 8,
    "u8": 8,
    "s4": 4,
    "u4": 4,
    "b1": 1,
    "s32": 32,
}


@dataclass(frozen=True)
class _Matrix:
    """A matrix in memory: its lines of neighbouring elements, and its fragments."""

    lines: int
    length: int
    bits: int
    per_lane: int

    @property
    def elements(self) -> int:
        """Elements of the matrix."""
        return self.lines * self.length


def _extents(i: Instruction, which: str) -> tuple[int, int]:
    rows, columns, depth = _EXTENTS[i.one_of(*_SHAPES)]
    return {"a": (rows, depth), "b": (depth, columns)}.get(which, (rows, columns))


@instruction("wmma.load", suspends=True)
def load_fragment(e: Emitter, i: Instruction) -> None:
    which, kind = i.modifiers[1], i.modifiers[-1]
    registers = elements(i.operands[0])
    e.ask("fragment", 0, "-1")
    for register, word in zip(registers, _loaded(e, i, which, kind, len(registers)), strict=True):
        e.write(register, word, BITS[max(_BITS[kind], 32)])


def _loaded(e: Emitter, i: Instruction, which: str, kind: str, registers: int) -> list[str]:
    matrix = _matrix(i, which, kind, registers)
    stride = _stride(e, i, i.operands[2:], matrix)
    width = max(matrix.bits, 32)
    together = width // matrix.bits
    # Elements of a register of C are neighbours in memory only if C lies by rows.
    step = together if which in "ab" or i.has("row") else 1
    words = []
    for register in range(registers):
        whole = "0"
        for at_part in range(0, together, step):
            size = step * matrix.bits // 8
            index = register * together + at_part
            distance = _distance(e, i, matrix, index, stride)
            at = e.reach_moved(i.operands[1], distance, space_of(i), size, "load")
            part = e.value(f"load i{8 * size}, ptr {at}, align {size}")
            part = e.resized(part, 8 * size, width, signed=False)
            moved = e.value(f"shl i{width} {part}, {at_part * matrix.bits}")
            whole = e.value(f"or i{width} {whole}, {moved}")
        words.append(whole)
    return words


@instruction("wmma.store", suspends=True)
def store_fragment(e: Emitter, i: Instruction) -> None:
    registers = elements(i.operands[1])
    e.ask("fragment", 1, "-1")
    matrix = _matrix(i, "d", i.modifiers[-1], len(registers))
    stride = _stride(e, i, i.operands[2:], matrix)
    width = max(matrix.bits, 32)
    size = matrix.bits // 8
    for index in range(matrix.per_lane):
        register, at_part = divmod(index, width // matrix.bits)
        word = e.read(registers[register], BITS[width])
        part = e.value(f"lshr i{width} {word}, {at_part * matrix.bits}")
        part = e.resized(part, width, matrix.bits, signed=False)
        distance = _distance(e, i, matrix, index, stride)
        at = e.reach_moved(i.operands[0], distance, space_of(i), size, "store", watched_after=True)
        e.line(f"store i{matrix.bits} {part}, ptr {at}, align {size}")
        e.watch_stores()


def _matrix(i: Instruction, which: str, kind: str, registers: int) -> _Matrix:
    rows, columns = _extents(i, which)
    bits = _BITS[kind]
    per_lane = registers * (max(bits, 32) // bits)
    if per_lane * 32 < rows * columns or per_lane * 32 % (rows * columns):
        raise ValueError(f"{registers} registers do not hold a fragment")
    if which in "ab" and i.has("col"):
        rows, columns = columns, rows
    return _Matrix(rows, columns, bits, per_lane)


def _stride(e: Emitter, i: Instruction, given: tuple[Operand | None, ...], matrix: _Matrix) -> str:
    """Elements from one row, or column, to the next in memory, as an i64."""
    if given:
        return e.value(f"zext i32 {e.read(given[0], U32)} to i64")
    return str(matrix.length if _is_by_lines(i) else matrix.lines)


def _is_by_lines(i: Instruction) -> bool:
    """Whether the order of the elements in lanes is the order in memory."""
    return (i.modifiers[0] == "load" and i.modifiers[1] in "ab") or i.has("row")


def _distance(e: Emitter, i: Instruction, matrix: _Matrix, index: int, stride: str) -> str:
    """Bytes from the start of the matrix in memory to an element of this lane's, as an i64."""
    lane = e.value(f"zext i32 {e.special('%laneid', 32)} to i64")
    first = e.value(f"mul i64 {lane}, {matrix.per_lane}")
    dealt = e.value(f"and i64 {e.value(f'add i64 {first}, {index}')}, {matrix.elements - 1}")
    line = e.value(f"lshr i64 {dealt}, {matrix.length.bit_length() - 1}")
    along = e.value(f"and i64 {dealt}, {matrix.length - 1}")
    if not _is_by_lines(i):
        line, along = along, line
    flat = e.value(f"add i64 {e.value(f'mul i64 {line}, {stride}')}, {along}")
    return e.value(f"lshr i64 {e.value(f'mul i64 {flat}, {matrix.bits}')}, 3")


@instruction("wmma.mma", suspends=True)
def multiply(e: Emitter, i: Instruction) -> None:
    kinds = [one for one in i.modifiers if one in _KINDS]
    total, first, second, summand = kinds if len(kinds) == 4 else (kinds[0], "f16", "f16", kinds[1])
    layouts = [one for one in i.modifiers if one in ("row", "col")]
    operation = _SHAPES.index(i.one_of(*_SHAPES))
    for number, kind in enumerate((first, second, summand, total), 1):
        operation |= _KINDS.index(kind) << 4 * number
    for number, flag in enumerate(
        (layouts[0] == "col", layouts[1] == "col", i.has("satfinite"), i.has("and"))
    ):
        operation |= int(flag) << (20 + number)
    operation |= ("", "rz", "rm", "rp").index(i.one_of("rz", "rm", "rp")) << 24
    words = ["-1"] + ["0"] * 12
    for start, operand, kind in zip(
        (1, 5, 9), i.operands[1:4], (first, second, summand), strict=True
    ):
        for index, word in enumerate(_packed(e, elements(operand), _BITS[kind])):
            words[start + index] = word
    e.ask("wmma", operation, *words)
    for index, register in enumerate(elements(i.operands[0])):
        if _BITS[total] == 64:
            e.write(register, e.answer(index, 64), BITS[64])
        else:
            pair = e.answer(index // 2, 64)
            moved = e.value(f"lshr i64 {pair}, {32 * (index % 2)}")
            e.write(register, e.resized(moved, 64, 32, signed=False), B32)


def _packed(e: Emitter, registers: tuple[Operand | None, ...], bits: int) -> list[str]:
    """Pack registers into words of a request, two 32-bit registers per word."""
    if bits == 64:
        return [e.read(one, BITS[64]) for one in registers]
    words = []
    for index in range(0, len(registers), 2):
        word = "0"
        for at_part, register in enumerate(registers[index : index + 2]):
            wide = e.value(f"zext i32 {e.read(register, B32)} to i64")
            word = e.value(f"or i64 {word}, {e.value(f'shl i64 {wide}, {32 * at_part}')}")
        words.append(word)
    return words
