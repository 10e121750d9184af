"""Conversion between types (ISA manual §9.7.9, cvt)."""

from __future__ import annotations

from .emitter import Emitter
from .floating import MODES, intrinsic, rectified, saturated, suffix
from .integer import clamped, widened
from .program import Instruction
from .table import instruction
from .types import B16, B32, F16, F32, F64, PtxType

TO_NEAREST_INTEGER = {"rni": "roundeven", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}
FORMATS = {"f16": 0, "bf16": 1, "e4m3": 2, "e5m2": 3, "tf32": 4}
"""Narrow formats, in the numbering of the helper `uptx_narrow`."""
NAN = "0x7FFFFFFFE0000000"
"""The f32 NaN 0x7FFFFFFF, in LLVM's spelling as a double."""


@instruction("cvt.integers")
def integer_to_integer(e: Emitter, i: Instruction) -> None:
    result, source = i.types
    value = e.read(i.operands[1], source)
    if i.has("sat"):
        wide = widened(e, value, source, 128)
        low = -(1 << (result.width - 1)) if result.is_signed else 0
        high = (1 << (result.width - result.is_signed)) - 1
        wide = clamped(e, wide, 128, low, high)
        value = e.resized(wide, 128, result.width, signed=False)
    else:
        value = widened(e, value, source, result.width)
    e.write(i.operands[0], value, result)


@instruction("cvt.to_integer")
def float_to_integer(e: Emitter, i: Instruction) -> None:
    """Clamp values out of range. NaN becomes 0, or only the top bit if a side has 64 bits."""
    result, source = i.types
    value = e.real(i.operands[1], source, flush=i.has("ftz"))
    real = source.real
    whole = intrinsic(e, TO_NEAREST_INTEGER[i.one_of(*TO_NEAREST_INTEGER)], real, value)
    name = f"llvm.fpto{'s' if result.is_signed else 'u'}i.sat.{result.llvm}.{suffix(real)}"
    converted = e.call(result.llvm, name, f"{real} {whole}")
    if source.width == 64 or result.width == 64:
        is_nan = e.value(f"fcmp uno {real} {value}, 0.0")
        top = 1 << (result.width - 1)
        converted = e.value(f"select i1 {is_nan}, {result.llvm} {top}, {result.llvm} {converted}")
    e.write(i.operands[0], converted, result)


@instruction("cvt.from_integer")
def integer_to_float(e: Emitter, i: Instruction) -> None:
    result, source = i.types
    wide = widened(e, e.read(i.operands[1], source), source, 64)
    sign = "s" if source.is_signed else "u"
    mode = MODES[i.one_of(*MODES)]
    if result.width == 16:
        # Convert to an f64 whose last bit records inexactness; the requested rounding comes after
        # it.
        odd = e.call("double", f"uptx_{sign}64_to_odd", f"i64 {wide}")
        bits = narrowed(e, odd, result, mode)
        value = e.to_real(bits, result)
    elif mode:
        name = f"uptx_{sign}64_to_{result.name}"
        value = e.call(result.real, name, f"i64 {wide}", f"i32 {mode}")
    else:
        value = e.value(f"{sign}itofp i64 {wide} to {result.real}")
    if i.has("sat"):
        value = saturated(e, value, result.real)
    e.write_real(i.operands[0], value, result)


def narrowed(e: Emitter, value: str, kind: PtxType, mode: int, flags: int = 0) -> str:
    """A double as bits of a narrow format, rounded once; flag 1 clamps to the largest finite."""
    arguments = (f"double {value}", f"i32 {FORMATS[kind.name]}", f"i32 {mode}", f"i32 {flags}")
    bits = e.call("i32", "uptx_narrow", *arguments)
    return e.resized(bits, 32, kind.width, signed=False)


@instruction("cvt.floats")
def float_to_float(e: Emitter, i: Instruction) -> None:
    result, source = i.types
    real = source.real
    value = e.real(i.operands[1], source, flush=i.has("ftz"))
    whole = i.one_of(*TO_NEAREST_INTEGER)
    if whole:
        value = intrinsic(e, TO_NEAREST_INTEGER[whole], real, value)
    mode = MODES.get(i.one_of(*MODES), 0)
    if i.has("sat"):
        value = saturated(e, value, real)
    if i.has("relu"):
        value = rectified(e, value, real)
    e.write(i.operands[0], _in_format(e, i, value, source, result, mode), result)


def _in_format(
    e: Emitter, i: Instruction, value: str, source: PtxType, result: PtxType, mode: int
) -> str:
    if result is F64:
        wide = value if source is F64 else e.value(f"fpext float {value} to double")
        return e.from_real(wide, F64)
    if result is F32:
        if source is F64:
            how = f"double {value}"
            value = (
                e.call("float", "uptx_f64_to_f32", how, f"i32 {mode}")
                if mode
                else e.value(f"fptrunc {how} to float")
            )
        elif source is F16:
            # An H200 gives the NaN without a sign; the manual leaves it open.
            is_nan = e.value(f"fcmp uno float {value}, 0.0")
            value = e.value(f"select i1 {is_nan}, float {NAN}, float {value}")
        return e.from_real(value, F32, flush=i.has("ftz"))
    plain = mode == 0 and source is not F64 and not i.has("satfinite")
    if plain:
        return e.from_real(value, result)
    wide = value if source is F64 else e.value(f"fpext float {value} to double")
    return narrowed(e, wide, result, mode, int(i.has("satfinite")))


@instruction("cvt.tf32")
def to_tf32(e: Emitter, i: Instruction) -> None:
    value = e.real(i.operands[1], F32)
    if i.has("relu"):
        value = rectified(e, value, "float")
    mode = {"rn": 0, "rz": 1, "rna": 4}[i.modifiers[0]]
    wide = e.value(f"fpext float {value} to double")
    e.write(i.operands[0], narrowed(e, wide, i.types[0], mode, int(i.has("satfinite"))), B32)


@instruction("cvt.pair_from_floats")
def pair_from_floats(e: Emitter, i: Instruction) -> None:
    """The first source goes into the upper half."""
    result = i.types[0]
    part = result.element
    joined = "0"
    for shift, operand in ((part.width, i.operands[1]), (0, i.operands[2])):
        value = e.real(operand, F32)
        if i.has("relu"):
            value = rectified(e, value, "float")
        wide = e.value(f"fpext float {value} to double")
        bits = narrowed(e, wide, part, int(i.has("rz")), int(i.has("satfinite")))
        joined = _joined(e, joined, bits, part.width, shift, result.width)
    e.write(i.operands[0], joined, result)


def _joined(e: Emitter, before: str, bits: str, width: int, shift: int, whole: int) -> str:
    wide = e.resized(bits, width, whole, signed=False)
    return e.value(f"or i{whole} {before}, {e.value(f'shl i{whole} {wide}, {shift}')}")


@instruction("cvt.pair_to_f8")
def pair_to_f8(e: Emitter, i: Instruction) -> None:
    result = i.types[0]
    source = e.read(i.operands[1], B32)
    joined = "0"
    for index in (0, 1):
        moved = e.value(f"lshr i32 {source}, {16 * index}")
        value = e.to_real(e.value(f"trunc i32 {moved} to i16"), F16)
        if i.has("relu"):
            value = rectified(e, value, "float")
        wide = e.value(f"fpext float {value} to double")
        bits = narrowed(e, wide, result.element, 0, 1)
        joined = _joined(e, joined, bits, 8, 8 * index, 16)
    e.write(i.operands[0], joined, result)


@instruction("cvt.pair_from_f8")
def pair_from_f8(e: Emitter, i: Instruction) -> None:
    source = i.types[1]
    both = e.read(i.operands[1], B16)
    joined = "0"
    for index in (0, 1):
        byte = e.value(f"and i32 {e.value(f'zext i16 {both} to i32')}, {0xFF << 8 * index}")
        byte = e.value(f"lshr i32 {byte}, {8 * index}")
        value = e.call(
            "float", "uptx_from_f8", f"i32 {byte}", f"i32 {FORMATS[source.element.name]}"
        )
        if i.has("relu"):
            value = rectified(e, value, "float")
        joined = _joined(e, joined, e.from_real(value, F16), 16, 16 * index, 32)
    e.write(i.operands[0], joined, B32)


@instruction("cvt.pack")
def pack_two(e: Emitter, i: Instruction) -> None:
    result = i.types[0]
    low = -(1 << 15) if result.is_signed else 0
    high = (1 << 15) - 1 if result.is_signed else (1 << 16) - 1
    first, second = (clamped(e, e.read(one, B32), 32, low, high) for one in i.operands[1:3])
    below = e.value(f"and i32 {second}, 65535")
    e.write(i.operands[0], e.value(f"or i32 {e.value(f'shl i32 {first}, 16')}, {below}"), B32)
