"""Random operands in every class of layout, on a device and in numpy, and comparisons."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import ubridge
from ubridge import DeviceTensor
from uhal import Device, as_dtype

Array = npt.NDArray[Any]

LAYOUTS = (
    "contiguous",
    "transposed",
    "broadcast",
    "offset",
    "stepped",
    "empty",
    "one",
    "scalar",
    "prime",
)

TOLERANCE = {"f64": 1e-13, "f32": 3e-6, "f16": 1e-3, "bf16": 8e-3, "f8e4m3": 0.13}
"""Tolerance relative to a result: a few units in the last place, for f16, bf16 and f8 one unit."""

SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0)


@dataclass(frozen=True)
class Operand:
    """Equal elements on a device and in a numpy array."""

    tensor: DeviceTensor
    array: Array
    layout: str


def values(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """Return random elements; floats have moderate size, with zeros and a few special values."""
    element = as_dtype(dtype)
    if element.kind == "float":
        drawn = rng.uniform(-4, 4, shape)
        drawn = np.where(rng.random(shape) < 0.1, np.round(drawn), drawn)
        return drawn.astype(element.dtype)
    if element.kind == "bool":
        return rng.random(shape) < 0.5
    least = -20 if element.kind == "int" else 0
    return rng.integers(least, 21, shape).astype(element.dtype)


def with_specials(rng: np.random.Generator, array: Array) -> Array:
    """Return the array with some elements replaced by NaN, infinities and zeros of both signs."""
    if array.dtype.kind == "f" or array.dtype.name in ("bfloat16", "float8_e4m3fn"):
        special = rng.choice(SPECIAL, array.shape).astype(array.dtype)
        return np.where(rng.random(array.shape) < 0.15, special, array)
    return array


def shape_of(rng: np.random.Generator, layout: str, rank: int | None = None) -> tuple[int, ...]:
    """Return a random shape that suits the class of layout."""
    axes = int(rng.integers(1, 4)) if rank is None else rank
    if layout == "scalar" and rank is None:
        return ()
    if layout == "one" or layout == "scalar":
        return (1,) * axes
    if layout == "prime":
        return tuple(int(one) for one in rng.choice([2, 3, 5, 7, 11, 13, 17, 31], axes))
    shape = [int(one) for one in rng.integers(1, 9, axes)]
    if layout == "empty":
        shape[int(rng.integers(0, axes))] = 0
    if layout == "contiguous" and rng.random() < 0.2:
        shape[-1] = int(rng.integers(500, 3000))
    return tuple(shape)


def operand(
    rng: np.random.Generator,
    device: Device,
    layout: str,
    dtype: str,
    shape: tuple[int, ...],
    *,
    special: bool = True,
) -> Operand:
    """Return a random tensor of this shape in the given class of layout."""

    def drawn(wanted: tuple[int, ...]) -> Array:
        made = values(rng, wanted, dtype)
        return with_specials(rng, made) if special else made

    def on_device(array: Array) -> DeviceTensor:
        return ubridge.from_numpy(array, device=device)

    if layout == "transposed" and len(shape) > 1:
        order = [int(axis) for axis in rng.permutation(len(shape))]
        base = drawn(tuple(shape[axis] for axis in order))
        back = [order.index(axis) for axis in range(len(shape))]
        return Operand(on_device(base).transpose(*back), base.transpose(back), layout)
    if layout == "broadcast":
        kept = tuple(1 if rng.random() < 0.5 else length for length in shape)
        base = drawn(kept)
        return Operand(on_device(base).broadcast_to(shape), np.broadcast_to(base, shape), layout)
    if layout == "offset" and shape:
        start = int(rng.integers(1, 4))
        base = drawn((shape[0] + start + 2, *shape[1:]))
        return Operand(on_device(base)[start : start + shape[0]], base[start:-2], layout)
    if layout == "stepped" and shape:
        base = drawn((*shape[:-1], 3 * shape[-1]))
        return Operand(on_device(base)[..., 1::3], base[..., 1::3], layout)
    base = drawn(shape)
    return Operand(on_device(base), base, layout)


def assert_close(got: Array, expected: Array, dtype: str, told: str, ulps: float = 1) -> None:
    """Compare with a reference of higher precision, rounded to `dtype` once."""
    assert got.shape == expected.shape, told
    if as_dtype(dtype).kind != "float":
        np.testing.assert_array_equal(got, expected, told)
        return
    with np.errstate(all="ignore"):
        exact = expected.astype(np.float64)
        if dtype == "f8e4m3":
            # f8e4m3 has no infinity: too large values become the largest.
            exact = np.clip(exact, -448, 448)
        rounded = exact.astype(as_dtype(dtype).dtype).astype(np.float64)
        # Near the largest number, rounding may go up or down.
        edge = np.isfinite(exact) & (np.abs(exact) > LARGEST[dtype] * (1 - TOLERANCE[dtype]))
        np.testing.assert_allclose(
            got.astype(np.float64)[~edge],
            rounded[~edge],
            rtol=TOLERANCE[dtype] * ulps,
            atol=SMALLEST[dtype] * ulps,
            err_msg=told,
        )


LARGEST = {"f64": 1.79e308, "f32": 3.4e38, "f16": 65504.0, "bf16": 3.3e38, "f8e4m3": 448.0}
SMALLEST = {"f64": 1e-15, "f32": 1e-7, "f16": 6e-8, "bf16": 1e-7, "f8e4m3": 2**-9}
