"""Floating point arithmetic in all widths, single and in pairs (ISA manual §9.7.3, §9.7.4)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from . import approximate as inline
from .emitter import Emitter
from .program import Instruction, Operand
from .table import instruction
from .types import B32, F32, PtxType

MODES = {"rn": 0, "rz": 1, "rm": 2, "rp": 3}

Computation = Callable[[Sequence[str], PtxType], str]


def each(e: Emitter, i: Instruction, count: int, compute: Computation) -> None:
    """Compute the result from `count` operands, or for a packed pair each half from the halves."""
    kind = i.type
    flush = i.has("ftz")
    operands = i.operands[1 : 1 + count]
    if kind.kind != "packed":
        values = [e.real(one, kind, flush=flush) for one in operands]
        e.write_real(i.operands[0], compute(values, kind), kind, flush=flush)
        return
    part = kind.element
    joined = "0"
    for shift in (0, 16):
        values = [e.to_real(half_of(e, one, shift), part) for one in operands]
        bits = e.from_real(compute(values, part), part)
        moved = e.value(f"shl i32 {e.value(f'zext i16 {bits} to i32')}, {shift}")
        joined = e.value(f"or i32 {joined}, {moved}")
    e.write(i.operands[0], joined, B32)


def half_of(e: Emitter, operand: Operand | None, shift: int) -> str:
    """The bits of one half of a packed operand."""
    moved = e.value(f"lshr i32 {e.read(operand, B32)}, {shift}")
    return e.value(f"trunc i32 {moved} to i16")


def suffix(real: str) -> str:
    """The letters LLVM names a type of arithmetic by."""
    return {"float": "f32", "double": "f64"}[real]


def intrinsic(e: Emitter, name: str, real: str, *values: str) -> str:
    """Call an LLVM intrinsic whose arguments and result have one type."""
    return e.call(real, f"llvm.{name}.{suffix(real)}", *(f"{real} {one}" for one in values))


def saturated(e: Emitter, value: str, real: str) -> str:
    """Clamp a value to 0 … 1; NaN becomes 0."""
    above = intrinsic(e, "maxnum", real, value, "0.0")
    return intrinsic(e, "minnum", real, above, "1.0")


def rectified(e: Emitter, value: str, real: str) -> str:
    """Replace negative values by 0; NaN stays."""
    negative = e.value(f"fcmp olt {real} {value}, 0.0")
    return e.value(f"select i1 {negative}, {real} 0.0, {real} {value}")


def finished(e: Emitter, i: Instruction, value: str, real: str) -> str:
    """Apply `.sat` and `.relu`."""
    if i.has("sat"):
        return saturated(e, value, real)
    return rectified(e, value, real) if i.has("relu") else value


def rounding(i: Instruction) -> int:
    """The rounding mode, in the numbering of the helpers."""
    return MODES.get(i.one_of(*MODES), 0)


@instruction("add.float", "add.half", "sub.float", "sub.half", "mul.float", "mul.half", "div.float")
def binary(e: Emitter, i: Instruction) -> None:
    def compute(values: Sequence[str], kind: PtxType) -> str:
        real = kind.real
        if rounding(i):
            result = directed(e, i, kind, *values)
        else:
            result = e.value(f"f{i.name} {real} {values[0]}, {values[1]}")
        return finished(e, i, result, real)

    each(e, i, 2, compute)


def directed(e: Emitter, i: Instruction, kind: PtxType, *values: str) -> str:
    """An operation rounded in another direction than to nearest.

    Helpers in C compute f64 operations, quotients and roots: they set the processor's mode.
    """
    real = kind.real
    if real == "float" and i.name in ("add", "sub", "mul", "fma", "mad"):
        return inline.directed(e, i.name, rounding(i), values)
    arguments = (f"{real} {one}" for one in values)
    name = "fma" if i.name == "mad" else i.name
    return e.call(real, f"uptx_{name}_{suffix(real)}", *arguments, f"i32 {rounding(i)}")


@instruction("div.approx")
def approximate_division(e: Emitter, i: Instruction) -> None:
    each(e, i, 2, lambda values, kind: e.value(f"fdiv float {values[0]}, {values[1]}"))


@instruction("fma.float", "mad.float", "fma.half")
def fused(e: Emitter, i: Instruction) -> None:
    def compute(values: Sequence[str], kind: PtxType) -> str:
        if rounding(i):
            result = directed(e, i, kind, *values)
        elif kind.width == 16:
            # Rounding the f32 result once more could round twice; the helper keeps the deciding
            # bits.
            result = e.call("float", "uptx_fma_narrow", *(f"float {one}" for one in values))
        else:
            result = intrinsic(e, "fma", kind.real, *values)
        return finished(e, i, result, kind.real)

    each(e, i, 3, compute)


@instruction("min.float", "min.half", "max.float", "max.half")
def extreme(e: Emitter, i: Instruction) -> None:
    """One NaN gives the other operand, unless `.NaN`; -0 counts as less than +0."""
    name = f"{i.name}imum" + ("" if i.has("NaN") else "num")

    def compute(values: Sequence[str], kind: PtxType) -> str:
        real = kind.real
        if not i.has("xorsign"):
            return intrinsic(e, name, real, *values)
        sign = e.value(
            f"fmul {real} {intrinsic(e, 'copysign', real, '1.0', values[0])}, "
            f"{intrinsic(e, 'copysign', real, '1.0', values[1])}"
        )
        magnitudes = (intrinsic(e, "fabs", real, one) for one in values)
        return intrinsic(e, "copysign", real, intrinsic(e, name, real, *magnitudes), sign)

    each(e, i, 2, compute)


@instruction("abs.float", "abs.half", "neg.float", "neg.half")
def change_sign(e: Emitter, i: Instruction) -> None:
    kind = i.type
    bits = e.read(i.operands[1], kind)
    if i.has("ftz") and kind is F32:
        bits = e.flushed(bits)
    signs = 1 << (kind.width - 1)
    if kind.kind == "packed":
        signs |= 1 << 15
    if i.name == "neg":
        result = e.value(f"xor {kind.llvm} {bits}, {signs}")
    else:
        result = e.value(f"and {kind.llvm} {bits}, {((1 << kind.width) - 1) ^ signs}")
    e.write(i.operands[0], result, kind)


@instruction("copysign")
def copy_sign(e: Emitter, i: Instruction) -> None:
    def compute(values: Sequence[str], kind: PtxType) -> str:
        return intrinsic(e, "copysign", kind.real, values[1], values[0])

    each(e, i, 2, compute)


@instruction("testp")
def classify(e: Emitter, i: Instruction) -> None:
    # The masks of llvm.is.fpclass.
    mask = {
        "finite": 0x1F8,
        "infinite": 0x204,
        "number": 0x3FC,
        "notanumber": 0x003,
        "normal": 0x108,
        "subnormal": 0x090,
    }[i.modifiers[0]]
    real = i.type.real
    value = e.real(i.operands[1], i.type)
    name = f"llvm.is.fpclass.{suffix(real)}"
    e.write_predicate(i.operands[0], e.call("i1", name, f"{real} {value}", f"i32 {mask}"))


@instruction("rcp", "sqrt", "rsqrt")
def root_or_reciprocal(e: Emitter, i: Instruction) -> None:
    def compute(values: Sequence[str], kind: PtxType) -> str:
        real = kind.real
        if rounding(i):
            return directed(e, i, kind, values[0])
        result = values[0]
        if i.name != "rcp":
            result = intrinsic(e, "sqrt", real, result)
        return result if i.name == "sqrt" else e.value(f"fdiv {real} 1.0, {result}")

    each(e, i, 1, compute)


INLINE = {"lg2": inline.log2, "ex2": inline.exp2}


@instruction("sin.approx", "cos.approx", "lg2.approx", "ex2.approx", "tanh.approx")
def approximate(e: Emitter, i: Instruction) -> None:
    """Compute inline where it pays, else by the mathematics library, more exactly than required."""

    def compute(values: Sequence[str], kind: PtxType) -> str:
        if i.name in INLINE:
            return INLINE[i.name](e, values[0])
        return e.call("float", f"{i.name}f", f"float {values[0]}")

    each(e, i, 1, compute)
