"""Block-quantized weights in each format: elements, and products with vectors of f32."""

from __future__ import annotations

import numpy as np
import pytest

from tests.sampling import rounds
from tests.ubridge.block_data import KINDS, elements, random_blocks
from tests.ubridge.kernel_bench import Output, numpy_dtype, run
from ubridge.quantized import FORMATS
from uhal import Device, DeviceBuffer

pytestmark = pytest.mark.entries
OF_CANDLE = ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_K", "q3_K", "q4_K", "q5_K", "q6_K")
"""Formats with kernels for products with Q8_1 in Candle's module."""


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("name", FORMATS)
def test_elements(device: Device, rng: np.random.Generator, name: str, dtype: str) -> None:
    for kind in KINDS:
        count = int(rng.integers(1, rounds(20, 200)))
        blocks = random_blocks(rng, name, count, kind)
        expected = elements(blocks, name).ravel()
        output = Output(dtype, expected.size)
        run(
            device,
            "blocks",
            f"dequantize_{name}_{dtype}",
            expected.size,
            DeviceBuffer.from_numpy(blocks.ravel()),
            output.buffer,
            grid=int(rng.integers(1, 5)),
            block=int(rng.choice([1, 33, 64])),
        )
        got = output.to_numpy()
        with np.errstate(over="ignore"):
            wanted = expected.astype(numpy_dtype(dtype))
        # All bits are equal, including the sign of zero.
        np.testing.assert_array_equal(
            got.view(f"u{got.itemsize}"), wanted.view(f"u{got.itemsize}"), f"{kind} scales"
        )


@pytest.mark.parametrize("name", FORMATS)
def test_products(device: Device, rng: np.random.Generator, name: str) -> None:
    told = FORMATS[name]
    for _ in range(rounds(3, 60)):
        rows, lines, vectors = int(rng.integers(1, 12)), int(rng.integers(0, 9)), 2
        columns = lines * told.elements
        blocks = random_blocks(rng, name, rows * lines)
        raw = np.concatenate([blocks.ravel(), np.zeros(16, np.uint8)])
        start = int(rng.integers(0, 5))
        y = rng.standard_normal(start + vectors * columns + 1).astype(np.float32)
        output = Output("f32", vectors * rows)
        block = (int(rng.choice([1, 7, 32, 32, 64])), int(rng.integers(1, 5)))
        run(
            device,
            "blocks",
            f"matvec_{name}",
            DeviceBuffer.from_numpy(raw),
            DeviceBuffer.from_numpy(y)[start:],
            output.buffer,
            columns,
            rows,
            grid=(-(-rows // block[1]), vectors),
            block=block,
        )
        wide = y[start : start + vectors * columns].astype(np.float64).reshape(vectors, columns)
        weight = elements(blocks, name).astype(np.float64).reshape(rows, columns)
        error = np.abs(output.to_numpy().reshape(vectors, rows) - wide @ weight.T)
        # Errors come from rounding each product, and each sum of at most `columns` products.
        magnitude = np.abs(wide) @ np.abs(weight).T + 16 * np.abs(wide).sum(1, keepdims=True)
        assert (error <= 2.0**-20 * magnitude).all(), float((error / magnitude).max())


@pytest.mark.parametrize("name", sorted(set(FORMATS) - set(OF_CANDLE)))
def test_products_with_q8_1(device: Device, rng: np.random.Generator, name: str) -> None:
    told = FORMATS[name]
    rows, columns, vectors = int(rng.integers(1, 12)), int(rng.integers(1, 6)) * told.elements, 2
    blocks = random_blocks(rng, name, rows * columns // told.elements)
    y = random_blocks(rng, "q8_1", vectors * columns // 32)
    output = Output("f32", vectors * rows)
    run(
        device,
        "blocks",
        f"product_{name}",
        DeviceBuffer.from_numpy(blocks.ravel()),
        DeviceBuffer.from_numpy(y.ravel()),
        output.buffer,
        columns,
        rows,
        grid=(rows, vectors),
        block=(32, 4),
    )
    wide = elements(y, "q8_1").astype(np.float64).reshape(vectors, columns)
    weight = elements(blocks, name).astype(np.float64).reshape(rows, columns)
    error = np.abs(output.to_numpy().reshape(vectors, rows) - wide @ weight.T)
    magnitude = np.abs(wide) @ np.abs(weight).T + 16 * np.abs(wide).sum(1, keepdims=True)
    assert (error <= 2.0**-20 * magnitude).all(), float((error / magnitude).max())
