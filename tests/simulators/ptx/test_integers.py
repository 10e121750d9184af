"""Integer arithmetic, logic, shifts and bit fields against Python's integers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from simulators.ptx import translate  # noqa: F401 - fills the table
from tests.sampling import rounds
from tests.simulators.ptx.batch import Case, execute, operands, width
from uhal.ptx.instructions import FORMS

COUNT = rounds(128, 1024)
Reference = Callable[..., int]


def signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def of_type(value: int, name: str) -> int:
    return signed(value, width(name)) if name[0] == "s" else value


def clamp(value: int, low: int, high: int) -> int:
    return max(low, min(high, value))


def sat32(value: int) -> int:
    return clamp(value, -(1 << 31), (1 << 31) - 1)


def cases_of(name: str) -> list[str]:
    """Every integer spelling of an opcode in the table."""
    spelt = {one for row in FORMS if row.name == name for one in row.spellings()}
    return sorted(one for one in spelt if not plain(one).startswith(("f", "bf")))


def plain(spelling: str) -> str:
    return spelling.rsplit(".", 1)[-1]


def arithmetic(spelling: str, a: int, b: int, c: int = 0) -> int:
    parts = spelling.split(".")
    name, kind = parts[0], parts[-1]
    bits = width(kind)
    x, y, z = of_type(a, kind), of_type(b, kind), c
    if name in ("add", "sub"):
        result = x + y if name == "add" else x - y
        return sat32(result) if "sat" in parts else result
    if name in ("mul", "mad"):
        product = x * y
        part = product >> bits if "hi" in parts else product
        if name == "mul":
            return part
        wide = 2 * bits if "wide" in parts else bits
        if "sat" in parts:
            return sat32(part + signed(z, 32))
        return part + signed(z, wide)
    if name in ("mul24", "mad24"):
        x, y = (signed(one, 24) if kind[0] == "s" else one & 0xFFFFFF for one in (a, b))
        part = (x * y) >> 16 if "hi" in parts else x * y
        part = signed(part, 32) if kind[0] == "s" else part
        if name == "mul24":
            return part
        return sat32(part + signed(z, 32)) if "sat" in parts else part + z
    if name == "sad":
        return of_type(z, kind) + abs(x - y)
    if name in ("min", "max"):
        result = min(x, y) if name == "min" else max(x, y)
        return max(result, 0) if "relu" in parts else result
    if y == 0:
        return -1 if name == "div" else x
    quotient = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
    return quotient if name == "div" else x - quotient * y


def check(
    cases: list[Case], rng: np.random.Generator, reference: Callable[[Case, list[int]], int]
) -> int:
    """Compare every case; returns how many results were compared."""
    inputs = [operands(rng, case.operands, COUNT) for case in cases]
    compared = 0
    for case, given, got in zip(cases, inputs, execute(cases, inputs), strict=True):
        mask = (1 << width(case.result)) - 1
        for index, result in enumerate(got):
            values = [one[index] for one in given]
            expected = reference(case, values) & mask
            assert result == expected, (
                f"{case} {[hex(one) for one in values]}: got {result:#x}, expected {expected:#x}"
            )
            compared += 1
    return compared


@pytest.mark.parametrize(
    "name", ["add", "sub", "mul", "mad", "mul24", "mad24", "sad", "div", "rem", "min", "max"]
)
def test_arithmetic(name: str, rng: np.random.Generator) -> None:
    cases = []
    for spelling in cases_of(name):
        if "x2" in spelling or ".cc" in spelling:
            continue
        kind = plain(spelling)
        result = f"{kind[0]}{2 * width(kind)}" if ".wide." in spelling else kind
        three = (result,) if name in ("mad", "mad24", "sad") else ()
        cases.append(Case(spelling, result, (kind, kind, *three)))
    assert check(cases, rng, lambda case, v: arithmetic(case.spelling, *v)) == COUNT * len(cases)


@pytest.mark.parametrize("name", ["add", "min", "max"])
def test_pairs_of_halves(name: str, rng: np.random.Generator) -> None:
    cases = [Case(f"{name}.{kind}x2", "b32", ("b32", "b32")) for kind in ("u16", "s16")]

    def reference(case: Case, v: list[int]) -> int:
        kind = case.spelling[-5:-2]
        result = 0
        for shift in (0, 16):
            halves = [one >> shift & 0xFFFF for one in v]
            result |= (arithmetic(f"{name}.{kind}", *halves) & 0xFFFF) << shift
        return result

    check(cases, rng, reference)


def bits_of(case: Case, v: list[int]) -> int:
    parts = case.spelling.split(".")
    name, kind = parts[0], parts[-1]
    bits = width(kind)
    a = v[0]
    if name in ("abs", "neg"):
        return abs(signed(a, bits)) if name == "abs" else -signed(a, bits)
    if name in ("and", "or", "xor"):
        return {"and": a & v[1], "or": a | v[1], "xor": a ^ v[1]}[name]
    if name == "not":
        return ~a
    if name == "cnot":
        return int(a == 0)
    if name == "shl":
        return a << v[1] if v[1] < bits else 0
    if name == "shr":
        return of_type(a, kind) >> min(v[1], 2 * bits)
    if name == "popc":
        return a.bit_count()
    if name == "clz":
        return bits - a.bit_length()
    if name == "brev":
        return int(f"{a:0{bits}b}"[::-1], 2)
    if name == "bfind":
        magnitude = ~a & ((1 << bits) - 1) if kind[0] == "s" and a >> (bits - 1) else a
        bit = magnitude.bit_length() - 1
        return bits - 1 - bit if "shiftamt" in parts and bit >= 0 else bit
    if name == "bfe":
        start, length = v[1] & 255, v[2] & 255
        sign_at = min(start + length - 1, bits - 1)
        sign = a >> sign_at & 1 if kind[0] == "s" and length else 0
        result = 0
        for bit in range(bits):
            inside = bit < length and start + bit < bits
            result |= (a >> (start + bit) & 1 if inside else sign) << bit
        return result
    if name == "bfi":
        start, length = v[2] & 255, v[3] & 255
        result = v[1]
        for bit in range(min(length, bits - start)):
            result &= ~(1 << (start + bit))
            result |= (a >> bit & 1) << (start + bit)
        return result
    if name == "szext":
        count = v[1] & 31 if "wrap" in parts else min(v[1], 32)
        low = a & ((1 << count) - 1)
        return signed(low, count) if kind[0] == "s" and count else low
    if name == "bmsk":
        wrap = "wrap" in parts
        start, length = (one & 31 if wrap else min(one, 32) for one in v)
        return ((1 << length) - 1) << start
    if name == "shf":
        amount = v[2] & 31 if "wrap" in parts else min(v[2], 32)
        pair = v[1] << 32 | a
        return (pair << amount) >> 32 if "l" in parts else pair >> amount
    if name == "fns":
        return nth_set(*v)
    raise AssertionError(name)


def nth_set(mask: int, base: int, offset: int) -> int:
    steps = signed(offset, 32)
    if steps == 0:
        return base if base < 32 and mask >> base & 1 else -1
    left = abs(steps)
    bit = base
    while 0 <= bit < 32:
        left -= mask >> bit & 1
        if left == 0:
            return bit
        bit += 1 if steps > 0 else -1
    return -1


@pytest.mark.parametrize(
    ("name", "more", "result"),
    [
        ("abs", (), None),
        ("neg", (), None),
        ("and", ("=",), None),
        ("or", ("=",), None),
        ("xor", ("=",), None),
        ("not", (), None),
        ("cnot", (), None),
        ("shl", ("u32",), None),
        ("shr", ("u32",), None),
        ("popc", (), "u32"),
        ("clz", (), "u32"),
        ("brev", (), None),
        ("bfind", (), "u32"),
        ("bfe", ("u32", "u32"), None),
        ("bfi", ("=", "u32", "u32"), None),
        ("szext", ("u32",), None),
        ("bmsk", ("u32",), None),
        ("shf", ("b32", "u32"), None),
        ("fns", ("u32", "s32"), None),
    ],
)
def test_bits(
    name: str, more: tuple[str, ...], result: str | None, rng: np.random.Generator
) -> None:
    cases = []
    for spelling in cases_of(name):
        kind = plain(spelling)
        if kind == "pred" and name == "not":
            cases.append(Case(spelling, "pred", ("pred",)))
            continue
        rest = tuple(kind if one == "=" else one for one in more)
        cases.append(Case(spelling, result or kind, (kind, *rest)))
    check(cases, rng, bits_of)


def test_three_input_logic(rng: np.random.Generator) -> None:
    cases = [Case("lop3.b32", "b32", ("b32", "b32", "b32"), (table,)) for table in range(256)]

    def reference(case: Case, v: list[int]) -> int:
        result = 0
        for bit in range(32):
            row = (v[0] >> bit & 1) << 2 | (v[1] >> bit & 1) << 1 | (v[2] >> bit & 1)
            result |= (case.constants[0] >> row & 1) << bit
        return result

    check(cases[:: rounds(8, 1)], rng, reference)


def test_permutation_of_bytes(rng: np.random.Generator) -> None:
    cases = [Case(one, "b32", ("b32", "b32", "b32")) for one in cases_of("prmt")]
    cases += [
        Case(f"prmt.b32{mode}", "b32", ("b32", "b32", "b32"))
        for mode in (".f4e", ".b4e", ".rc8", ".ecl", ".ecr", ".rc16")
    ]

    def reference(case: Case, v: list[int]) -> int:
        source = [(v[1] << 32 | v[0]) >> 8 * index & 255 for index in range(8)]
        mode = case.spelling.removeprefix("prmt.b32").lstrip(".")
        s = v[2] & 3
        table = {
            "f4e": [s, s + 1, s + 2, s + 3],
            "b4e": [s, (s - 1) & 7, (s - 2) & 7, (s - 3) & 7],
            "rc8": [s] * 4,
            "ecl": [max(s, index) for index in range(4)],
            "ecr": [min(s, index) for index in range(4)],
            "rc16": [2 * (s & 1), 2 * (s & 1) + 1] * 2,
        }
        if mode:
            picked = [source[index] for index in table[mode]]
        else:
            nibbles = [v[2] >> 4 * index & 15 for index in range(4)]
            picked = [
                (255 if source[one & 7] & 128 else 0) if one & 8 else source[one & 7]
                for one in nibbles
            ]
        return sum(byte << 8 * index for index, byte in enumerate(picked))

    check(cases, rng, reference)


@pytest.mark.parametrize("name", ["dp4a", "dp2a"])
def test_dot_products(name: str, rng: np.random.Generator) -> None:
    cases = [Case(one, "u32", ("b32", "b32", "u32")) for one in cases_of(name)]

    def reference(case: Case, v: list[int]) -> int:
        *_, first, second = case.spelling.split(".")
        total = v[2]
        start = 2 if ".hi" in case.spelling else 0
        for index in range(4 if name == "dp4a" else 2):
            bits = 8 if name == "dp4a" else 16
            a = v[0] >> bits * index & ((1 << bits) - 1)
            b = v[1] >> 8 * (index + start) & 255
            total += (signed(a, bits) if first[0] == "s" else a) * (
                signed(b, 8) if second[0] == "s" else b
            )
        return total

    check(cases, rng, reference)
