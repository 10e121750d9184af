"""The host's convolutions of packed windows, at each instruction level, against numpy in f64."""

from __future__ import annotations

import numpy as np
import pytest

import ubridge
from tests.sampling import rounds
from tests.ubridge.operands import Array
from tests.ubridge.test_packed_kernels import BY_HAND, HALF_STEP, image, levels
from tests.ubridge.test_windows import convolution, transposed
from uhal import Device, DeviceBuffer, Module
from uhal.dtypes import as_dtype
from uhal.images import cpu_level

pytestmark = pytest.mark.skipif(
    cpu_level._machine() != "x86_64", reason="levels of x86-64 are compared"
)
RESULTS = (1, 3, 4, 5, 17, 32)
"""Channels per group: few channels use sums over taps, many fill whole vectors."""


def held(
    rng: np.random.Generator, shape: tuple[int, ...], dtype: str
) -> tuple[DeviceBuffer, Array, tuple[int, ...]]:
    """Return random numbers, contiguous or with NaN in the gaps, and their strides."""
    gaps = [int(one) for one in rng.integers(1, 3, 4)] if rng.integers(2) else [1] * 4
    order = rng.permutation(4) if rng.integers(2) else np.arange(4)
    strides, step = [0] * 4, 1
    for axis in reversed(order):
        step *= gaps[axis]
        strides[axis] = step
        step *= shape[axis]
    places = sum(
        (np.arange(length) * stride).reshape([-1 if i == axis else 1 for i in range(4)])
        for axis, (length, stride) in enumerate(zip(shape, strides, strict=True))
    )
    memory = np.full(step, np.nan)
    memory[places] = rng.standard_normal(shape)
    stored = memory.astype(as_dtype(dtype).dtype)
    return DeviceBuffer.from_numpy(stored), stored[places].astype(np.float64), tuple(strides)


@pytest.mark.parametrize("level", [*levels("conv_packed"), BY_HAND])
@pytest.mark.parametrize("dtype", ["bf16", "f16", "f32"])
def test_convolutions_at_every_level(
    host: Device, rng: np.random.Generator, level: str, dtype: str
) -> None:
    module = Module.from_bytes(image("conv_packed", level), device=host)
    kernel = module.get_function(f"conv_packed_{dtype}")
    for turn in range(rounds(16, 300)):
        is_transposed, per_group = bool(turn % 2), int(rng.choice(RESULTS))
        batch, groups, channels = (int(one) for one in rng.integers(1, (3, 4, 9)))
        stride, dilation = (int(one) for one in rng.integers(1, (4, 3)))
        padding, out_padding = (int(one) for one in rng.integers(0, (3, stride)))
        window = [int(one) for one in rng.integers(1, 4, 2)]
        longest = 40 if turn % 4 == 0 else 12
        x, wide, strides = held(
            rng, (batch, channels * groups, *map(int, rng.integers(5, longest, 2))), dtype
        )
        each = (channels * groups, per_group) if is_transposed else (per_group * groups, channels)
        weight, weights, weight_strides = held(rng, (*each, *window), dtype)
        settings = (stride, padding, dilation, *([out_padding] if is_transposed else []))

        def computed(
            wide: Array, weights: Array, groups: int = groups, settings: tuple[int, ...] = settings
        ) -> Array:
            parts = zip(np.split(wide, groups, 1), np.split(weights, groups, 0), strict=True)
            one = transposed if len(settings) == 4 else convolution
            return np.concatenate([one(*part, *settings) for part in parts], 1)

        exact, magnitude = computed(wide, weights), computed(abs(wide), abs(weights))
        if exact.size == 0:
            continue
        out = ubridge.full(exact.shape, np.nan, dtype=dtype)
        numbers = [*wide.shape, *strides, *weights.shape, *weight_strides]
        info = DeviceBuffer.from_numpy(np.array(numbers, np.uint64))
        grid = tuple(int(one) for one in rng.integers(1, 4, 3))
        sizes = (*exact.shape[2:], groups, stride, padding, padding, dilation, is_transposed)
        kernel[grid, 1](info, x, weight, out.buffer, *sizes)
        bound = 1.01 * HALF_STEP[dtype] * abs(exact) + 2**-25
        bound += 6e-8 * (channels * window[0] * window[1] + 2) * magnitude
        difference = abs(out.to_numpy().astype(np.float64) - exact)
        told = f"{wide.shape} {strides} {weights.shape} {weight_strides} {sizes}"
        assert (difference <= bound).all(), (told, grid, float(np.nanmax(difference)))


@pytest.mark.parametrize("dtype", ["bf16", "f16", "f32"])
def test_convolutions_of_several_parts(host: Device, rng: np.random.Generator, dtype: str) -> None:
    """Results, channels and positions exceed a part of the product; even a single row may exceed a
    part."""
    kind = as_dtype(dtype).dtype
    results, channels, window = int(rng.integers(257, 300)), int(rng.integers(22, 50)), (3, 3)
    for shape in ((1, channels, 4, int(rng.integers(260, 400))), (2, channels, 17, 19)):
        stride, dilation, padding = (int(one) for one in rng.integers(1, 3, 3))
        settings = (stride, padding, dilation) if shape[2] > 4 else (1, padding, 1)
        x = rng.standard_normal(shape).astype(kind)
        weight = rng.standard_normal((results, channels, *window)).astype(kind)
        got = ubridge.conv2d(
            ubridge.asarray(x, device=host),
            ubridge.asarray(weight, device=host),
            stride=settings[0],
            padding=settings[1],
            dilation=settings[2],
        ).to_numpy()
        a, b = x.astype(np.float64), weight.astype(np.float64)
        exact = convolution(a, b, *settings)
        magnitude = convolution(abs(a), abs(b), *settings)
        bound = 1.01 * HALF_STEP[dtype] * abs(exact) + 2**-25
        bound += 6e-8 * (channels * 9 + 2) * magnitude
        assert (abs(got.astype(np.float64) - exact) <= bound).all(), (shape, settings)


@pytest.mark.parametrize("dtype", ["f16", "f32"])
def test_parts_may_begin_in_the_padding_behind_a_row(
    host: Device, rng: np.random.Generator, dtype: str
) -> None:
    """A part has 256 positions. For some of these widths, a part begins after the end of the row's
    input."""
    kind = as_dtype(dtype).dtype
    weight = rng.standard_normal((8, 4, 3, 3)).astype(kind)
    for columns in range(20, 60):
        x = rng.standard_normal((1, 4, 20, columns)).astype(kind)
        arrays = (ubridge.asarray(one, device=host) for one in (x, weight))
        got = ubridge.conv2d(*arrays, padding=2).to_numpy()
        a, b = x.astype(np.float64), weight.astype(np.float64)
        exact, magnitude = convolution(a, b, 1, 2, 1), convolution(abs(a), abs(b), 1, 2, 1)
        bound = 1.01 * HALF_STEP[dtype] * abs(exact) + 2**-25 + 6e-8 * 38 * magnitude
        assert (abs(got.astype(np.float64) - exact) <= bound).all(), columns
