"""Video instructions against the manual's formulas on Python's integers (§9.7.18)."""

from __future__ import annotations

import operator
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from simulators.ptx.launch import Module

HEAD = ".version 9.0\n.target sm_75\n.address_size 64\n"
COMPARE = ("eq", "ne", "lt", "le", "gt", "ge")
SCALAR = ("vadd", "vsub", "vabsdiff", "vmin", "vmax", "vset", "vshl", "vshr", "vmad")
SIMD = ("vadd", "vsub", "vavrg", "vabsdiff", "vmin", "vmax", "vset")
THREADS = 64
MASK = 0xFFFFFFFF


def signed(value: int, width: int) -> int:
    value &= (1 << width) - 1
    return value - (1 << width) if value >> (width - 1) else value


def extended(word: int, kind: str, at: int, width: int) -> int:
    part = word >> at & ((1 << width) - 1)
    return signed(part, width) if kind == "s32" else part


def field_of(selector: str) -> tuple[int, int]:
    if not selector:
        return 0, 32
    width = 8 if selector[0] == "b" else 16
    return int(selector[1:]) * width, width


def clamped(value: int, kind: str, width: int) -> int:
    low, high = (
        (-(1 << (width - 1)), (1 << (width - 1)) - 1) if kind == "s32" else (0, (1 << width) - 1)
    )
    return min(max(value, low), high)


def computed(name: str, modifiers: list[str], a: int, b: int) -> int:
    if name == "vset":
        return int(getattr(operator, next(one for one in modifiers if one in COMPARE))(a, b))
    if name == "vavrg":
        return (a + b + 1) >> 1 if a + b >= 0 else (a + b) >> 1
    if name in ("vshl", "vshr"):
        amount = b & 31 if "wrap" in modifiers else min(b, 32)
        return a << amount if name == "vshl" else a >> amount
    return {
        "vadd": a + b,
        "vsub": a - b,
        "vabsdiff": abs(a - b),
        "vmin": min(a, b),
        "vmax": max(a, b),
    }[name]


def scalar(case: Case, words: list[int]) -> int:
    name, modifiers, kinds = case.name, case.modifiers, case.kinds
    a, b = (extended(words[n], kinds[n + 1], *field_of(case.selectors[n + 1])) for n in (0, 1))
    if name == "vmad":
        return multiplied(case, a, b, words[2])
    value = computed(name, modifiers, a, b)
    at, width = field_of(case.selectors[0])
    if "sat" in modifiers:
        value = clamped(value, kinds[0], width)
    value &= MASK
    if width < 32:
        mask = ((1 << width) - 1) << at
        return words[2] & ~mask | value << at & mask
    if modifiers[-1] == "add":
        return (value + words[2]) & MASK
    if modifiers[-1] in ("min", "max"):
        choose = min if modifiers[-1] == "min" else max
        if kinds[0] == "s32":
            return choose(signed(value, 32), signed(words[2], 32)) & MASK
        return choose(value, words[2])
    return value


def multiplied(case: Case, a: int, b: int, c: int) -> int:
    negated = case.minus[0] != case.minus[1]
    is_signed = "s32" in case.kinds[1:] or negated
    c = signed(c, 32) if is_signed else c
    total = (-a * b if negated else a * b) + (-c if case.minus[2] else c) + ("po" in case.modifiers)
    total >>= 7 if "shr7" in case.modifiers else 15 if "shr15" in case.modifiers else 0
    if "sat" in case.modifiers:
        total = clamped(total, "s32" if is_signed or case.minus[2] else "u32", 32)
    return total & MASK


def side_by_side(case: Case, words: list[int]) -> int:
    count = int(case.name[-1])
    width = 32 // count
    parts = [word >> width * n & ((1 << width) - 1) for word in words for n in range(count)]
    chosen = []
    for n in (0, 1):
        digits = case.selectors[n + 1][:0:-1]
        numbers = [int(digit) for digit in digits] or [n * count + k for k in range(count)]
        chosen.append([extended(parts[at], case.kinds[n + 1], 0, width) for at in numbers])
    wanted = [int(digit) for digit in case.selectors[0][1:]] or list(range(count))
    total = words[2]
    for n in wanted:
        value = computed(case.name[:-1], case.modifiers, chosen[0][n], chosen[1][n])
        if "sat" in case.modifiers:
            value = clamped(value, case.kinds[0], width)
        mask = (1 << width) - 1
        if case.modifiers[-1] == "add":
            total += value
        else:
            total = total & ~(mask << width * n) | (value & mask) << width * n
    return total & MASK


class Case:
    """An instruction with random modifiers, selectors of parts and signs of operands."""

    def __init__(self, name: str, rng: np.random.Generator) -> None:
        self.name = name
        draw = lambda *choices: str(rng.choice(choices))  # noqa: E731
        base = name.rstrip("24")
        self.kinds = [draw("u32", "s32") for _ in range(3)]
        if base in ("vshl", "vshr"):
            self.kinds[2] = "u32"
        self.minus = [False, False, False]
        self.selectors = ["", "", ""]
        self.modifiers = self.kinds[1:] if base == "vset" else list(self.kinds)
        if base == "vset":
            self.kinds[0] = "u32"
        if base == "vmad":
            self.modifiers += ["po"] if draw("", "po") else []
        if base != "vset" and draw("", "sat"):
            self.modifiers.append("sat")
        if base == "vset":
            self.modifiers.append(draw(*COMPARE))
        if base in ("vshl", "vshr"):
            self.modifiers.append(draw("clamp", "wrap"))
        if base == "vmad":
            self.modifiers += [one for one in [draw("", "shr7", "shr15")] if one]
            if "po" not in self.modifiers:
                # Either the product or the summand is negated, not both.
                self.minus[int(rng.integers(3))] = bool(rng.integers(2))
        if name == base:
            self._select_parts(draw)
        else:
            self._select_lists(rng)
            if "sat" not in self.modifiers and draw("", "add"):
                self.modifiers.append("add")

    def _select_parts(self, draw: object) -> None:
        parts = ("", "b0", "b1", "b2", "b3", "h0", "h1")
        self.selectors = ["", draw(*parts), draw(*parts)]  # type: ignore[operator]
        if self.name == "vmad":
            return
        how = draw("plain", "merge", "add", "min", "max")  # type: ignore[operator]
        if how == "merge":
            self.selectors[0] = draw(*parts[1:])  # type: ignore[operator]
        elif how != "plain":
            self.modifiers.append(how)
        self.two = how == "plain"

    def _select_lists(self, rng: np.random.Generator) -> None:
        count = int(self.name[-1])
        letter = "h" if count == 2 else "b"
        for n in (1, 2):
            if rng.integers(2):
                self.selectors[n] = letter + "".join(map(str, rng.integers(0, 2 * count, count)))
            if self.selectors[n] == "b1024":
                # ptxas reads this selector as a type and refuses it.
                self.selectors[n] = ""
        if rng.integers(2):
            chosen = [n for n in range(count - 1, -1, -1) if rng.integers(2)] or [0]
            self.selectors[0] = letter + "".join(map(str, chosen))

    def text(self) -> str:
        """Return the instruction, with the result in %r0 and operands in %r1 … %r3."""
        spelled = []
        for n in range(4):
            selector = self.selectors[n] if n < 3 else ""
            minus = "-" if n and self.minus[n - 1] else ""
            spelled.append(f"{minus}%r{n}" + (f".{selector}" if selector else ""))
        if getattr(self, "two", False):
            spelled.pop()
        return f"{self.name}.{'.'.join(self.modifiers)} {', '.join(spelled)};"


def module(cases: list[Case]) -> str:
    lines = [
        f"{HEAD}.visible .entry k(.param .u64 x, .param .u64 y) {{ .reg .b32 %r<5>;",
        ".reg .b64 %x; .reg .b64 %y; ld.param.u64 %x, [x]; ld.param.u64 %y, [y];",
        "mov.u32 %r4, %tid.x; mad.wide.u32 %x, %r4, 12, %x;",
        f"mad.wide.u32 %y, %r4, {4 * len(cases)}, %y;",
        *(f"ld.global.u32 %r{n + 1}, [%x+{4 * n}];" for n in range(3)),
    ]
    for index, case in enumerate(cases):
        lines += [case.text(), f"st.global.u32 [%y+{4 * index}], %r0;"]
    return "\n".join([*lines, "ret; }"])


def drawn(rng: np.random.Generator, count: int) -> list[Case]:
    names = [*SCALAR, *(f"{one}{n}" for one in SIMD for n in (2, 4))]
    return [Case(name, rng) for name in names for _ in range(count)]


def test_video(rng: np.random.Generator, seed: int) -> None:
    cases = drawn(rng, 12)
    x = rng.integers(0, 1 << 32, (THREADS, 3), dtype="u4")
    edges = np.array([0, 1, 0x7FFFFFFF, 0x80000000, MASK, 0x80FF7F01, 0x8000FFFF, 31, 33], "u4")
    x[: THREADS // 2] = rng.choice(edges, (THREADS // 2, 3))
    y = np.zeros((THREADS, len(cases)), "u4")
    Module(module(cases)).kernel("k").launch([1], [THREADS], [x, y], seed=seed)
    for index, case in enumerate(cases):
        compute = side_by_side if case.name[-1].isdigit() else scalar
        expected = [compute(case, [int(one) for one in row]) for row in x]
        assert y[:, index].tolist() == expected, case.text()


@pytest.mark.skipif(shutil.which("ptxas") is None, reason="no ptxas here")
def test_ptxas_takes_what_is_tested(rng: np.random.Generator, tmp_path: Path) -> None:
    source = tmp_path / "video.ptx"
    source.write_text(module(drawn(rng, 12)))
    command = ["ptxas", "-arch=sm_75", str(source), "-o", str(tmp_path / "video.cubin")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
