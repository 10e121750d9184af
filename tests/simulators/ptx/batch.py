"""Executes single instructions on many operands: one kernel, one thread per operand tuple."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simulators.ptx.launch import Module
from simulators.ptx.types import TYPES

EDGES = {
    "f16": [
        0,
        0x8000,
        1,
        0x8001,
        0x3FF,
        0x400,
        0x3C00,
        0xBC00,
        0x7BFF,
        0xFBFF,
        0x7C00,
        0xFC00,
        0x7E00,
        0x3555,
    ],
    "bf16": [
        0,
        0x8000,
        1,
        0x8001,
        0x7F,
        0x80,
        0x3F80,
        0xBF80,
        0x7F7F,
        0xFF7F,
        0x7F80,
        0xFF80,
        0x7FC0,
        0x4049,
    ],
    "f32": [
        0,
        0x80000000,
        1,
        0x80000001,
        0x7FFFFF,
        0x800000,
        0x3F800000,
        0xBF800000,
        0x7F7FFFFF,
        0xFF7FFFFF,
        0x7F800000,
        0xFF800000,
        0x7FC00000,
        0x3F000000,
        0x40490FDB,
        0x4B000001,
        0x477FF000,
        0x43E00000,
        0xCF000000,
        0x4F800000,
        0x33000001,
        0x3F000001,
        0x3FC00000,
    ],
    "f64": [
        0,
        1 << 63,
        1,
        (1 << 63) + 1,
        (1 << 52) - 1,
        1 << 52,
        0x3FF0000000000000,
        0xBFF0000000000000,
        0x7FEFFFFFFFFFFFFF,
        0xFFEFFFFFFFFFFFFF,
        0x7FF0000000000000,
        0xFFF0000000000000,
        0x7FF8000000000000,
        0x3FE0000000000000,
        0x400921FB54442D18,
        0x41DFFFFFFFC00000,
        0xC1E0000000000000,
        0x41EFFFFFFFE00000,
        0x43E0000000000000,
        0xC3E0000000000000,
        0x47EFFFFFE0000000,
        0x36A0000000000000,
        0x40F0000000000000,
    ],
}


@dataclass(frozen=True)
class Case:
    """An instruction with its operands' types; the text ends with `constants`."""

    spelling: str
    result: str
    operands: tuple[str, ...]
    constants: tuple[int, ...] = ()

    def __str__(self) -> str:
        extra = "".join(f" {one:#x}" for one in self.constants)
        return self.spelling + extra


def width(name: str) -> int:
    return TYPES[name].width


def patterns(rng: np.random.Generator, name: str, count: int) -> list[int]:
    """Return bit patterns of a type: its edge values first, then random values of every kind."""
    bits = width(name)
    found: list[int] = list(EDGES.get(name, []))
    if not found:
        top = 1 << (bits - 1)
        found = [
            0,
            1,
            2,
            3,
            (1 << bits) - 1,
            top,
            top - 1,
            top + 1,
            bits,
            bits - 1,
            bits + 1,
            255,
            256,
        ]
        found += [0x55555555_55555555, 0xFF00FF00_00FF00FF]
    while len(found) < count:
        drawn = int(rng.integers(0, 1 << 64, dtype=np.uint64, endpoint=False))
        how = int(rng.integers(3))
        if how == 1:
            drawn >>= int(rng.integers(64))
        if how == 2 and name in ("f32", "f64"):
            near = rng.normal() * 10.0 ** int(rng.integers(-3, 6))
            drawn = int(np.array(near, {"f32": "f4", "f64": "f8"}[name]).view(f"u{bits // 8}"))
        found.append(drawn)
    return [one & ((1 << bits) - 1) for one in found]


def operands(rng: np.random.Generator, types: Sequence[str], count: int) -> list[list[int]]:
    """Return `count` values per operand: combinations of edge values, and random values."""
    pools = [patterns(rng, name, 40) for name in types]
    drawn = [[pool[int(rng.integers(len(pool)))] for _ in range(count)] for pool in pools]
    edges = [patterns(rng, name, 0) for name in types]
    for index in range(min(count // 2, max(len(one) for one in edges) ** 2)):
        for number, edge in enumerate(edges):
            drawn[number][index] = edge[index // len(edges[0]) ** number % len(edge)]
    return drawn


def kernel_text(cases: Sequence[Case], count: int) -> str:
    """Return a kernel that gives thread i the i-th operands of every case."""
    lines = [
        ".version 8.8",
        ".target sm_90",
        ".address_size 64",
        ".visible .entry batch(.param .u64 inputs, .param .u64 results)",
        "{",
        ".reg .pred %p<8>; .reg .b16 %h<8>; .reg .b32 %r<8>; .reg .b64 %d<8>;",
        ".reg .b64 %in; .reg .b64 %out; .reg .b64 %at; .reg .b32 %i; .reg .b16 %flag;",
        "ld.param.u64 %in, [inputs]; ld.param.u64 %out, [results];",
        "mov.u32 %i, %tid.x; mad.wide.u32 %in, %i, 8, %in; mad.wide.u32 %out, %i, 8, %out;",
    ]
    offset = 0
    for index, case in enumerate(cases):
        given = []
        for number, name in enumerate(case.operands):
            register = f"{_letter(name)}{number + 1}"
            where = f"[%in+{offset}]"
            offset += 8 * count
            if name == "pred":
                lines += [f"ld.global.u8 %flag, {where};", f"setp.ne.u16 {register}, %flag, 0;"]
            else:
                lines.append(f"ld.global.b{max(width(name), 8)} {register}, {where};")
            given.append(register)
        target = f"{_letter(case.result)}0"
        words = ", ".join([target, *given, *map(str, case.constants)])
        lines.append(f"{case.spelling} {words};")
        out = f"[%out+{8 * count * index}]"
        if case.result == "pred":
            lines += [f"selp.b32 %r7, 1, 0, {target};", f"st.global.u32 {out}, %r7;"]
        else:
            lines.append(f"st.global.b{width(case.result)} {out}, {target};")
    return "\n".join([*lines, "ret;", "}"])


def _letter(name: str) -> str:
    if name == "pred":
        return "%p"
    return {8: "%h", 16: "%h", 32: "%r", 64: "%d"}[width(name)]


def execute(cases: Sequence[Case], inputs: Sequence[Sequence[Sequence[int]]]) -> list[list[int]]:
    """Run each case on its operands; all cases have the same number of operands, at most 1024."""
    count = len(inputs[0][0])
    flat = [value for case in inputs for operand in case for value in operand]
    given = np.array(flat, np.uint64)
    results = np.zeros(len(cases) * count, np.uint64)
    module = Module(kernel_text(cases, count))
    module.kernel("batch").launch([1], [count], [given, results])
    return [[int(one) for one in row] for row in results.reshape(len(cases), count)]
