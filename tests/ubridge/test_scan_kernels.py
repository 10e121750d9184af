"""Running sums on devices: kernels of whole lines and of pieces, and the launches of a sum."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ubridge as ub
from tests.sampling import rounds
from tests.ubridge.kernel_bench import (
    INTEGERS,
    Array,
    Output,
    assert_same,
    numpy_dtype,
    random_geometry,
    random_values,
    run,
)
from ubridge import OPS, DeviceExecutor, Layout
from ubridge.core.accuracy import ROUNDING
from ubridge.core.question import Question
from uhal import Device, DeviceBuffer, as_dtype

pytestmark = pytest.mark.entries

TYPES = ("f32", "f64", "f16", "bf16", *INTEGERS)
TOTALS = {"f16": "f32", "bf16": "f32"}


def assert_sums(got: Array, x: Array, dtype: str) -> None:
    """Compare with the sums of `x` along its second axis; each addition rounds once."""
    if dtype in INTEGERS:
        assert_same(got.ravel(), np.cumsum(x, 1, dtype=x.dtype))
        return
    wide = x.astype(np.longdouble)
    exact, magnitude = np.cumsum(wide, 1), np.cumsum(abs(wide), 1)
    computed = ROUNDING["f64" if dtype == "f64" else "f32"]
    bound = ROUNDING[dtype] * abs(exact) + (1 + x.shape[1]) * computed * magnitude
    error = abs(got.reshape(x.shape).astype(np.longdouble) - exact)
    assert (error <= 1.01 * bound + np.finfo(np.float32).tiny).all()


@pytest.mark.parametrize("dtype", TYPES)
def test_lines_are_scanned_in_pieces(device: Device, rng: np.random.Generator, dtype: str) -> None:
    for right in rounds([1, int(rng.integers(2, 40))], [1, 2, 31, 32, 33, 100]):
        left, length = int(rng.integers(1, 4)), int(rng.integers(2, 700))
        x = random_values(rng, dtype, left * length * right, special=False)
        x = x.reshape(left, length, right)
        part = int(rng.integers(1, length))
        pieces = -(-length // part)
        given = DeviceBuffer.from_numpy(x.ravel())
        total_dtype = TOTALS.get(dtype, dtype)
        totals = Output(total_dtype, left * pieces * right)
        sizes = (left, length, right, part)
        geometry: Any = random_geometry(rng)
        run(device, "scan", f"scan_totals_{dtype}", given, totals.buffer, *sizes, **geometry)
        before = Output(total_dtype, totals.count)
        of_totals: tuple[Any, ...] = (totals.buffer, before.buffer, None)
        of_totals = (*of_totals, left, pieces, right, pieces)
        run(device, "scan", f"scan_{total_dtype}", *of_totals, **random_geometry(rng))
        output = Output(dtype, x.size)
        operands: tuple[Any, ...] = (given, output.buffer, before.buffer)
        run(device, "scan", f"scan_{dtype}", *operands, *sizes, **random_geometry(rng))
        assert_sums(output.to_numpy(), x, dtype)
        whole = Output(dtype, x.size)
        operands = (given, whole.buffer, None)
        run(device, "scan", f"scan_{dtype}", *operands, left, length, right, length, **geometry)
        assert_sums(whole.to_numpy(), x, dtype)


@pytest.mark.parametrize("dtype", ["f32", "f16", "i32"])
@pytest.mark.parametrize("shape", [(1, 20_000, 1), (1, 2_100, 9), (3, 12, 40)])
def test_sums_take_three_launches_at_most(
    simulated_cuda: None, rng: np.random.Generator, shape: tuple[int, int, int], dtype: str
) -> None:
    x = rng.integers(-3, 4, shape).astype(numpy_dtype(dtype))
    line = (as_dtype(dtype), Layout.contiguous(shape))
    with Device(0, backend="cuda") as device:
        prepared = DeviceExecutor.of(device).prepare(Question(OPS["cumsum"], (line,), line))
        assert len(prepared.launches) == (3 if shape[1] > 2_000 else 1)
        assert_sums(ub.cumsum(ub.asarray(x), 1).to_numpy(), x, dtype)
