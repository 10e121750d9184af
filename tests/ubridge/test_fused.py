"""Log-softmax, gates and masks on tensors, by dtype and layout, against numpy in f64."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import ubridge
from tests.sampling import SOAK
from tests.ubridge.op_rows import OP_ROWS, OpRow, row_of
from tests.ubridge.operands import LAYOUTS, assert_close, operand, shape_of
from ubridge import OPS
from uhal import Device
from uhal.errors import ArgumentTypeError, NotSupportedError

DEVICES = tuple(row.name for row in OP_ROWS)
STEP = {"f64": 2.0**-53, "f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8}


@pytest.fixture(autouse=True)
def op_row(device: Device) -> OpRow:
    """Operations of the device under test."""
    row = row_of(device.backend)
    row.require_images()
    return row


def cases(row: OpRow, rng: np.random.Generator, name: str) -> Iterator[tuple[str, str]]:
    for dtype in OPS[name].dtypes:
        if row.has(OPS[name], dtype, None):
            for layout in LAYOUTS if SOAK else rng.choice(LAYOUTS, 3, replace=False):
                yield dtype, str(layout)


@pytest.mark.parametrize("axis", [-1, 0])
def test_log_softmax(axis: int, op_row: OpRow, device: Device, rng: np.random.Generator) -> None:
    for dtype, layout in cases(op_row, rng, "log_softmax"):
        shape = shape_of(rng, layout, rank=2)
        x = operand(rng, device, layout, dtype, shape, special=False)
        compensated = op_row.backend != "tops" and bool(rng.integers(2))
        got = ubridge.log_softmax(x.tensor, axis, compensated=compensated).to_numpy()
        told = f"{dtype} {layout} {shape}"
        assert got.shape == shape, told
        if not x.array.size:
            continue
        assert_log_softmax(got, x.array, axis, dtype, told)


def test_log_softmax_of_many_rows(op_row: OpRow, device: Device, rng: np.random.Generator) -> None:
    """More rows than any device's preferred number of blocks."""
    rows = int(rng.integers(129, 3000))
    x = operand(rng, device, "contiguous", "f32", (rows, 7), special=False)
    got = ubridge.log_softmax(x.tensor).to_numpy()
    assert_log_softmax(got, x.array, -1, "f32", f"{rows} rows")


def assert_log_softmax(
    got: np.ndarray, array: np.ndarray, axis: int, dtype: str, told: str
) -> None:
    wide = np.moveaxis(array.astype(np.longdouble), axis, -1)
    expected = np.moveaxis(OPS["log_softmax"].reference(wide), -1, axis)  # type: ignore[misc]
    # The logarithm, its argument's maximum and the result are each rounded.
    bound = STEP[dtype] * np.abs(expected)
    bound = bound + 8 * STEP["f64" if dtype == "f64" else "f32"] * (np.abs(expected) + 1)
    assert (np.abs(got.astype(np.longdouble) - expected) <= bound).all(), told


def test_what_compensated_sums_keep(
    op_row: OpRow, device: Device, rng: np.random.Generator
) -> None:
    """A plain sum of f32 would add runs of a million columns one after the other."""
    if op_row.backend == "tops":
        with pytest.raises(NotSupportedError, match="log_softmax: compensated sums need a kernel"):
            ubridge.log_softmax(ubridge.zeros((2, 3), device=device), compensated=True)
        return
    array = rng.uniform(-6, 6, (1, 1_000_003)).astype(np.float32)
    x = ubridge.from_numpy(array, device=device)
    exact = OPS["log_softmax"].reference(array.astype(np.longdouble))  # type: ignore[misc]
    found = {
        kept: np.abs(ubridge.log_softmax(x, compensated=kept).to_numpy() - exact).max()
        for kept in (True, False)
    }
    # The logarithm, the difference and the result, of magnitude 8 to 32, are each rounded once.
    assert found[True] <= 3 * 2.0**-24 * 32
    assert found[False] <= 1e-4


def test_silu_mul(op_row: OpRow, device: Device, rng: np.random.Generator) -> None:
    for dtype, layout in cases(op_row, rng, "silu_mul"):
        shape = shape_of(rng, layout)
        gate = operand(rng, device, layout, dtype, shape, special=False)
        up = operand(rng, device, str(rng.choice(LAYOUTS[:5])), dtype, shape, special=False)
        wide = [one.array.astype(np.longdouble) for one in (gate, up)]
        expected = OPS["silu_mul"].reference(*wide)  # type: ignore[misc]
        got = ubridge.silu_mul(gate.tensor, up.tensor).to_numpy()
        assert_close(got, expected, dtype, f"{dtype} {layout} {up.layout} {shape}", 2)


def test_masked_fill(op_row: OpRow, device: Device, rng: np.random.Generator) -> None:
    for dtype, layout in cases(op_row, rng, "masked_fill"):
        shape = shape_of(rng, layout)
        x = operand(rng, device, layout, dtype, shape)
        kept = tuple(1 if rng.random() < 0.3 else length for length in shape)
        mask = operand(rng, device, str(rng.choice(LAYOUTS[:5])), "bool", kept)
        value = float(rng.choice([-np.inf, 0.5, -0.0]))
        got = ubridge.masked_fill(x.tensor, mask.tensor, value).to_numpy()
        expected = np.where(mask.array, np.array(value).astype(x.array.dtype), x.array)
        assert got.tobytes() == expected.tobytes(), f"{dtype} {layout} {mask.layout} {shape}"


def test_masks_and_values_of_other_types(
    op_row: OpRow, device: Device, rng: np.random.Generator
) -> None:
    x = operand(rng, device, "stepped", "u32", (5, 7))
    mask = operand(rng, device, "transposed", "u8", (5, 7))
    got = ubridge.masked_fill(x.tensor, mask.tensor, 9).to_numpy()
    np.testing.assert_array_equal(got, np.where(mask.array, 9, x.array))
    whole = ubridge.full((5, 14), 77, "u32", device=device)
    ubridge.masked_fill(x.tensor, mask.tensor, 9, out=whole[:, ::2])
    np.testing.assert_array_equal(whole.to_numpy()[:, ::2], got)
    assert (whole.to_numpy()[:, 1::2] == 77).all()
    with pytest.raises(ArgumentTypeError, match="masked_fill: expected a value that u32 holds"):
        ubridge.masked_fill(x.tensor, mask.tensor, 0.5)
    with pytest.raises(OverflowError, match="masked_fill: Python integer -1 out of bounds"):
        ubridge.masked_fill(x.tensor, mask.tensor, -1)
