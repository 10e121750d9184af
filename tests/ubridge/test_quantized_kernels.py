"""The products of weights of blocks with vectors, entry by entry."""

from __future__ import annotations

import numpy as np
import pytest

from tests.sampling import rounds
from tests.ubridge.kernel_bench import Array, Output, run
from ubridge.quantized import FORMATS, BlockFormat, dequantize
from uhal import Device, DeviceBuffer

pytestmark = pytest.mark.entries

ENTRIES = {"q4_0": "q4_0_cuda", "q8_0": "q8_0_cuda", "q4_K": "q4_k"}


def random_blocks(rng: np.random.Generator, told: BlockFormat, count: int) -> Array:
    """Blocks of any bytes, but with scales that are numbers."""
    blocks = np.frombuffer(rng.bytes(count * told.block_bytes), told.layout).copy()
    for name in ("scale", "minimum"):
        if name in told.layout.fields:
            blocks[name] = rng.standard_normal(count)
    return blocks


@pytest.mark.parametrize("name", FORMATS)
def test_products(device: Device, rng: np.random.Generator, name: str) -> None:
    told = FORMATS[name]
    for _ in range(rounds(3, 60)):
        rows, lines, vectors = int(rng.integers(1, 12)), int(rng.integers(0, 9)), 2
        columns = lines * told.elements
        blocks = random_blocks(rng, told, rows * lines)
        raw = np.frombuffer(blocks.tobytes() + bytes(16), np.uint8)
        start = int(rng.integers(0, 5))
        y = rng.standard_normal(start + vectors * columns + 1).astype(np.float32)
        output = Output("f32", vectors * rows)
        block = (int(rng.choice([1, 7, 32, 32, 64])), int(rng.integers(1, 5)))
        run(
            device, "quantized", f"dequantize_mul_mat_vec_{ENTRIES[name]}",
            DeviceBuffer.from_numpy(raw), DeviceBuffer.from_numpy(y)[start:], output.buffer,
            columns, rows, grid=(-(-rows // block[1]), vectors), block=block,
        )  # fmt: skip
        wide = y[start : start + vectors * columns].astype(np.float64).reshape(vectors, columns)
        weight = dequantize(blocks.tobytes(), told).astype(np.float64).reshape(rows, columns)
        error = np.abs(output.to_numpy().reshape(vectors, rows) - wide @ weight.T)
        # Every product is rounded, and every sum of at most `columns` of them.
        magnitude = np.abs(wide) @ np.abs(weight).T + 16 * np.abs(wide).sum(1, keepdims=True)
        assert (error <= 2.0**-20 * magnitude).all(), float((error / magnitude).max())
