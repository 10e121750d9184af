"""Floating point arithmetic against exact fractions, every rounding, NaN equal to any NaN."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable

import numpy as np
import pytest

from simulators.ptx import translate  # noqa: F401 - fills the table
from tests.sampling import rounds
from tests.simulators.ptx import exact
from tests.simulators.ptx.batch import Case, execute, operands, width
from tests.simulators.ptx.exact import FORMATS, NAN, Real, decode, encode
from uhal.ptx.instructions import FORMS

COUNT = rounds(128, 1024)
DENORMAL_F32 = (1 << 23) - 1


def spellings(name: str) -> list[str]:
    spelt = {one for row in FORMS if row.name == name for one in row.spellings()}
    return sorted(one for one in spelt if kind_of(one) in FORMATS)


def pairs(name: str) -> list[str]:
    spelt = {one for row in FORMS if row.name == name for one in row.spellings()}
    return sorted(one for one in spelt if one.endswith(("f16x2", "bf16x2")))


def kind_of(spelling: str) -> str:
    return spelling.rsplit(".", 1)[-1]


def flushed(bits: int, parts: list[str], kind: str) -> int:
    if "ftz" in parts and kind == "f32" and not bits & 0x7F800000:
        return bits & 0x80000000
    return bits


def saturated(real: Real) -> Real:
    if real.is_nan or real.negative:
        return Real()
    return Real(min(real.value, exact.Fraction(1)) if real.kind == "finite" else exact.Fraction(1))


def computed(spelling: str, given: list[int]) -> int | None:
    """Return the bits of an instruction's result; None for any NaN."""
    parts = spelling.split(".")
    kind = parts[-1]
    mode = next((one for one in parts if one in ("rn", "rz", "rm", "rp")), "rn")
    reals = [decode(flushed(one, parts, kind), kind) for one in given]
    name = parts[0]
    if name in ("add", "sub"):
        second = exact.negated(reals[1]) if name == "sub" else reals[1]
        result = exact.add(reals[0], second, mode)
    elif name == "mul":
        result = exact.multiply(*reals)
    elif name == "div":
        result = exact.divide(*reals)
    elif name in ("fma", "mad"):
        result = exact.add(exact.multiply(reals[0], reals[1]), reals[2], mode)
    elif name == "rcp":
        result = exact.divide(Real(exact.Fraction(1)), reals[0])
    else:
        result = exact.square_root(reals[0])
    if "relu" in parts and result.negative and not result.is_zero and not result.is_nan:
        result = Real()
    bits = encode(result, kind, mode)
    if "sat" in parts:
        # Round first: a value just below 1 may round to 1, but not past it.
        rounded = NAN if bits is None else decode(bits, kind)
        bits = encode(saturated(rounded), kind)
    return None if bits is None else flushed(bits, parts, kind)


def same(got: int, expected: int | None, kind: str) -> bool:
    return decode(got, kind).is_nan if expected is None else got == expected


def check(
    cases: list[Case],
    rng: np.random.Generator,
    reference: Callable[[Case, list[int]], int | None],
) -> None:
    assert cases
    inputs = [operands(rng, case.operands, COUNT) for case in cases]
    for case, given, got in zip(cases, inputs, execute(cases, inputs), strict=True):
        for index, result in enumerate(got):
            values = [one[index] for one in given]
            expected = reference(case, values)
            assert same(result, expected, case.result), (
                f"{case} {[hex(one) for one in values]}: got {result:#x}, expected "
                f"{'NaN' if expected is None else hex(expected)}"
            )


@pytest.mark.drawn(1 / 2)
@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("add", 2),
        ("sub", 2),
        ("mul", 2),
        ("div", 2),
        ("fma", 3),
        ("mad", 3),
        ("rcp", 1),
        ("sqrt", 1),
    ],
)
def test_rounded_once(name: str, count: int, rng: np.random.Generator) -> None:
    cases = [
        Case(one, kind_of(one), (kind_of(one),) * count)
        for one in spellings(name)
        if "approx" not in one and "full" not in one
    ]
    check(cases, rng, lambda case, v: computed(case.spelling, v))


@pytest.mark.parametrize(("name", "count"), [("add", 2), ("sub", 2), ("mul", 2), ("fma", 3)])
def test_pairs(name: str, count: int, rng: np.random.Generator) -> None:
    cases = [Case(one, "b32", ("b32",) * count) for one in pairs(name)]
    inputs = [
        [
            [
                high << 16 | low
                for low, high in zip(*operands(rng, (part, part), COUNT), strict=True)
            ]
            for _ in range(count)
        ]
        for part in (kind_of(case.spelling)[:-2] for case in cases)
    ]
    for case, given, got in zip(cases, inputs, execute(cases, inputs), strict=True):
        part = kind_of(case.spelling)[:-2]
        for index, result in enumerate(got):
            for shift in (0, 16):
                values = [one[index] >> shift & 0xFFFF for one in given]
                expected = computed(case.spelling[:-2], values)
                half = result >> shift & 0xFFFF
                assert same(half, expected, part), (case, shift, [hex(one) for one in values])


def extreme(case: Case, v: list[int]) -> int | None:
    parts = case.spelling.split(".")
    kind = case.result
    f = FORMATS[kind]
    top = 1 << (f.width - 1)
    v = [flushed(one, parts, kind) for one in v]
    sign = (v[0] ^ v[1]) & top
    if "xorsign" in parts:
        v = [one & ~top for one in v]
    reals = [decode(one, kind) for one in v]
    nans = [one.is_nan for one in reals]
    if all(nans) or ("NaN" in parts and any(nans)):
        return None
    if any(nans):
        chosen = v[nans.index(False)]
    else:
        # Compare as integers of sign and magnitude, so that -0 comes before +0.
        order = sorted(v, key=lambda one: -(one & ~top) - 1 if one & top else one)
        chosen = order[0] if parts[0] == "min" else order[1]
    return chosen & ~top | sign if "xorsign" in parts else chosen


@pytest.mark.parametrize("name", ["min", "max"])
def test_extremes(name: str, rng: np.random.Generator) -> None:
    check([Case(one, kind_of(one), (kind_of(one),) * 2) for one in spellings(name)], rng, extreme)


@pytest.mark.parametrize("name", ["abs", "neg", "copysign"])
def test_signs(name: str, rng: np.random.Generator) -> None:
    count = 2 if name == "copysign" else 1
    cases = [Case(one, kind_of(one), (kind_of(one),) * count) for one in spellings(name)]

    def reference(case: Case, v: list[int]) -> int | None:
        top = 1 << (width(case.result) - 1)
        bits = flushed(v[0], case.spelling.split("."), case.result)
        if name == "copysign":
            bits = v[1] & ~top | v[0] & top
        elif name == "abs":
            bits &= ~top
        else:
            bits ^= top
        return None if decode(bits, case.result).is_nan else bits

    check(cases, rng, reference)


def test_classes(rng: np.random.Generator) -> None:
    cases = [
        Case(one, "pred", (kind_of(one),))
        for row in FORMS
        if row.name == "testp"
        for one in row.spellings()
    ]
    inputs = [operands(rng, case.operands, COUNT) for case in cases]
    for case, (given,), got in zip(cases, inputs, execute(cases, inputs), strict=True):
        _, question, kind = case.spelling.split(".")
        for bits, result in zip(given, got, strict=True):
            real = decode(bits, kind)
            f = FORMATS[kind]
            exponent = bits >> f.mantissa_bits & ((1 << f.exponent_bits) - 1)
            finite = real.kind == "finite"
            answers = {
                "finite": finite,
                "infinite": real.is_infinite,
                "number": not real.is_nan,
                "notanumber": real.is_nan,
                "normal": finite and exponent != 0,
                "subnormal": finite and exponent == 0 and not real.is_zero,
            }
            assert result == answers[question], (case, hex(bits))


FUNCTIONS: dict[str, Callable[[float], float]] = {
    "sin": math.sin,
    "cos": math.cos,
    "lg2": lambda x: math.log2(x) if x > 0 else (-math.inf if x == 0 else math.nan),
    "ex2": lambda x: 2.0**x if x < 1024 else math.inf,
    "tanh": math.tanh,
    "rcp": lambda x: 1 / x if x else math.copysign(math.inf, x),
    "sqrt": lambda x: math.sqrt(x) if x >= 0 else math.nan,
    "rsqrt": lambda x: 1 / math.sqrt(x) if x > 0 else (math.inf if x == 0 else math.nan),
}


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_approximations(name: str, rng: np.random.Generator) -> None:
    """f32 results are within an ulp of the library's result; narrower results are rounded f32."""
    cases = [Case(one, kind_of(one), (kind_of(one),)) for one in spellings(name) if "approx" in one]
    inputs = [operands(rng, case.operands, COUNT) for case in cases]
    for case, (given,), got in zip(cases, inputs, execute(cases, inputs), strict=True):
        kind = case.result
        for bits, result in zip(given, got, strict=True):
            real = decode(flushed(bits, case.spelling.split("."), kind), kind)
            if real.kind != "finite":
                continue
            x = math.copysign(float(real.value), -1.0 if real.negative else 1.0)
            expected = FUNCTIONS[name](x)
            answer = decode(result, kind)
            if math.isnan(expected):
                assert answer.is_nan, (case, x)
                continue
            tolerance = 2.0 ** -{"f16": 10, "bf16": 7, "f32": 21, "f64": 50}[kind]
            smallest = 2.0**-126 if kind != "f16" else 2.0**-14
            limit = float(decode(FORMATS[kind].largest, kind).value)
            if abs(expected) > limit * (1 - tolerance):
                assert answer.is_infinite or abs(float(answer.value)) > limit * 0.99, (case, x)
                continue
            value = float(answer.value) if answer.kind == "finite" else math.inf
            assert abs(value - expected) <= max(tolerance * abs(expected), smallest), (case, x)


def test_approximate_division(rng: np.random.Generator) -> None:
    cases = [
        Case(one, "f32", ("f32", "f32"))
        for one in spellings("div")
        if "approx" in one or "full" in one
    ]
    check(cases, rng, lambda case, v: computed(case.spelling, v))


def test_reference_agrees_with_the_processor(rng: np.random.Generator) -> None:
    """Compare the reference itself with numpy, for operations that numpy has."""
    first, second = operands(rng, ("f32", "f32"), 2000)
    a, b = (np.array(one, np.uint32).view("f4") for one in (first, second))
    with np.errstate(all="ignore"):
        for name, values in (("add", a + b), ("mul", a * b), ("div", a / b)):
            for index, value in enumerate(values):
                expected = computed(f"{name}.rn.f32", [first[index], second[index]])
                bits = struct.unpack("<I", struct.pack("<f", value))[0]
                assert same(bits, expected, "f32")
