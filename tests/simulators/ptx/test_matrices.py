"""mma.sync in every shape that is executed: fragments laid out as the manual draws them."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from simulators.ptx.launch import Module
from simulators.ptx.warp import _SHAPES

HEAD = ".version 9.0\n.target sm_90\n.address_size 64\n"


def fragment(values: np.ndarray, lane: int, *, is_b: bool, tf32: bool) -> list[int]:
    """The registers of a lane for A (16 x k, rows) or for B (k x 8, columns), §9.7.14."""
    group, inner = divmod(lane, 4)
    depth = values.shape[0] if is_b else values.shape[1]
    run = 1 if tf32 else 2
    registers = []
    for k in range(0, depth, 4 * run):
        for row in (0,) if is_b else (0, 8):
            word = 0
            for place in range(run):
                column = k + inner * run + place
                one = values[column, group] if is_b else values[group + row, column]
                word |= int(one.view("u4" if tf32 else "u2")) << 16 * place
            registers.append(word)
    return registers


@pytest.mark.parametrize("shape", sorted(_SHAPES))
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
        names[: counts[0]], names[counts[0] : counts[0] + counts[1]], names[-counts[2] :],
    ]  # fmt: skip
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
