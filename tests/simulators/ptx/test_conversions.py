"""cvt between all types against exact fractions and Python's integers."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from simulators.ptx import translate  # noqa: F401 - fills the table
from tests.sampling import rounds
from tests.simulators.ptx import exact
from tests.simulators.ptx.batch import Case, execute, operands, width
from tests.simulators.ptx.exact import FORMATS, Fraction, Real, decode, encode
from tests.simulators.ptx.test_floats import flushed, same, saturated
from tests.simulators.ptx.test_integers import of_type
from uhal.ptx.instructions import FORMS

COUNT = rounds(32, 1024)
MODES = ("rn", "rz", "rm", "rp")
WHOLE = ("rni", "rzi", "rmi", "rpi")


def spellings() -> list[str]:
    spelt = {one for row in FORMS if row.name == "cvt" for one in row.spellings()}
    return sorted(one for one in spelt if "x2" not in one and ".pack" not in one)


def types_of(spelling: str) -> tuple[str, str]:
    result, source = spelling.split(".")[-2:]
    return result, source


def expected(case: Case, bits: int) -> int | None:
    parts = case.spelling.split(".")
    result, source = types_of(case.spelling)
    mode = next((one for one in parts if one in MODES), "rn")
    whole = next((one for one in parts if one in WHOLE), "")
    if source not in FORMATS:
        value = of_type(bits, source)
        if result not in FORMATS:
            return clamped(value, result) if "sat" in parts else value & ((1 << width(result)) - 1)
        real = exact.number(Fraction(value))
        made = encode(real, result, mode)
        return encode(saturated(decode(made or 0, result)), result) if "sat" in parts else made
    real = decode(flushed(bits, parts, source), source)
    if result not in FORMATS:
        return to_integer(real, result, source, whole)
    if whole and real.kind == "finite":
        rounded = exact.round_to_integer(real.value, whole)
        real = Real(Fraction(rounded), real.negative)
    if "sat" in parts:
        real = saturated(real)
    if "relu" in parts and real.negative and not real.is_nan and not real.is_zero:
        real = Real()
    made = encode(real, result, mode, saturate="satfinite" in parts)
    return None if made is None else flushed(made, parts, result)


def clamped(value: int, kind: str) -> int:
    bits = width(kind)
    low = -(1 << (bits - 1)) if kind[0] == "s" else 0
    high = (1 << (bits - (kind[0] == "s"))) - 1
    return max(low, min(high, value)) & ((1 << bits) - 1)


def to_integer(real: Real, result: str, source: str, whole: str) -> int:
    bits = width(result)
    if real.is_nan:
        return 1 << (bits - 1) if 64 in (bits, width(source)) else 0
    if real.is_infinite:
        return clamped(-(1 << 80) if real.negative else 1 << 80, result)
    return clamped(exact.round_to_integer(real.value, whole), result)


@pytest.mark.drawn(1 / 2)
@pytest.mark.parametrize("source", ["u", "s", "f16", "bf16", "f32", "f64"])
def test_conversion(source: str, rng: np.random.Generator) -> None:
    chosen = [
        one for one in spellings() if types_of(one)[1].startswith(source) and "tf32" not in one
    ]
    chosen = [chosen[index] for index in rng.permutation(len(chosen))[: rounds(80, 1 << 20)]]
    for start in range(0, len(chosen), 80):
        cases = [
            Case(one, types_of(one)[0], (types_of(one)[1],)) for one in chosen[start : start + 80]
        ]
        inputs = [operands(rng, case.operands, COUNT) for case in cases]
        for case, (given,), got in zip(cases, inputs, execute(cases, inputs), strict=True):
            for bits, result in zip(given, got, strict=True):
                wanted = expected(case, bits)
                if case.result in FORMATS:
                    right = same(result, wanted, case.result)
                else:
                    right = result & ((1 << width(case.result)) - 1) == wanted
                assert right, f"{case} {bits:#x}: got {result:#x}, expected {wanted}"


def test_tf32(rng: np.random.Generator) -> None:
    cases = [Case(one, "b32", ("f32",)) for one in spellings() if ".tf32." in one]
    inputs = [operands(rng, case.operands, COUNT) for case in cases]
    exact.FORMATS["tf32"] = exact.Format(8, 10)
    for case, (given,), got in zip(cases, inputs, execute(cases, inputs), strict=True):
        parts = case.spelling.split(".")
        for bits, result in zip(given, got, strict=True):
            real = decode(bits, "f32")
            if "relu" in parts and real.negative and not real.is_nan and not real.is_zero:
                real = Real()
            made = encode(real, "tf32", parts[1], saturate="satfinite" in parts)
            if made is None:
                assert decode(result, "f32").is_nan
            else:
                assert result == made << 13, (case, hex(bits), hex(result), hex(made))


@pytest.mark.parametrize("pair", ["f16x2", "bf16x2", "e4m3x2", "e5m2x2"])
def test_pairs_from_floats(pair: str, rng: np.random.Generator) -> None:
    spelt = {one for row in FORMS if row.name == "cvt" for one in row.spellings()}
    chosen = sorted(one for one in spelt if one.endswith(f".{pair}.f32"))
    bits = width(pair)
    cases = [Case(one, f"b{bits}", ("f32", "f32")) for one in chosen]
    inputs = [operands(rng, case.operands, COUNT) for case in cases]
    for case, given, got in zip(cases, inputs, execute(cases, inputs), strict=True):
        parts = case.spelling.split(".")
        for index, result in enumerate(got):
            for number, shift in ((0, bits // 2), (1, 0)):
                real = decode(given[number][index], "f32")
                if "relu" in parts and real.negative and not real.is_nan and not real.is_zero:
                    real = Real()
                saturate = "satfinite" in parts
                made = encode(real, pair[:-2], parts[1], saturate=saturate)
                half = result >> shift & ((1 << bits // 2) - 1)
                assert same(half, made, pair[:-2]), (case, hex(given[number][index]), hex(half))


@pytest.mark.parametrize("kind", ["e4m3", "e5m2"])
def test_f8_to_f16(kind: str) -> None:
    every = list(range(1 << 16))[:: rounds(67, 1)]
    dtype = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}[kind]
    case = Case(f"cvt.rn.f16x2.{kind}x2", "b32", ("b16",))
    for start in range(0, len(every), 1024):
        given = every[start : start + 1024]
        (got,) = execute([case], [[given]])
        both = np.array(given, "<u2").view("u1").view(dtype).astype(np.float16)
        for wanted, result in zip(both.reshape(-1, 2), got, strict=True):
            for value, shift in zip(wanted, (0, 16), strict=True):
                answer = np.array(result >> shift & 0xFFFF, "u2").view("f2")
                assert answer == value or (math.isnan(answer) and math.isnan(value))


def test_f16_pairs_to_f8(rng: np.random.Generator) -> None:
    cases = [Case(f"cvt.rn.satfinite.{kind}x2.f16x2", "b16", ("b32",)) for kind in ("e4m3", "e5m2")]
    inputs = [
        [
            [
                high << 16 | low
                for low, high in zip(*operands(rng, ("f16", "f16"), COUNT), strict=True)
            ]
        ]
        for _ in cases
    ]
    for case, (given,), got in zip(cases, inputs, execute(cases, inputs), strict=True):
        kind = case.spelling.split(".")[3][:-2]
        for bits, result in zip(given, got, strict=True):
            for index in (0, 1):
                real = decode(bits >> 16 * index & 0xFFFF, "f16")
                made = encode(real, kind, saturate=True)
                assert same(result >> 8 * index & 0xFF, made, kind), (case, hex(bits))


def test_packing_integers(rng: np.random.Generator) -> None:
    cases = [Case(f"cvt.pack.sat.{kind}.s32", "b32", ("s32", "s32")) for kind in ("u16", "s16")]
    inputs = [operands(rng, case.operands, COUNT) for case in cases]
    for case, (first, second), got in zip(cases, inputs, execute(cases, inputs), strict=True):
        kind = case.spelling.split(".")[3]
        for a, b, result in zip(first, second, got, strict=True):
            high, low = (clamped(of_type(one, "s32"), kind) for one in (a, b))
            assert result == high << 16 | low
