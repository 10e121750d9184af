"""`atom` and `red`: every operation and type on edge values; each thread has its own cell."""

from __future__ import annotations

import numpy as np
import pytest

from simulators.ptx import translate  # noqa: F401 - fills the table
from simulators.ptx.launch import Module
from simulators.ptx.types import TYPES
from tests.simulators.ptx import exact
from tests.simulators.ptx.batch import EDGES, operands
from tests.simulators.ptx.exact import decode, encode
from uhal.ptx.instructions import FORMS, Form

COUNT = 96
ROWS_OF_SCALARS = [one for one in FORMS if one.name in ("atom", "red") and ".v2" not in one.pattern]


def operation(parts: list[str]) -> str:
    known = ("and", "or", "xor", "exch", "cas", "add", "inc", "dec", "min", "max")
    return next(one for one in parts if one in known)


def updated(parts: list[str], old: int, b: int, c: int) -> int | None:
    """Return the new bits of a cell; None for any NaN."""
    kind = TYPES[parts[-1]]
    name, mask = operation(parts), (1 << kind.width) - 1
    if kind.kind == "packed":
        halves = [
            updated([*parts[:-1], kind.element.name], *(v >> s & 0xFFFF for v in (old, b)), 0)
            for s in (0, 16)
        ]
        return None if None in halves else halves[1] << 16 | halves[0]  # type: ignore[operator]
    if kind.is_float:
        return encode(exact.add(decode(old, kind.name), decode(b, kind.name), "rn"), kind.name)
    signed = [v - (1 << kind.width) if v >> (kind.width - 1) else v for v in (old, b)]
    low, high = sorted(signed if kind.is_signed else [old, b])
    answers = {
        "and": old & b,
        "or": old | b,
        "xor": old ^ b,
        "exch": b,
        "add": old + b,
        "cas": c if old == b else old,
        "min": low,
        "max": high,
        "inc": 0 if old >= b else old + 1,
        "dec": b if old == 0 or old > b else old - 1,
    }
    return answers[name] & mask


def spelling(row: Form, rng: np.random.Generator, kind: str, name: str) -> str:
    """Return a random spelling of the row's operation on a type, with any order, scope and
    space."""
    chosen = []
    for choices in row.parts():
        wanted = [one for one in choices if one.strip(".") in (kind, name)]
        chosen.append((wanted or choices)[int(rng.integers(len(wanted or choices)))])
    return "".join(chosen)


def execute(text: str, values: list[list[int]], seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Execute `text` on cells and operands of a type; return the cells and each thread's result."""
    parts = text.split(".")
    width = TYPES[parts[-1]].width
    cells = np.array(values[0], f"u{width // 8}")
    b, c = (np.array(one, cells.dtype) for one in values[1:])
    got = np.zeros(COUNT, cells.dtype)
    shared = any(one.startswith("shared") for one in parts)
    third = ", %v3" if operation(parts) == "cas" else ""
    policy = ", %d9" if "L2::cache_hint" in parts else ""
    where = "[%d5]" if shared else "[%d1]"
    result = "%v4, " if parts[0] == "atom" else ""
    body = f"{text} {result}{where}, %v2{third}{policy};"
    pointers = "".join(
        f"ld.param.u64 %d{index}, [p{index}]; add.u64 %d{index}, %d{index}, %d8;"
        for index in range(1, 5)
    )
    module = Module(f"""
        .version 8.8 .target sm_90 .address_size 64
        .entry k(.param .u64 p1, .param .u64 p2, .param .u64 p3, .param .u64 p4) {{
        .reg .b{width} %v<6>; .reg .b64 %d<10>; .reg .b32 %t;
        .shared .align 16 .b8 tile[{COUNT * width // 8}];
        mov.u32 %t, %tid.x; mul.wide.u32 %d8, %t, {width // 8}; {pointers}
        mov.u64 %d5, tile; add.u64 %d5, %d5, %d8; createpolicy.fractional.L2::evict_last.b64 %d9;
        ld.global.b{width} %v1, [%d1]; ld.global.b{width} %v2, [%d2]; ld.global.b{width} %v3, [%d3];
        mov.b{width} %v4, %v1; st.shared.b{width} [%d5], %v1; {body}
        ld.shared.b{width} %v5, [%d5]; {f"st.global.b{width} [%d1], %v5;" if shared else ""}
        st.global.b{width} [%d4], %v4; ret; }}""")
    module.kernel("k").launch([1], [COUNT], [cells, b, c, got], seed=seed)
    return cells, got


@pytest.mark.drawn(1 / 2)
@pytest.mark.parametrize("row", ROWS_OF_SCALARS, ids=lambda row: row.pattern)
def test_cells(row: Form, rng: np.random.Generator, seed: int) -> None:
    last = row.parts()[-1]
    kinds = [one.strip(".") for one in last] if len(last) > 1 else [last[0].rpartition(".")[2]]
    names = {operation(one.split(".")) for one in row.spellings()}
    for kind in kinds:
        for name in sorted(names):
            text = spelling(row, rng, kind, name)
            values = operands(rng, (kind if kind in EDGES else f"b{TYPES[kind].width}",) * 3, COUNT)
            values[1][:8] = values[0][:8]  # some comparisons must succeed
            cells, got = execute(text, values, seed)
            for index, (old, b, c) in enumerate(zip(*values, strict=True)):
                expected = updated(text.split("."), old, b, c)
                given = int(cells[index])
                assert int(got[index]) == old
                assert given == expected or (expected is None and is_nan(given, kind)), (
                    f"{text} of {old:#x} and {b:#x}: got {given:#x}, expected {expected}"
                )


def is_nan(bits: int, kind: str) -> bool:
    one = TYPES[kind]
    if one.kind == "packed":
        return any(decode(bits >> shift & 0xFFFF, one.element.name).is_nan for shift in (0, 16))
    return decode(bits, kind).is_nan
