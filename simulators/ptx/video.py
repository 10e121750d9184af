"""Video instructions: arithmetic on bytes and halves of 32-bit registers (ISA manual §9.7.18).

Scalar instructions take one part of each operand, compute without loss, and write a word or merge
the result into a part of a third operand. Names ending in 2 or 4 do the same for halves and bytes
side by side. The parts are worked on as i64, where no sum or difference of two 32-bit values
overflows; `vmad` multiplies in i128.
"""

from __future__ import annotations

from .emitter import Emitter
from .errors import PtxSyntaxError
from .program import Instruction, Minus, Operand, Part
from .table import instruction
from .types import B32, S32, U32, PtxType


def _part_of(selector: str) -> tuple[int, int]:
    """First bit and width in bits of a part such as `b3` or `h0`."""
    width = {"b": 8, "h": 16}.get(selector[:1], 0)
    if not width or not selector[1:].isdigit() or int(selector[1:]) * width >= 32:
        raise ValueError(f"there is no part .{selector}")
    return int(selector[1:]) * width, width


def _cut(e: Emitter, word: str, at: int, width: int, *, signed: bool) -> str:
    """Bits of an i32, extended to an i64."""
    raised = e.value(f"shl i32 {word}, {32 - width - at}") if width + at < 32 else word
    if width < 32:
        raised = e.value(f"{'ashr' if signed else 'lshr'} i32 {raised}, {32 - width}")
    return e.resized(raised, 32, 64, signed=signed)


def _taken(e: Emitter, operand: Operand | None, kind: PtxType) -> str:
    """A scalar operand as an i64: the whole operand, or the selected part."""
    if isinstance(operand, Part):
        at, width = _part_of(operand.selector)
        return _cut(e, e.read(operand.register, B32), at, width, signed=kind.is_signed)
    return _cut(e, e.read(operand, B32), 0, 32, signed=kind.is_signed)


def _clamped(e: Emitter, value: str, width: int, kind: PtxType, llvm: str = "i64") -> str:
    """Within the range of a part of that width."""
    low = -(1 << (width - 1)) if kind.is_signed else 0
    high = (1 << (width - 1 if kind.is_signed else width)) - 1
    raised = e.call(llvm, f"llvm.smax.{llvm}", f"{llvm} {value}", f"{llvm} {low}")
    return e.call(llvm, f"llvm.smin.{llvm}", f"{llvm} {raised}", f"{llvm} {high}")


def _computed(e: Emitter, i: Instruction, operation: str, first: str, second: str) -> str:
    """Result of an operation on two i64."""
    if operation == "set":
        compare = i.one_of("eq", "ne", "lt", "le", "gt", "ge")
        sign = "" if compare in ("eq", "ne") else "s"
        return e.value(f"zext i1 {e.value(f'icmp {sign}{compare} i64 {first}, {second}')} to i64")
    if operation in ("add", "sub"):
        return e.value(f"{operation} i64 {first}, {second}")
    if operation in ("min", "max"):
        return e.call("i64", f"llvm.s{operation}.i64", f"i64 {first}", f"i64 {second}")
    if operation == "absdiff":
        distance = e.value(f"sub i64 {first}, {second}")
        return e.call("i64", "llvm.abs.i64", f"i64 {distance}", "i1 false")
    # The average rounds up, and towards zero if negative.
    total = e.value(f"add i64 {first}, {second}")
    positive = e.value(f"icmp sge i64 {total}, 0")
    raised = e.value(f"add i64 {total}, {e.value(f'zext i1 {positive} to i64')}")
    return e.value(f"ashr i64 {raised}, 1")


# -- one value -------------------------------------------------------------------------------------


@instruction("video")
def scalar(e: Emitter, i: Instruction) -> None:
    result, first, second = i.types if i.name != "vset" else (B32, *i.types)
    value = _computed(
        e, i, i.name[1:], _taken(e, i.operands[1], first), _taken(e, i.operands[2], second)
    )
    _finish(e, i, value, result)


@instruction("video.shift")
def scalar_shift(e: Emitter, i: Instruction) -> None:
    result, first, second = i.types
    value, amount = _taken(e, i.operands[1], first), _taken(e, i.operands[2], second)
    if i.has("wrap"):
        amount = e.value(f"and i64 {amount}, 31")
    else:
        amount = e.call("i64", "llvm.umin.i64", f"i64 {amount}", "i64 32")
    if i.name == "vshr":
        _finish(e, i, e.value(f"ashr i64 {value}, {amount}"), result)
        return
    # Up to 64 bits are significant, and the clamp must see the sign.
    wide = e.resized(value, 64, 128, signed=True)
    moved = e.value(f"shl i128 {wide}, {e.resized(amount, 64, 128, signed=False)}")
    if i.has("sat"):
        target = i.operands[0]
        width = _part_of(target.selector)[1] if isinstance(target, Part) else 32
        moved = _clamped(e, moved, width, result, "i128")
    _finish(e, i, e.value(f"trunc i128 {moved} to i64"), result)


def _finish(e: Emitter, i: Instruction, value: str, kind: PtxType) -> None:
    """Clamp a result, then combine it with the third operand or merge it into this operand."""
    target = i.operands[0]
    at, width = _part_of(target.selector) if isinstance(target, Part) else (0, 32)
    if i.has("sat"):
        value = _clamped(e, value, width, kind)
    word = e.value(f"trunc i64 {value} to i32")
    if isinstance(target, Part):
        e.write(target.register, _merged(e, word, e.read(i.operands[3], B32), at, width), B32)
        return
    second = _second_operation(i)
    if second:
        third = e.read(i.operands[3], B32)
        if second == "add":
            word = e.value(f"add i32 {word}, {third}")
        else:
            name = f"llvm.{'s' if kind.is_signed else 'u'}{second}.i32"
            word = e.call("i32", name, f"i32 {word}", f"i32 {third}")
    e.write(target, word, B32)


def _second_operation(i: Instruction) -> str:
    last = i.modifiers[-1]
    return last if last in ("add", "min", "max") else ""


def _merged(e: Emitter, word: str, third: str, at: int, width: int) -> str:
    """The third operand with one part replaced."""
    mask = ((1 << width) - 1) << at
    kept = e.value(f"and i32 {third}, {~mask & 0xFFFFFFFF}")
    moved = e.value(f"and i32 {e.value(f'shl i32 {word}, {at}')}, {mask}")
    return e.value(f"or i32 {kept}, {moved}")


@instruction("vmad")
def multiply_add(e: Emitter, i: Instruction) -> None:
    """The summand is signed if the product is: not if both factors are unsigned."""
    _, first, second = i.types
    negated = isinstance(i.operands[1], Minus) != isinstance(i.operands[2], Minus)
    signed = first.is_signed or second.is_signed or negated
    factors = []
    for operand, kind in zip(i.operands[1:3], (first, second), strict=True):
        plain = operand.operand if isinstance(operand, Minus) else operand
        factors.append(e.resized(_taken(e, plain, kind), 64, 128, signed=True))
    total = e.value(f"mul i128 {factors[0]}, {factors[1]}")
    if negated:
        total = e.value(f"sub i128 0, {total}")
    third = i.operands[3]
    plain = third.operand if isinstance(third, Minus) else third
    summand = e.resized(e.read(plain, B32), 32, 128, signed=signed)
    operation = "sub" if isinstance(third, Minus) else "add"
    total = e.value(f"{operation} i128 {total}, {summand}")
    if i.has("po"):
        total = e.value(f"add i128 {total}, 1")
    scale = {"shr7": 7, "shr15": 15}.get(i.one_of("shr7", "shr15"), 0)
    if scale:
        total = e.value(f"ashr i128 {total}, {scale}")
    if i.has("sat"):
        kind = S32 if signed or isinstance(third, Minus) else U32
        total = _clamped(e, total, 32, kind, "i128")
    e.write(i.operands[0], e.value(f"trunc i128 {total} to i32"), B32)


# -- values side by side ---------------------------------------------------------------------------


@instruction("video.simd")
def side_by_side(e: Emitter, i: Instruction) -> None:
    """Parts that the mask leaves out come from the third operand; `.add` sums the others up."""
    operation, count = i.name[1:-1], int(i.name[-1])
    width = 32 // count
    result, first, second = i.types if operation != "set" else (B32, *i.types)
    words = [e.read(_whole(one), B32) for one in i.operands[1:3]]
    chosen = [_chosen(one, count, default) for default, one in enumerate(i.operands[1:3])]
    target = i.operands[0]
    wanted = list(range(count))
    if isinstance(target, Part):
        wanted = [int(digit) for digit in _digits(target, count)]
        if max(wanted) >= count:
            raise PtxSyntaxError(f"there is no mask .{target.selector}", i.line)
    total = e.read(i.operands[3], B32)
    for index in wanted:
        values = []
        for numbers, kind in zip(chosen, (first, second), strict=True):
            source, at = divmod(numbers[index], count)
            values.append(_cut(e, words[source], at * width, width, signed=kind.is_signed))
        value = _computed(e, i, operation, *values)
        if i.has("sat"):
            value = _clamped(e, value, width, result)
        word = e.value(f"trunc i64 {value} to i32")
        if i.modifiers[-1] == "add":
            total = e.value(f"add i32 {total}, {word}")
        else:
            total = _merged(e, word, total, index * width, width)
    e.write(_whole(target), total, B32)


def _whole(operand: Operand | None) -> Operand | None:
    return operand.register if isinstance(operand, Part) else operand


def _digits(part: Part, count: int) -> str:
    letter, digits = part.selector[:1], part.selector[1:]
    if letter != {2: "h", 4: "b"}[count] or not digits.isdigit() or len(digits) > count:
        raise ValueError(f"there is no selection .{part.selector}")
    return digits


def _chosen(operand: Operand | None, count: int, default: int) -> list[int]:
    """Indices of source parts, one for each part of the result; lowest part first."""
    if not isinstance(operand, Part):
        return [default * count + index for index in range(count)]
    numbers = [int(digit) for digit in reversed(_digits(operand, count))]
    if len(numbers) != count or max(numbers) >= 2 * count:
        raise ValueError(f"there is no selection .{operand.selector}")
    return numbers
