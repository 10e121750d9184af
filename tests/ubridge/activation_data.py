"""Vectors quantized to 8 bits by the formats' definitions, in double precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def rounded_to_8_bits(x: Array, run: int) -> Array:
    """x (…, columns) of f32, quantized by Q8_0 in runs of 32 or by Q8_K in runs of 256."""
    runs = x.astype(np.float32).reshape(-1, run)
    at = np.abs(runs).argmax(1)[:, None]
    furthest = np.take_along_axis(runs, at, 1)
    one = np.float32(1)
    if run == 32:
        scale = np.abs(furthest) / np.float32(127)
        product = runs * _inverse(scale)
        quants = np.copysign(np.floor(np.abs(product.astype(np.float64)) + 0.5), product)
    else:
        factor = np.float32(-127) * _inverse(furthest)
        quants = np.clip(np.rint(runs * factor), -127, 127)
        scale = np.where(factor == 0, 0, one / np.where(factor == 0, one, factor))
    return (quants.astype(np.float64) * scale.astype(np.float64)).reshape(x.shape)


def _inverse(values: Array) -> Array:
    with np.errstate(over="ignore"):
        inverse = np.float32(1) / np.where(values == 0, np.float32(1), values)
    largest = np.finfo(np.float32).max
    return np.where(values == 0, np.float32(0), np.clip(inverse, -largest, largest))


def exact_in_8_bits(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Return vectors that all 8-bit formats represent exactly: integers up to 127."""
    x = rng.integers(-127, 128, shape).astype(np.float32)
    x[..., ::32] = rng.choice([-127, 127], x[..., ::32].shape)
    # Q8_1 keeps the sum of 32 as f16, which has 11 bits.
    runs = x.reshape(-1, 32)
    runs[np.abs(runs.sum(1)) > 2048, 1:] = 0
    return x * np.float32(2.0 ** rng.integers(-8, 3))
