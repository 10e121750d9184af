"""Convolutions as products in tiles, in groups and phases, against loops in higher precision."""

from __future__ import annotations

import numpy as np
import pytest

from tests.sampling import rounds
from tests.ubridge.kernel_bench import Array, Output, numpy_dtype, run
from tests.ubridge.test_conv_kernels import Wide, convolved, given, info_of
from uhal import Device

pytestmark = pytest.mark.entries

HALF_ULP = {"f64": 2.0**-53, "f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8}
LEAST = {"f64": 0.0, "f32": 0.0, "f16": 2.0**-25, "bf16": 2.0**-134}
"""Half the smallest step of a type, for results below its normal numbers."""


def check(device: Device, rng: np.random.Generator, module: str, block: int, dtype: str) -> None:
    """Launch a random convolution. The grid may have fewer blocks along z than groups and
    phases."""
    is_transposed = bool(rng.integers(2))
    batch, groups = (int(one) for one in rng.integers(1, 3, 2))
    channels, results = int(rng.integers(1, 9)), int(rng.choice([1, 5, 66]))
    stride, dilation = (int(one) for one in rng.integers(1, 4, 2))
    padding = int(rng.integers(0, 3))
    extra = int(rng.integers(0, stride)) if is_transposed else 0
    window = [int(one) for one in rng.integers(1, 4, 2)]
    each = (channels * groups, results) if is_transposed else (results * groups, channels)
    x = given(rng, dtype, (batch, channels * groups, *map(int, rng.integers(7, 13, 2))))
    k = given(rng, dtype, (*each, *window))
    if dtype[0] != "u":
        for one in (x, k):
            one.storage[:] = rng.standard_normal(one.storage.size)
    parts = zip(np.split(x.values, groups, 1), np.split(k.values, groups, 0), strict=True)
    computed = [convolved(*part, stride, padding, dilation, is_transposed, extra) for part in parts]
    exact, magnitude = (np.concatenate(ones, 1) for ones in zip(*computed, strict=True))
    if exact.size == 0:
        return
    output = Output(dtype, exact.size)
    lengths = exact.shape[2:]
    steps = [min(stride, length) if is_transposed else 1 for length in lengths]
    positions = batch * int(
        np.prod([-(-length // step) for length, step in zip(lengths, steps, strict=True)])
    )
    most = groups * int(np.prod(steps))
    run(
        device,
        module,
        f"{module}_{dtype}",
        info_of(x, k),
        x.buffer(),
        k.buffer(),
        output.buffer,
        *lengths,
        groups,
        stride,
        padding,
        padding,
        dilation,
        is_transposed,
        grid=(-(-positions // 64), -(-results // 64), int(rng.integers(1, most + 1))),
        block=block,
    )
    got = output.to_numpy()
    told = (x.values.shape, k.values.shape, groups, stride, padding, dilation, is_transposed)
    if dtype[0] == "u":
        modulus = 1 << 8 * numpy_dtype(dtype).itemsize
        expected = np.array([int(one) % modulus for one in exact.ravel()], numpy_dtype(dtype))
        np.testing.assert_array_equal(got, expected, str(told))
        return
    # A rounding for each of the products and sums, then one of the stored result.
    depth = channels * window[0] * window[1]
    sums = (depth + 1) * (2.0**-52 if dtype == "f64" else 2.0**-23) * magnitude.ravel()
    bound = sums + 1.01 * HALF_ULP[dtype] * (np.abs(exact.ravel()) + sums) + LEAST[dtype]
    difference: Array = np.abs(got.astype(Wide) - exact.ravel())
    assert (difference <= bound).all(), (told, float((difference / bound).max()))


@pytest.mark.parametrize("dtype", ["bf16", "f16", "f32", "f64", "u8", "u32"])
def test_tiles(device: Device, rng: np.random.Generator, dtype: str) -> None:
    for _ in range(rounds(2, 40)):
        check(device, rng, "conv_tiles", 256, dtype)


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_tensor_cores(device: Device, rng: np.random.Generator, dtype: str) -> None:
    if device.backend != "cuda":
        pytest.skip("tensor cores are NVIDIA's")
    for _ in range(rounds(2, 40)):
        check(device, rng, "conv_tensor", 128, dtype)
