"""Blocks of every format with random bytes, and their elements as other libraries compute them."""

from __future__ import annotations

from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

from ubridge.quantized import FORMATS

Array = npt.NDArray[Any]

# Offsets of the f16 scales in a block, stated here independently of the code under test.
_AT_START = ("q4_0", "q5_0", "q8_0", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s", "iq1_s")
HALVES = {
    **dict.fromkeys((*_AT_START, "iq4_nl", "iq4_xs"), (0,)),
    **dict.fromkeys(("q4_1", "q5_1", "q8_1", "q4_K", "q5_K"), (0, 2)),
    **{"q2_K": (80, 82), "q3_K": (108,), "q6_K": (208,), "tq1_0": (52,), "tq2_0": (64,)},
}
KINDS = ("ordinary", "any", "zero", "huge", "subnormal")
JUDGED = tuple(name for name in FORMATS if name not in ("q8_1", "q8_K"))
"""Formats whose elements the package gguf computes."""


def random_blocks(
    rng: np.random.Generator, name: str, count: int, scales: str = "ordinary"
) -> Array:
    """Return blocks (count, bytes) of random bytes whose elements are finite."""
    blocks = np.frombuffer(rng.bytes(count * FORMATS[name].block_bytes), np.uint8)
    blocks = blocks.reshape(count, FORMATS[name].block_bytes).copy()
    for at in HALVES.get(name, ()):
        blocks[:, at : at + 2] = _halves(rng, count, scales).view(np.uint8).reshape(count, 2)
    if name == "q8_K":
        values = _halves(rng, count, scales).astype(np.float32) * np.float32(1.1)
        blocks[:, :4] = values.view(np.uint8).reshape(count, 4)
    elif name == "iq1_m":
        # The highest four bits of each word contain a part of the scale.
        scale = _halves(rng, count, scales).view(np.uint16)
        words = blocks[:, 48:56].copy().view(np.uint16)
        for i in range(4):
            words[:, i] = words[:, i] & 0x0FFF | (scale >> 4 * i & 15) << 12
        blocks[:, 48:56] = words.view(np.uint8)
    elif name == "mxfp4":
        ranges = {"ordinary": (120, 134), "zero": (0, 1), "huge": (240, 253), "subnormal": (0, 4)}
        blocks[:, 0] = rng.integers(*ranges.get(scales, (0, 253)), count)
    elif name == "nvfp4" and scales != "any":
        ranges = {"zero": (0, 1), "huge": (120, 128), "subnormal": (0, 8)}
        blocks[:, :4] = rng.integers(*ranges.get(scales, (40, 80)), (count, 4))
    return blocks


def _halves(rng: np.random.Generator, count: int, scales: str) -> Array:
    if scales == "any":
        bits = rng.integers(0, 1 << 16, count).astype(np.uint16)
        # An exponent of all ones would give infinities and NaN.
        return np.where(bits & 0x7C00 == 0x7C00, bits & 0x83FF, bits).view(np.float16)
    if scales == "zero":
        return rng.choice([0.0, -0.0], count).astype(np.float16)
    if scales == "huge":
        return (rng.uniform(6e4, 65504, count) * rng.choice([-1, 1], count)).astype(np.float16)
    if scales == "subnormal":
        return (rng.integers(-1023, 1024, count) * 2.0**-24).astype(np.float16)
    return rng.standard_normal(count).astype(np.float16)


def elements(blocks: Array, name: str) -> Array:
    """Return elements of blocks (count, bytes) as f32, by gguf or by the format's definition."""
    if not len(blocks):
        return np.zeros((0, FORMATS[name].elements), np.float32)
    if name == "q8_1":
        scale = blocks[:, :2].copy().view(np.float16).astype(np.float32)
        return scale * blocks[:, 4:].view(np.int8).astype(np.float32)
    if name == "q8_K":
        scale = blocks[:, :4].copy().view(np.float32)
        return scale * blocks[:, 4:260].view(np.int8).astype(np.float32)
    kind = gguf.GGMLQuantizationType[name.upper()]
    values: Array = gguf.quants.dequantize(np.ascontiguousarray(blocks), kind)
    return values
