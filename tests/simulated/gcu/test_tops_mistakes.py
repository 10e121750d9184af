"""Errors of Ubridge's entries on GCUs, reproduced by the simulated GCU."""

from __future__ import annotations

import numpy as np

from tests.simulated.gcu.launcher import Gcu
from tests.simulated.gcu.reference import check, sample


def test_a_row_is_taken_for_one_element_when_any_stride_is_zero(gcu: Gcu) -> None:
    x, y = sample(gcu.rng, (4, 6), "f32"), sample(gcu.rng, 6, "f32")
    info = gcu.put(np.array([4, 6, 6, 1, 0, 1]), "i64").view("u64")
    out = gcu.out(24, "f32")
    gcu.run("binary", "badd_f32", 24, 2, info, gcu.put(x, "f32"), gcu.put(y, "f32"), out)
    check(gcu.got(out, 24, "f32"), (x + y[0]).ravel(), "f32")


def test_strides_are_not_looked_at(gcu: Gcu) -> None:
    x, y = (sample(gcu.rng, (4, 6), "f32") for _ in range(2))
    info = gcu.put(np.array([4, 6, 1, 4, 6, 1]), "i64").view("u64")
    out = gcu.out(24, "f32")
    gcu.run("binary", "bmul_f32", 24, 2, info, gcu.put(x, "f32"), gcu.put(y, "f32"), out)
    check(gcu.got(out, 24, "f32"), (x * y).ravel(), "f32")


def test_ids_that_come_twice_lose_what_another_sip_adds(gcu: Gcu) -> None:
    out = gcu.put(np.zeros((3, 2)), "f32")
    ids, ones = gcu.put(np.zeros(12), "u32"), gcu.put(np.ones((12, 2)), "f32")
    gcu.run("indexing", "ia_u32_f32", ids, 12, ones, out, 1, 12, 3, 2, blocks=1)
    assert out.to_numpy()[:2].tolist() == [1, 1]  # the correct sum is 12
    gcu.run("indexing", "ia_u32_f32", ids, 12, ones, out, 1, 12, 3, 2, blocks=1)
    assert out.to_numpy()[:2].tolist() == [2, 2]


def test_gather_knows_of_one_element_behind_the_axis(gcu: Gcu) -> None:
    x, ids = sample(gcu.rng, (1, 5, 3), "f32"), np.array([[[1, 2, 3], [4, 0, 1]]])
    out = gcu.out(6, "f32")
    operands = (gcu.put(ids, "u32"), gcu.put(x, "f32"), out)
    gcu.run("indexing", "gather_u32_f32", 6, *operands, 1, 5, 2, 3)
    right = np.take_along_axis(x, ids, 1).ravel()
    assert not np.array_equal(gcu.got(out, 6, "f32"), right)


def test_values_beyond_the_filling_break_the_order(gcu: Gcu) -> None:
    x = np.array([[20000.0, 1.0, 2.0]])
    out = gcu.out(3, "u32")
    gcu.run("sort", "asort_asc_f32", gcu.put(x, "f32"), out, 1, 3, 4, False, shared=64)
    assert gcu.got(out, 3, "u32").tolist() == [1, 2, 3]  # 3 is the index of a padding element


def test_a_convolution_of_one_axis_needs_one_block(gcu: Gcu) -> None:
    x, kernel = np.ones((1, 1, 100)), np.ones((1, 1, 1))
    info = gcu.put(np.array([1, 1, 100, 100, 100, 1, 1, 1, 1, 1, 1, 1]), "i64").view("u64")
    for blocks, right in ((1, 100), (2, 48)):
        out = gcu.out(100, "f32")
        operands = (info, gcu.put(x, "f32"), gcu.put(kernel, "f32"), out)
        gcu.run("conv", "conv1d_f32", 100, 100, 1, 0, 1, *operands, blocks=blocks)
        assert gcu.got(out, 100, "f32").sum() == right
