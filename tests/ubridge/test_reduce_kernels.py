"""Reductions, softmax, normalizations and rotary embeddings against numpy in higher precision.

Sums of any length are within 24 roundings of the accumulator's type, relative to the sum of
magnitudes, and one rounding to the stored type.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.sampling import rounds
from tests.ubridge.kernel_bench import (
    INTEGERS,
    Array,
    Output,
    Strided,
    assert_same,
    numpy_dtype,
    random_values,
    row_block,
    run,
    strided,
    words,
)
from uhal import Device, DeviceBuffer

pytestmark = pytest.mark.entries

REAL = ("f32", "f64", "f16", "bf16")
TYPES = (*REAL, *INTEGERS)
EPSILON = {"f32": 2.0**-24, "f64": 2.0**-53, "f16": 2.0**-11, "bf16": 2.0**-8}
ACCUMULATED = {"f32": 2.0**-24, "f64": 2.0**-53, "f16": 2.0**-24, "bf16": 2.0**-24}
LAYOUTS = ("contiguous", "offset", "transposed", "broadcast", "stepped", "prime")
Wide = np.longdouble


def close(got: Array, expected: Array, magnitude: Array, dtype: str, roundings: float) -> None:
    """Assert equal NaNs and infinities, and errors within roundings of `magnitude` and one
    store."""
    wide = got.astype(Wide).reshape(expected.shape)
    np.testing.assert_array_equal(np.isnan(wide), np.isnan(expected))
    finite = np.isfinite(expected) & np.isfinite(wide)
    with np.errstate(over="ignore"):
        stored = expected.astype(numpy_dtype(dtype)).astype(Wide)
    beyond = ~finite & ~np.isnan(expected)
    np.testing.assert_array_equal(wide[beyond], stored[beyond])
    allowed = roundings * ACCUMULATED[dtype] * magnitude + EPSILON[dtype] * np.abs(expected) * 1.01
    allowed += float(np.finfo(numpy_dtype(dtype)).smallest_subnormal) if dtype != "bf16" else 1e-40
    error = np.abs(wide - expected)[finite]
    assert (error <= allowed[finite]).all(), float((error / allowed[finite]).max())


def reduced(
    device: Device, rng: np.random.Generator, entry: str, given: Strided, axes: list[int], out: str
) -> Array:
    """Launch as Candle does: kept dims first, then the reduced dims."""
    kept = [axis for axis in range(len(given.shape)) if axis not in axes]
    order = [*kept, *axes]
    shape = [given.shape[axis] for axis in order]
    strides = [given.strides[axis] for axis in order]
    count = int(np.prod([given.shape[axis] for axis in axes]))
    rows = int(np.prod([given.shape[axis] for axis in kept]))
    output = Output(out, rows)
    info = words(shape, strides)
    run(
        device,
        "reduce",
        entry,
        given.numel,
        count,
        len(shape),
        info,
        given.buffer(),
        output.buffer,
        grid=(int(rng.integers(1, rows + 2)), int(rng.integers(1, 3))),
        block=row_block(rng, rows),
    )
    return output.to_numpy()


def cases(
    rng: np.random.Generator, dtype: str, *, special: bool
) -> list[tuple[Strided, list[int]]]:
    found = []
    for layout in LAYOUTS:
        given = strided(rng, dtype, layout, special=special)
        rank = len(given.shape)
        axes = sorted(int(axis) for axis in rng.permutation(rank)[: int(rng.integers(1, rank + 1))])
        found.append((given, axes))
    return found


@pytest.mark.parametrize("dtype", TYPES)
def test_sums(device: Device, rng: np.random.Generator, dtype: str) -> None:
    for special in (False, True):
        for given, axes in cases(rng, dtype, special=special):
            got = reduced(device, rng, f"fast_sum_{dtype}", given, axes, dtype)
            if dtype in INTEGERS:
                with np.errstate(over="ignore"):
                    assert_same(got, given.values.sum(tuple(axes), dtype=given.values.dtype))
                continue
            values = given.values.astype(Wide)
            with np.errstate(invalid="ignore"):
                expected = values.sum(tuple(axes))
            close(got, expected, np.abs(values).sum(tuple(axes)), dtype, 24)


@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_a_long_sum_keeps_its_bound(device: Device, rng: np.random.Generator, dtype: str) -> None:
    count = rounds(1_000_003, 50_000_017)
    values = rng.uniform(0, 1e-2, count).astype(numpy_dtype(dtype))
    output = Output(dtype, 1)
    given = DeviceBuffer.from_numpy(values)
    run(device, "reduce", f"fast_sum_{dtype}", count, count, 1, None, given, output.buffer)
    expected = values.astype(np.float64).sum(keepdims=True).astype(Wide)
    close(output.to_numpy(), expected, expected, dtype, 24)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("reduction", ["min", "max"])
def test_extremes(device: Device, rng: np.random.Generator, reduction: str, dtype: str) -> None:
    for special in (False, True):
        for given, axes in cases(rng, dtype, special=special):
            got = reduced(device, rng, f"fast_{reduction}_{dtype}", given, axes, dtype)
            expected = getattr(np, reduction)(given.values, tuple(axes))
            assert_same(got, np.asarray(expected, given.values.dtype))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("reduction", ["argmin", "argmax"])
def test_the_first_of_the_best(
    device: Device, rng: np.random.Generator, reduction: str, dtype: str
) -> None:
    for special in (False, True):
        for given, axes in cases(rng, dtype, special=special):
            # Few different values: most rows have ties.
            few = random_values(rng, dtype, 4, special=special)
            given.storage[...] = rng.choice(few, given.storage.size)
            got = reduced(device, rng, f"fast_{reduction}_{dtype}", given, axes[:1], "u32")
            values = given.values
            if dtype == "bf16":
                values = values.astype(np.float32)
            expected = getattr(np, reduction)(values, axes[0]).astype(np.uint32)
            assert_same(got, np.asarray(expected))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("reduction", ["sum", "min", "max", "argmin", "argmax"])
def test_of_no_elements(device: Device, reduction: str, dtype: str) -> None:
    """Each block writes a result: 0, or for an index the mark for "none"."""
    is_place = reduction.startswith("arg")
    output = Output("u32" if is_place else dtype, 3)
    given = DeviceBuffer.from_numpy(np.ones(1, numpy_dtype(dtype)))
    run(
        device,
        "reduce",
        f"fast_{reduction}_{dtype}",
        0,
        0,
        2,
        words((3, 0), (0, 1)),
        given,
        output.buffer,
        grid=3,
        block=32,
    )
    if is_place:
        expected: Any = 2**32 - 1
    elif reduction == "sum":
        expected = 0
    elif dtype in INTEGERS:
        limits = np.iinfo(numpy_dtype(dtype))
        expected = limits.max if reduction == "min" else limits.min
    else:
        expected = np.inf if reduction == "min" else -np.inf
    assert_same(output.to_numpy(), np.full(3, expected, output.dtype))


@pytest.mark.parametrize("dtype", TYPES)
def test_many_short_rows(device: Device, rng: np.random.Generator, dtype: str) -> None:
    """Rows have 1 to 130 elements, several rows to a block; the last block's rows end with the
    array."""
    lengths = {1, 16, *(int(length) for length in rng.integers(1, 131, rounds(4, 130)))}
    for count in lengths:
        rows = int(rng.integers(1, 200))
        layout = str(rng.choice(["contiguous", "offset"]))
        given = strided(rng, dtype, layout, (rows, count), special=bool(rng.random() < 0.5))
        info = None if layout == "contiguous" else words(given.shape, given.strides)
        grid = int(rng.integers(1, 4))
        for reduction in ("sum", "min", "max"):
            output = Output(dtype, rows)
            run(
                device,
                "reduce",
                f"fast_{reduction}_{dtype}",
                given.numel,
                count,
                2,
                info,
                given.buffer(),
                output.buffer,
                grid=grid,
                block=32,
            )
            got = output.to_numpy()
            with np.errstate(all="ignore"):
                if reduction != "sum":
                    expected = getattr(np, reduction)(given.values, 1)
                    assert_same(got, np.asarray(expected, given.values.dtype))
                elif dtype in INTEGERS:
                    assert_same(got, given.values.sum(1, dtype=given.values.dtype))
                else:
                    values = given.values.astype(Wide)
                    close(got, values.sum(1), np.abs(values).sum(1), dtype, 24)


def test_what_candle_gets_wrong_in_ties(device: Device) -> None:
    for row, expected in (([0, 5, 5, 0], 1), ([0, 7, 0, 7, 7, 0, 0, 7], 1)):
        output = Output("u32", 1)
        given = DeviceBuffer.from_numpy(np.array(row, np.float32))
        run(device, "reduce", "fast_argmax_f32", len(row), len(row), 1, None, given, output.buffer)
        assert output.to_numpy().tolist() == [expected]


@pytest.mark.parametrize("dtype", ["bf16", "f16", "f32", "f64", "u32"])
def test_sum_into(device: Device, rng: np.random.Generator, dtype: str) -> None:
    for layout in ("contiguous", "transposed"):
        given = strided(rng, dtype, layout, (3, 5, 7), special=False)
        output = Output.holding(dtype, np.zeros(5, numpy_dtype(dtype)))
        # Reduce dims 0 and 2 of 3 x 5 x 7: the lengths list dim 2 first, then dim 0.
        info = words(given.shape, given.strides, (7, 3), (1, 5))
        run(
            device, "reduce", f"sum_{dtype}", given.numel, 3, 2, info, given.buffer(), output.buffer
        )
        if dtype == "u32":
            assert_same(output.to_numpy(), given.values.sum((0, 2), dtype=np.uint32))
        else:
            values = given.values.astype(Wide)
            magnitude = np.abs(values).sum((0, 2))
            close(output.to_numpy(), values.sum((0, 2)), magnitude, dtype, 24)


def rows_of(rng: np.random.Generator, dtype: str) -> tuple[int, int, Array]:
    rows, cols = int(rng.integers(1, 6)), int(rng.choice([1, 2, 31, 64, 1021, 3000]))
    scale = rng.uniform(0.1, 8)
    values = (rng.standard_normal((rows, cols)) * scale).astype(numpy_dtype(dtype))
    return rows, cols, values


@pytest.mark.parametrize("dtype", REAL)
def test_softmax(device: Device, rng: np.random.Generator, dtype: str) -> None:
    for _ in range(rounds(6, 300)):
        rows, cols, values = rows_of(rng, dtype)
        output = Output(dtype, rows * cols)
        given = DeviceBuffer.from_numpy(values.ravel())
        run(
            device,
            "reduce",
            f"softmax_{dtype}",
            given,
            output.buffer,
            cols,
            grid=rows,
            block=row_block(rng),
        )
        wide = values.astype(Wide)
        raised = np.exp(wide - wide.max(1, keepdims=True))
        expected = raised / raised.sum(1, keepdims=True)
        # The rounding error of the exponent grows with the exponent.
        span = float(wide.max() - wide.min())
        close(output.to_numpy(), expected, expected, dtype, 30 + span)


def test_softmax_of_infinities(device: Device) -> None:
    values = np.array([[0, -np.inf, 1], [np.nan, 0, 1], [-np.inf] * 3], np.float32)
    output = Output("f32", 9)
    given = DeviceBuffer.from_numpy(values.ravel())
    run(device, "reduce", "softmax_f32", given, output.buffer, 3, grid=3, block=(1, 32))
    got = output.to_numpy().reshape(3, 3)
    assert got[0, 1] == 0 and abs(got[0].sum() - 1) < 1e-6
    assert np.isnan(got[1:]).all()


@pytest.mark.parametrize("dtype", REAL)
@pytest.mark.parametrize("kind", ["rms", "layer"])
def test_norms(device: Device, rng: np.random.Generator, kind: str, dtype: str) -> None:
    for _ in range(rounds(6, 300)):
        rows, cols, values = rows_of(rng, dtype)
        values = (values.astype(np.float64) + rng.uniform(-3, 3)).astype(values.dtype)
        alpha = rng.standard_normal(cols).astype(values.dtype)
        beta = rng.standard_normal(cols).astype(values.dtype)
        output = Output(dtype, rows * cols)
        given = DeviceBuffer.from_numpy(values.ravel())
        with_alpha, with_beta = bool(rng.random() < 0.8), bool(rng.random() < 0.8)
        weights: list[Any] = [DeviceBuffer.from_numpy(alpha) if with_alpha else None]
        if kind == "layer":
            weights.append(DeviceBuffer.from_numpy(beta) if with_beta else None)
        eps = 1e-5
        run(
            device,
            "reduce",
            f"{kind}norm_{dtype}",
            given,
            output.buffer,
            *weights,
            cols,
            32,
            eps,
            grid=rows,
            block=row_block(rng),
        )
        wide = values.astype(Wide)
        mean = wide.mean(1, keepdims=True) if kind == "layer" else 0
        centered = wide - mean
        scale = 1 / np.sqrt((centered**2).mean(1, keepdims=True) + Wide(np.float32(eps)))
        factor = alpha.astype(Wide) if with_alpha else Wide(1)
        expected = centered * scale * factor
        magnitude = np.abs(expected) + np.abs(wide) * scale * np.abs(factor)
        if kind == "layer" and with_beta:
            expected = expected + beta.astype(Wide)
            magnitude = magnitude + np.abs(beta.astype(Wide))
        # A thread adds long rows one element at a time: its roundings form a random walk.
        close(output.to_numpy(), expected, magnitude, dtype, max(40, 2 * cols**0.5))


def test_a_variance_that_cancels(device: Device, rng: np.random.Generator) -> None:
    """E[x^2] - mean^2 of numbers far from zero would lose all digits."""
    values = (1e4 + rng.standard_normal(4096)).astype(np.float32)
    output = Output("f32", values.size)
    given = DeviceBuffer.from_numpy(values)
    run(
        device,
        "reduce",
        "layernorm_f32",
        given,
        output.buffer,
        None,
        None,
        values.size,
        1024,
        1e-6,
        grid=1,
        block=64,
    )
    wide = values.astype(Wide)
    expected = (wide - wide.mean()) / np.sqrt(wide.var() + 1e-6)
    assert np.abs(output.to_numpy() - expected).max() < 1e-3


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("dtype", REAL)
@pytest.mark.parametrize("kind", ["rope_i", "rope", "rope_thd"])
def test_rope(
    device: Device, rng: np.random.Generator, kind: str, dtype: str, batched: bool
) -> None:
    b, h, t, d = (int(size) for size in rng.integers(1, 6, 4))
    d *= 2
    shape = (b, t, h, d) if kind == "rope_thd" else (b, h, t, d)
    values = rng.standard_normal(shape).astype(numpy_dtype(dtype))
    angles = (b, t, d // 2) if batched else (t, d // 2)
    cos, sin = (rng.uniform(-1, 1, angles).astype(numpy_dtype(dtype)) for _ in range(2))
    output = Output(dtype, values.size)
    buffers = [DeviceBuffer.from_numpy(one.ravel()) for one in (values, cos, sin)]
    stride_b = h * t * d if batched else 0
    sizes = {
        "rope_i": (b * h, t * d, stride_b),
        "rope": (b * h, t * d, d, stride_b),
        "rope_thd": (b, t, h, d, stride_b),
    }[kind]
    run(device, "reduce", f"{kind}_{dtype}", *buffers, output.buffer, *sizes)
    wide, c, s = (one.astype(Wide) for one in (values, cos, sin))
    if not batched:
        c, s = (np.broadcast_to(one, (b, t, d // 2)) for one in (c, s))
    axis = 2 if kind == "rope_thd" else 1
    c, s = np.expand_dims(c, axis), np.expand_dims(s, axis)
    if kind == "rope_i":
        first, second = wide[..., 0::2], wide[..., 1::2]
        parts = np.stack([first * c - second * s, first * s + second * c], -1)
        expected = parts.reshape(shape)
    else:
        first, second = wide[..., : d // 2], wide[..., d // 2 :]
        expected = np.concatenate([first * c - second * s, first * s + second * c], -1)
    magnitude = np.abs(wide).max() * 2 * np.ones(shape)
    close(output.to_numpy(), expected.astype(Wide), magnitude, dtype, 2)
