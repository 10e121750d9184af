"""Every pair of the cast kernels: integers wrap, floats saturate, everything is rounded once."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from tests.sampling import rounds
from tests.ubridge.kernel_bench import (
    FLOATS,
    INTEGERS,
    LAYOUTS,
    Array,
    Output,
    assert_same,
    numpy_dtype,
    random_geometry,
    random_values,
    run,
    strided,
    words,
)
from uhal import Device, DeviceBuffer

pytestmark = pytest.mark.entries

CASTS = (*INTEGERS, "i8", "u16", "u64")
TYPES = (*FLOATS, *CASTS)
FRACTION_BITS = {"f16": 10, "bf16": 7, "f8e4m3": 3, "f32": 23, "f64": 52}
LOWEST_EXPONENT = {"f16": -14, "bf16": -126, "f8e4m3": -6, "f32": -126, "f64": -1022}
LARGEST = {
    "f16": Fraction(65504),
    "bf16": Fraction(float.fromhex("0x1.fep127")),
    "f8e4m3": Fraction(448),
    "f32": Fraction(float.fromhex("0x1.fffffep127")),
    "f64": Fraction(float.fromhex("0x1.fffffffffffffp1023")),
}


def nearest(value: float | int, dtype: str) -> float:
    """Return the float nearest to an exact value, with ties to even."""
    if isinstance(value, float) and (value != value or value == 0):
        return value
    saturating = dtype == "f8e4m3"
    if value in (np.inf, -np.inf):
        return float(np.copysign(448.0 if saturating else np.inf, value))
    exact = abs(Fraction(value))
    if exact == 0:
        return 0.0
    exponent = exact.numerator.bit_length() - exact.denominator.bit_length()
    exponent -= Fraction(2) ** exponent > exact
    unit = Fraction(2) ** (max(exponent, LOWEST_EXPONENT[dtype]) - FRACTION_BITS[dtype])
    rounded = round(exact / unit) * unit
    result = float(rounded) if rounded <= LARGEST[dtype] else 448.0 if saturating else np.inf
    return -result if value < 0 else result


def converted(values: Array, source: str, target: str) -> Array:
    """Exact expected results of `cast_<source>_<target>`."""
    kind = numpy_dtype(target)
    if target in CASTS:
        if source in CASTS:
            return values.astype(kind)
        lowest, highest = (int(bound) for bound in (np.iinfo(kind).min, np.iinfo(kind).max))
        wide = values.astype(np.float64).tolist()
        bounded = [
            0 if x != x else lowest if x <= lowest else highest if x >= highest else int(x)
            for x in wide
        ]
        return np.array(bounded, kind)
    wide = values.tolist() if source in CASTS else values.astype(np.float64).tolist()
    return np.array([nearest(one, target) for one in wide], np.float64).astype(kind)


def inputs(rng: np.random.Generator, source: str) -> Array:
    """Return values of all sizes, at the bounds of every type, and halfway between neighbors."""
    count = rounds(300, 20_000)
    values = random_values(rng, source, count)
    if source in CASTS:
        info = np.iinfo(numpy_dtype(source))
        shifted = rng.integers(0, 1 << 62, count) >> rng.integers(0, 62, count)
        ties = ((1 << rng.integers(8, 62, count)) | (1 << rng.integers(0, 54, count))).astype(
            object
        )
        wanted = [*shifted.tolist(), *ties.tolist(), info.min, info.max]
        inside = [one for one in wanted if info.min <= one <= info.max]
        return np.concatenate([values, np.array(inside, info.dtype)])
    borders = [
        sign * 2.0**power * scale
        for power in (7, 8, 15, 16, 31, 32, 63, 64)
        for sign in (1, -1)
        for scale in (1 - 2.0**-53, 1, 1 + 2.0**-52, 1.5)
    ]
    large = rng.standard_normal(count) * np.exp2(rng.uniform(-150, 150, count))
    halves = rng.standard_normal(count).astype(np.float16).astype(np.float64)
    between = halves + np.exp2(np.frexp(halves)[1] - 12.0) * (1 + rng.choice([0, 2.0**-40], count))
    with np.errstate(all="ignore"):
        extra = np.concatenate([borders, large, between]).astype(numpy_dtype(source))
    return np.concatenate([values, extra])


@pytest.mark.parametrize("target", TYPES)
@pytest.mark.parametrize("source", TYPES)
def test_values(device: Device, rng: np.random.Generator, source: str, target: str) -> None:
    values = inputs(rng, source)
    output = Output(target, values.size)
    given = DeviceBuffer.from_numpy(values)
    run(device, "cast", f"cast_{source}_{target}", values.size, 1, None, given, output.buffer)
    assert_same(output.to_numpy(), converted(values, source, target))


@pytest.mark.parametrize("dtype", ["f8e4m3", "f16", "bf16"])
def test_every_small_float(device: Device, dtype: str) -> None:
    """Every bit pattern survives a cast to f32 and back."""
    size = numpy_dtype(dtype).itemsize
    patterns = np.arange(1 << 8 * size).astype(np.uint8 if size == 1 else np.uint16)
    values = patterns.view(numpy_dtype(dtype))
    wide, back = Output("f32", values.size), Output(dtype, values.size)
    given = DeviceBuffer.from_numpy(values)
    run(device, "cast", f"cast_{dtype}_f32", values.size, 1, None, given, wide.buffer)
    assert_same(wide.to_numpy(), values.astype(np.float32))
    run(device, "cast", f"cast_f32_{dtype}", values.size, 1, None, wide.buffer, back.buffer)
    assert_same(back.to_numpy(), values)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("source", "target"), [("f32", "f16"), ("u8", "f64"), ("bf16", "f8e4m3"), ("f64", "i64")]
)
def test_layouts(
    device: Device, rng: np.random.Generator, source: str, target: str, layout: str
) -> None:
    given = strided(rng, source, layout)
    output = Output(target, given.numel)
    info = None if given.is_contiguous() else words(given.shape, given.strides)
    run(
        device,
        "cast",
        f"cast_{source}_{target}",
        given.numel,
        len(given.shape),
        info,
        given.buffer(),
        output.buffer,
        **random_geometry(rng),
    )
    assert_same(output.to_numpy(), converted(given.values.ravel(), source, target))


@pytest.mark.parametrize("pair", ["f8_e4m3_f32", "f32_f8_e4m3", "f8_e4m3_f8_e4m3"])
def test_candles_spelling(device: Device, rng: np.random.Generator, pair: str) -> None:
    types = pair.replace("f8_e4m3", "f8e4m3").split("_")
    values = random_values(rng, types[0], 100)
    output = Output(types[1], 100)
    given = DeviceBuffer.from_numpy(values)
    run(device, "cast", f"cast_{pair}", 100, 1, None, given, output.buffer)
    assert_same(output.to_numpy(), converted(values, types[0], types[1]))
