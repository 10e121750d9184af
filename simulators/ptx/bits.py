"""Logic, shifts and bit fields (ISA manual §9.7.1, §9.7.8) and the permutation of bytes."""

from __future__ import annotations

from .emitter import Emitter
from .integer import widened
from .program import Instruction, Operand
from .table import instruction
from .types import B32, U32


@instruction("and", "or", "xor")
def logic(e: Emitter, i: Instruction) -> None:
    kind = i.type
    first, second = e.read(i.operands[1], kind), e.read(i.operands[2], kind)
    e.write(i.operands[0], e.value(f"{i.name} {kind.llvm} {first}, {second}"), kind)


@instruction("not")
def invert(e: Emitter, i: Instruction) -> None:
    kind = i.type
    e.write(i.operands[0], e.value(f"xor {kind.llvm} {e.read(i.operands[1], kind)}, -1"), kind)


@instruction("cnot")
def is_zero(e: Emitter, i: Instruction) -> None:
    kind = i.type
    zero = e.value(f"icmp eq {kind.llvm} {e.read(i.operands[1], kind)}, 0")
    e.write(i.operands[0], e.value(f"zext i1 {zero} to {kind.llvm}"), kind)


@instruction("lop3")
def any_logic(e: Emitter, i: Instruction) -> None:
    inputs = [e.read(one, B32) for one in i.operands[1:4]]
    table = e.constant(i.operands[4])
    result = "0"
    for row in range(8):
        if not table >> row & 1:
            continue
        term = "-1"
        for bit, value in zip((4, 2, 1), inputs, strict=True):
            literal = value if row & bit else e.value(f"xor i32 {value}, -1")
            term = e.value(f"and i32 {term}, {literal}")
        result = e.value(f"or i32 {result}, {term}")
    e.write(i.operands[0], result, B32)


@instruction("shl", "shr")
def shift(e: Emitter, i: Instruction) -> None:
    """Amounts beyond the width shift everything out."""
    kind = i.type
    value, amount = e.read(i.operands[1], kind), e.read(i.operands[2], U32)
    operation = "shl" if i.name == "shl" else "ashr" if kind.is_signed else "lshr"
    e.write(i.operands[0], shifted(e, operation, value, amount, kind.width), kind)


def shifted(e: Emitter, operation: str, value: str, amount: str, width: int) -> str:
    """A shift by an i32 amount of any size."""
    beyond = e.value(f"icmp uge i32 {amount}, {width}")
    most = width - 1 if operation == "ashr" else 0
    safe = e.value(f"select i1 {beyond}, i32 {most}, i32 {amount}")
    by = e.resized(safe, 32, width, signed=False)
    result = e.value(f"{operation} i{width} {value}, {by}")
    if operation == "ashr":
        return result
    return e.value(f"select i1 {beyond}, i{width} 0, i{width} {result}")


@instruction("shf")
def funnel_shift(e: Emitter, i: Instruction) -> None:
    low, high, amount = (e.read(one, B32) for one in i.operands[1:4])
    pair = _pair(e, low, high)
    if i.has("wrap"):
        amount = e.value(f"and i32 {amount}, 31")
    else:
        amount = e.call("i32", "llvm.umin.i32", f"i32 {amount}", "i32 32")
    by = e.value(f"zext i32 {amount} to i64")
    if i.has("l"):
        moved = e.value(f"lshr i64 {e.value(f'shl i64 {pair}, {by}')}, 32")
    else:
        moved = e.value(f"lshr i64 {pair}, {by}")
    e.write(i.operands[0], e.value(f"trunc i64 {moved} to i32"), B32)


def _pair(e: Emitter, low: str, high: str) -> str:
    above = e.value(f"shl i64 {e.value(f'zext i32 {high} to i64')}, 32")
    return e.value(f"or i64 {above}, {e.value(f'zext i32 {low} to i64')}")


@instruction("popc", "clz")
def count_bits(e: Emitter, i: Instruction) -> None:
    kind = i.type
    value = f"{kind.llvm} {e.read(i.operands[1], kind)}"
    if i.name == "popc":
        result = e.call(kind.llvm, f"llvm.ctpop.{kind.llvm}", value)
    else:
        result = e.call(kind.llvm, f"llvm.ctlz.{kind.llvm}", value, "i1 false")
    e.write(i.operands[0], e.resized(result, kind.width, 32, signed=False), U32)


@instruction("brev")
def reverse_bits(e: Emitter, i: Instruction) -> None:
    kind = i.type
    value = e.read(i.operands[1], kind)
    name = f"llvm.bitreverse.{kind.llvm}"
    e.write(i.operands[0], e.call(kind.llvm, name, f"{kind.llvm} {value}"), kind)


@instruction("bfind")
def find_bit(e: Emitter, i: Instruction) -> None:
    kind = i.type
    value = e.read(i.operands[1], kind)
    if kind.is_signed:
        sign = e.value(f"ashr {kind.llvm} {value}, {kind.width - 1}")
        value = e.value(f"xor {kind.llvm} {value}, {sign}")
    zeros = e.call(kind.llvm, f"llvm.ctlz.{kind.llvm}", f"{kind.llvm} {value}", "i1 false")
    bit = zeros
    if not i.has("shiftamt"):
        bit = e.value(f"sub {kind.llvm} {kind.width - 1}, {zeros}")
    none = e.value(f"icmp eq {kind.llvm} {value}, 0")
    result = e.value(f"select i1 {none}, {kind.llvm} -1, {kind.llvm} {bit}")
    e.write(i.operands[0], e.resized(result, kind.width, 32, signed=False), U32)


@instruction("fns")
def find_nth_set(e: Emitter, i: Instruction) -> None:
    words = [f"i32 {e.read(one, B32)}" for one in i.operands[1:4]]
    e.write(i.operands[0], e.call("i32", "uptx_fns", *words), B32)


@instruction("bfe")
def extract_field(e: Emitter, i: Instruction) -> None:
    """A field that leaves the word is filled up with its sign, for signed types."""
    kind = i.type
    value = widened(e, e.read(i.operands[1], kind), kind, 128)
    start, length = (_byte(e, one) for one in i.operands[2:4])
    # The value has 128 bits, so clamping the start and the length is enough.
    start = e.call("i128", "llvm.umin.i128", f"i128 {start}", "i128 127")
    length = e.call("i128", "llvm.umin.i128", f"i128 {length}", "i128 64")
    moved = e.value(f"{'ashr' if kind.is_signed else 'lshr'} i128 {value}, {start}")
    gap = e.value(f"sub i128 127, {length}")
    raised = e.value(f"shl i128 {e.value(f'shl i128 {moved}, {gap}')}, 1")
    lowered = e.value(f"{'ashr' if kind.is_signed else 'lshr'} i128 {raised}, {gap}")
    lowered = e.value(f"{'ashr' if kind.is_signed else 'lshr'} i128 {lowered}, 1")
    e.write(i.operands[0], e.value(f"trunc i128 {lowered} to {kind.llvm}"), kind)


@instruction("bfi")
def insert_field(e: Emitter, i: Instruction) -> None:
    kind = i.type
    field, base = (
        e.resized(e.read(one, kind), kind.width, 128, signed=False) for one in i.operands[1:3]
    )
    start, length = (_byte(e, one) for one in i.operands[3:5])
    start = e.call("i128", "llvm.umin.i128", f"i128 {start}", "i128 64")
    length = e.call("i128", "llvm.umin.i128", f"i128 {length}", "i128 64")
    ones = e.value(f"sub i128 {e.value(f'shl i128 1, {length}')}, 1")
    mask = e.value(f"shl i128 {ones}, {start}")
    kept = e.value(f"and i128 {base}, {e.value(f'xor i128 {mask}, -1')}")
    put = e.value(f"and i128 {e.value(f'shl i128 {field}, {start}')}, {mask}")
    result = e.value(f"or i128 {kept}, {put}")
    e.write(i.operands[0], e.value(f"trunc i128 {result} to {kind.llvm}"), kind)


def _byte(e: Emitter, operand: Operand | None) -> str:
    low = e.value(f"and i32 {e.read(operand, U32)}, 255")
    return e.value(f"zext i32 {low} to i128")


@instruction("szext")
def extend_field(e: Emitter, i: Instruction) -> None:
    kind = i.type
    value, width = e.read(i.operands[1], kind), e.read(i.operands[2], U32)
    if i.has("wrap"):
        width = e.value(f"and i32 {width}, 31")
    else:
        width = e.call("i32", "llvm.umin.i32", f"i32 {width}", "i32 32")
    gap = e.value(f"sub i32 32, {width}")
    down = "ashr" if kind.is_signed else "lshr"
    raised = shifted(e, "shl", value, gap, 32)
    e.write(i.operands[0], shifted(e, down, raised, gap, 32), kind)


@instruction("bmsk")
def mask(e: Emitter, i: Instruction) -> None:
    start, length = e.read(i.operands[1], B32), e.read(i.operands[2], B32)
    if i.has("wrap"):
        start = e.value(f"and i32 {start}, 31")
        length = e.value(f"and i32 {length}, 31")
    start = e.call("i32", "llvm.umin.i32", f"i32 {start}", "i32 32")
    length = e.call("i32", "llvm.umin.i32", f"i32 {length}", "i32 32")
    wide_start, wide_length = (e.value(f"zext i32 {one} to i64") for one in (start, length))
    ones = e.value(f"sub i64 {e.value(f'shl i64 1, {wide_length}')}, 1")
    result = e.value(f"shl i64 {ones}, {wide_start}")
    e.write(i.operands[0], e.value(f"trunc i64 {result} to i32"), B32)


@instruction("prmt")
def permute_bytes(e: Emitter, i: Instruction) -> None:
    low, high, selector = (e.read(one, B32) for one in i.operands[1:4])
    pair = _pair(e, low, high)
    mode = i.one_of("f4e", "b4e", "rc8", "ecl", "ecr", "rc16")
    result = "0"
    for index in range(4):
        if mode:
            picked = _index_of_mode(e, mode, index, selector)
            copies_sign = "false"
        else:
            nibble = e.value(f"lshr i32 {selector}, {4 * index}")
            picked = e.value(f"and i32 {nibble}, 7")
            copies_sign = e.value(f"icmp ne i32 {e.value(f'and i32 {nibble}, 8')}, 0")
        by = e.value(f"zext i32 {e.value(f'mul i32 {picked}, 8')} to i64")
        byte = e.value(f"trunc i64 {e.value(f'lshr i64 {pair}, {by}')} to i8")
        sign = e.value(f"ashr i8 {byte}, 7")
        byte = e.value(f"select i1 {copies_sign}, i8 {sign}, i8 {byte}")
        moved = e.value(f"shl i32 {e.value(f'zext i8 {byte} to i32')}, {8 * index}")
        result = e.value(f"or i32 {result}, {moved}")
    e.write(i.operands[0], result, B32)


def _index_of_mode(e: Emitter, mode: str, index: int, selector: str) -> str:
    start = e.value(f"and i32 {selector}, 3")
    if mode == "f4e":
        return e.value(f"add i32 {start}, {index}")
    if mode == "b4e":
        return e.value(f"and i32 {e.value(f'sub i32 {start}, {index}')}, 7")
    if mode == "rc8":
        return start
    if mode == "rc16":
        even = e.value(f"and i32 {selector}, 1")
        return e.value(f"add i32 {e.value(f'shl i32 {even}, 1')}, {index % 2}")
    limit = "umax" if mode == "ecl" else "umin"
    return e.call("i32", f"llvm.{limit}.i32", f"i32 {start}", f"i32 {index}")
