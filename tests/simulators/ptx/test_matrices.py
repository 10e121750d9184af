"""mma.sync in every supported shape, with fragments laid out as in the manual."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest

from simulators.ptx.launch import Module
from simulators.ptx.warp import _SHAPES

HEAD = ".version 9.0\n.target sm_90\n.address_size 64\n"


def fragment(values: np.ndarray, lane: int, *, is_b: bool, tf32: bool) -> list[int]:
    """Return a lane's registers for A (16 x k, rows) or B (k x 8, columns), as in §9.7.14."""
    group, inner = divmod(lane, 4)
    depth = values.shape[0] if is_b else values.shape[1]
    run = 1 if tf32 else 2
    registers = []
    for k in range(0, depth, 4 * run):
        for row in (0,) if is_b else (0, 8):
            word = 0
            for part in range(run):
                column = k + inner * run + part
                one = values[column, group] if is_b else values[group + row, column]
                word |= int(one.view("u4" if tf32 else "u2")) << 16 * part
            registers.append(word)
    return registers


@pytest.mark.parametrize("shape", sorted(one for one in _SHAPES if one.endswith(("f16", "f32"))))
def test_product(shape: str, rng: np.random.Generator, seed: int) -> None:
    size, _, _, _, kind, _, total = shape.split(".")
    depth = int(size.rpartition("k")[2])
    tf32, narrow = kind == "tf32", total == "f16"
    dtype = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "tf32": np.float32}[kind]
    a, b = rng.normal(size=(16, depth)).astype(dtype), rng.normal(size=(depth, 8)).astype(dtype)
    if tf32:
        a, b = ((one.view("u4") & 0xFFFFE000).view("f4") for one in (a, b))
    c = rng.normal(size=(16, 8)).astype("f2" if narrow else "f4")
    words = np.zeros((32, 16), "u4")
    counts = [0, 0, 2 if narrow else 4]
    for lane in range(32):
        group, pair = lane // 4, lane % 4 * 2
        first = fragment(a, lane, is_b=False, tf32=tf32)
        second = fragment(b, lane, is_b=True, tf32=tf32)
        corner = np.concatenate([c[group, pair : pair + 2], c[group + 8, pair : pair + 2]])
        third = corner.view("u4").tolist()
        counts[:2] = len(first), len(second)
        words[lane, : sum(counts)] = [*first, *second, *third]
    out = np.zeros((32, 4), "u4")
    names = [f"%r{index}" for index in range(sum(counts))]
    loads = "".join(f"ld.global.b32 {name}, [%d1+{4 * i}];" for i, name in enumerate(names))
    groups = [
        names[: counts[0]],
        names[counts[0] : counts[0] + counts[1]],
        names[-counts[2] :],
    ]
    given = ", ".join("{" + ", ".join(one) + "}" for one in [groups[2], *groups])
    stores = "".join(f"st.global.b32 [%d2+{4 * i}], {name};" for i, name in enumerate(groups[2]))
    text = (
        f"{HEAD}.entry k(.param .u64 x, .param .u64 y) {{ .reg .b32 %r<20>; .reg .b32 %t;"
        ".reg .b64 %d<3>; ld.param.u64 %d1, [x]; ld.param.u64 %d2, [y]; mov.u32 %t, %tid.x;"
        f"mad.wide.u32 %d1, %t, 64, %d1; mad.wide.u32 %d2, %t, 16, %d2; {loads}"
        f"mma.sync.aligned.{shape} {given}; {stores} ret; }}"
    )
    addresses = [words, out]
    Module(text).kernel("k").launch([1], [32], addresses, seed=seed)
    expected = a.astype("f8") @ b.astype("f8") + c.astype("f8")
    for lane in range(32):
        group, pair = lane // 4, lane % 4 * 2
        got = out[lane, : counts[2]].view(c.dtype).astype("f8").reshape(2, 2)
        wanted = expected[[group, group + 8], pair : pair + 2]
        np.testing.assert_allclose(got, wanted, rtol=2e-3 if narrow else 1e-4, atol=2e-3)


def multiply(shape: str, words: np.ndarray, counts: list[int], bits: int, seed: int) -> np.ndarray:
    """Give each lane its registers of A, B and C; return D's registers."""
    letter, size = ("%r", 4) if bits == 32 else ("%d1", 8)
    names = [f"{letter}{index}" for index in range(sum(counts))]
    loads = "".join(f"ld.global.b{bits} {name}, [%x+{size * i}];" for i, name in enumerate(names))
    ends = np.cumsum([0, *counts])
    groups = [names[start:end] for start, end in itertools.pairwise(ends)]
    given = ", ".join("{" + ", ".join(one) + "}" for one in [groups[2], *groups])
    stores = "".join(
        f"st.global.b{bits} [%y+{size * i}], {name};" for i, name in enumerate(groups[2])
    )
    text = (
        f"{HEAD}.entry k(.param .u64 x, .param .u64 y) {{ .reg .b32 %r<20>; .reg .b32 %t;"
        ".reg .b64 %x; .reg .b64 %y; .reg .b64 %d<20>; ld.param.u64 %x, [x]; ld.param.u64 %y, [y];"
        f"mov.u32 %t, %tid.x; mad.wide.u32 %x, %t, {size * sum(counts)}, %x;"
        f"mad.wide.u32 %y, %t, {size * counts[2]}, %y; {loads}"
        f"mma.sync.aligned.{shape} {given}; {stores} ret; }}"
    )
    out = np.zeros((32, counts[2]), words.dtype)
    Module(text).kernel("k").launch([1], [32], [words, out], seed=seed)
    return out


@pytest.mark.parametrize("shape", sorted(one for one in _SHAPES if one.endswith("s32")))
def test_product_of_bytes(shape: str, rng: np.random.Generator, seed: int) -> None:
    """Fragments element by element, by the manual's formulas for row and column (§9.7.14.5)."""
    parts = shape.split(".")
    rows, depth = (int(one) for one in parts[0].removeprefix("m").split("n8k"))
    first, second = parts[-3], parts[-2]
    a = rng.integers(0, 256, (rows, depth), dtype="u1").view("i1" if first == "s8" else "u1")
    b = rng.integers(0, 256, (depth, 8), dtype="u1").view("i1" if second == "s8" else "u1")
    c = rng.choice([0, 5, -7, 2**31 - 1, -(2**31)], (rows, 8)).astype("i4")
    a_registers, b_registers, c_registers = rows * depth // 128, depth // 16, rows // 4
    words = np.zeros((32, a_registers + b_registers + c_registers), "u4")
    for lane in range(32):
        group, inner = divmod(lane, 4)
        for i in range(4 * a_registers):
            row = group + 8 * (i // 4 % 2)
            column = 4 * inner + i % 4 + 16 * (i // 8)
            words[lane, i // 4] |= np.uint32(int(a[row, column]) & 0xFF) << np.uint32(i % 4 * 8)
        for i in range(4 * b_registers):
            row = 4 * inner + i % 4 + 16 * (i // 4)
            byte = np.uint32(int(b[row, group]) & 0xFF) << np.uint32(i % 4 * 8)
            words[lane, a_registers + i // 4] |= byte
        for i in range(c_registers):
            value = c[group + 8 * (i // 2), 2 * inner + i % 2]
            words[lane, a_registers + b_registers + i] = int(value) & 0xFFFFFFFF
    out = multiply(shape, words, [a_registers, b_registers, c_registers], 32, seed)
    exact = a.astype("i8") @ b.astype("i8") + c
    expected = np.clip(exact, -(2**31), 2**31 - 1) if "satfinite" in shape else exact
    for lane in range(32):
        group, inner = divmod(lane, 4)
        for i in range(c_registers):
            wanted = int(expected[group + 8 * (i // 2), 2 * inner + i % 2]) & 0xFFFFFFFF
            assert int(out[lane, i]) == wanted


def test_product_of_doubles(rng: np.random.Generator, seed: int) -> None:
    a, b, c = rng.normal(size=(8, 4)), rng.normal(size=(4, 8)), rng.normal(size=(8, 8))
    words = np.zeros((32, 4))
    for lane in range(32):
        group, inner = divmod(lane, 4)
        words[lane] = [a[group, inner], b[inner, group], *c[group, 2 * inner : 2 * inner + 2]]
    out = multiply("m8n8k4.row.col.f64.f64.f64.f64", words, [1, 1, 2], 64, seed)
    expected = a @ b + c
    for lane in range(32):
        group, inner = divmod(lane, 4)
        wanted = expected[group, 2 * inner : 2 * inner + 2]
        np.testing.assert_allclose(out[lane], wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("transposed", ["", ".trans"])
def test_matrices_through_shared_memory(
    rng: np.random.Generator, seed: int, count: int, transposed: str
) -> None:
    """Matrices are loaded, moved (transposed), and stored at another place."""
    x = rng.integers(0, 1 << 16, (count, 8, 8), dtype="u2")
    y = np.zeros_like(x)
    registers = "{" + ", ".join(f"%r{index}" for index in range(count)) + "}"
    moves = "".join(f"movmatrix.sync.aligned.m8n8.trans.b16 %r{i}, %r{i};" for i in range(count))
    text = f"""{HEAD}.entry k(.param .u64 x, .param .u64 y) {{
        .shared .align 16 .b8 tile[{128 * count}]; .shared .align 16 .b8 other[{128 * count}];
        .reg .b32 %r<12>; .reg .b64 %d<9>; .reg .pred %p;
        ld.param.u64 %d1, [x]; ld.param.u64 %d2, [y]; mov.u32 %r9, %tid.x;
        setp.lt.u32 %p, %r9, {8 * count}; mul.lo.u32 %r8, %r9, 16; cvt.u64.u32 %d3, %r8;
        add.u64 %d1, %d1, %d3; add.u64 %d2, %d2, %d3; mov.u32 %r10, tile; add.u32 %r10, %r10, %r8;
        mov.u32 %r11, other; add.u32 %r11, %r11, %r8;
        @%p ld.global.v2.b64 {{%d4, %d5}}, [%d1]; @%p st.shared.v2.b64 [%r10], {{%d4, %d5}};
        bar.sync 0;
        ldmatrix.sync.aligned.m8n8.x{count}{transposed}.shared.b16 {registers}, [%r10]; {moves}
        stmatrix.sync.aligned.m8n8.x{count}{transposed}.shared.b16 [%r11], {registers};
        bar.sync 0;
        @%p ld.shared.v2.b64 {{%d4, %d5}}, [%r11]; @%p st.global.v2.b64 [%d2], {{%d4, %d5}};
        ret; }}"""
    Module(text).kernel("k").launch([1], [32], [x, y], seed=seed)
    np.testing.assert_array_equal(y, x.transpose(0, 2, 1))
