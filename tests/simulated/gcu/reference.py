"""Expected results of Ubridge's entries in double precision, and conversion of their values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

NUMPY = {
    "f64": np.float64,
    "f32": np.float32,
    "f16": np.float16,
    "i64": np.int64,
    "i32": np.int32,
    "i16": np.int16,
    "i8": np.int8,
    "u32": np.uint32,
    "u16": np.uint16,
    "u8": np.uint8,
    "bool": np.bool_,
}
TOLERANCE = {"f64": 1e-12, "f32": 3e-6, "f16": 3e-3, "bf16": 2.5e-2}
"""Tolerance relative to the larger of the value and 1; integers have no tolerance."""


def encoded(values: Array, dtype: str) -> Array:
    """Return values as the bits of a dtype; bf16 as u16."""
    if dtype != "bf16":
        return np.asarray(values).astype(NUMPY[dtype])
    bits = np.asarray(values, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def decoded(bits: Array, dtype: str) -> Array:
    """Return the values of bits: floats in double precision, integers unchanged."""
    if dtype == "bf16":
        return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return bits.astype(np.float64) if dtype.startswith("f") else bits


def sample(rng: np.random.Generator, shape: Any, dtype: str) -> Array:
    """Random values that the dtype holds exactly, decoded."""
    if dtype.startswith(("f", "bf")):
        return decoded(encoded(rng.standard_normal(shape) * 2, dtype), dtype)
    low = 0 if dtype.startswith(("u", "bool")) else -50
    return encoded(rng.integers(low, 2 if dtype == "bool" else 50, shape), dtype)


def check(found: Array, expected: Array, dtype: str, scale: float = 1) -> None:
    """Compare results, decoded, within the tolerance of the dtype."""
    tolerance = TOLERANCE.get(dtype, 0) * scale
    if tolerance == 0:
        assert np.array_equal(found, expected)
    else:
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


def gelu(x: Array) -> Array:
    """Return gelu by its tanh formula."""
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


UNARY: Mapping[str, Callable[[Array], Array]] = {
    "uneg": np.negative,
    "uexp": np.exp,
    "ulog": np.log,
    "usin": np.sin,
    "ucos": np.cos,
    "uabs": np.abs,
    "usqr": np.square,
    "usqrt": np.sqrt,
    "ursqrt": lambda x: 1 / np.sqrt(x),
    "ugelu": gelu,
    "ugelu_erf": gelu,
    "urelu": lambda x: np.maximum(x, 0),
    "usilu": lambda x: x / (1 + np.exp(-x)),
    "utanh": np.tanh,
    "usigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "urecip": lambda x: 1 / x,
}
BINARY: Mapping[str, Callable[[Array, Array], Array]] = {
    "badd": np.add,
    "bsub": np.subtract,
    "bmul": np.multiply,
    "bdiv": lambda x, y: x // y if x.dtype.kind == "u" else x / y,
    "bmaximum": np.maximum,
    "bminimum": np.minimum,
    "mod": lambda x, y: x % y if x.dtype.kind == "u" else np.fmod(x, y),
    "eq": np.equal,
    "ne": np.not_equal,
    "ge": np.greater_equal,
    "gt": np.greater,
    "lt": np.less,
    "le": np.less_equal,
}
REDUCE: Mapping[str, Callable[[Array], Array]] = {
    "fast_sum": lambda x: x.sum(1),
    "fast_min": lambda x: x.min(1),
    "fast_max": lambda x: x.max(1),
    "fast_argmin": lambda x: x.argmin(1),
    "fast_argmax": lambda x: x.argmax(1),
}


def softmax(x: Array) -> Array:
    """Softmax over the last axis."""
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def conv1d(x: Array, kernel: Array, stride: int, padding: int, dilation: int, out: int) -> Array:
    """Convolve as Candle does: the dilation also multiplies the position."""
    result = np.zeros((x.shape[0], kernel.shape[0], out))
    for position in range(out):
        for offset in range(kernel.shape[2]):
            at = (stride * position + offset) * dilation - padding
            if 0 <= at < x.shape[2]:
                result[:, :, position] += x[:, :, at] @ kernel[:, :, offset].T
    return result


def conv2d(x: Array, kernel: Array, stride: int, padding: int, dilation: int) -> Array:
    """Convolve an array of (batch, channel, row, column)."""
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    span = [dilation * (size - 1) + 1 for size in kernel.shape[2:]]
    windows = np.lib.stride_tricks.sliding_window_view(x, span, (2, 3))
    windows = windows[:, :, ::stride, ::stride, ::dilation, ::dilation]
    return np.einsum("bcyxij,ocij->boyx", windows, kernel)


def rotated(x: Array, cosines: Array, sines: Array, halves: bool) -> Array:
    """Rotate pairs of the last axis by an angle for each pair; tokens come first."""
    half = cosines.shape[-1]
    first = x[..., :half] if halves else x[..., : 2 * half : 2]
    second = x[..., half : 2 * half] if halves else x[..., 1 : 2 * half : 2]
    cosines, sines = cosines[:, None], sines[:, None]
    result = x.copy()
    left, right = first * cosines - second * sines, second * cosines + first * sines
    if halves:
        result[..., :half], result[..., half : 2 * half] = left, right
    else:
        result[..., : 2 * half : 2], result[..., 1 : 2 * half : 2] = left, right
    return result
