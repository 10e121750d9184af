"""Block formats in numpy, and products with weights of blocks."""

from __future__ import annotations

import numpy as np
import pytest

import ubridge
from ubridge.quantized import FORMATS, QuantizedWeight, dequantize, quantize
from uhal import Device, DeviceBuffer

DEVICES = ("host", "cuda-sim", "rocm-sim", "opencl")
WORST = {"q4_0": 2 / 15, "q8_0": 1 / 127, "q4_K": 1.2 / 15}
"""What quantizing may change, of the difference between the largest and the smallest element."""


def one_by_one(raw: bytes, name: str) -> list[float]:
    """The elements of one block as ggml's `dequantize_row_*` computes them."""

    def number(at: int) -> float:
        return float(np.frombuffer(raw[at : at + 2], "<f2")[0])

    scale, rest = number(0), raw[2:]
    if name == "q8_0":
        return [scale * (one - 256 if one > 127 else one) for one in rest]
    if name == "q4_0":
        return [scale * ((one & 15) - 8) for one in rest] + [
            scale * ((one >> 4) - 8) for one in rest
        ]
    levels, quants, minimum = raw[4:16], raw[16:], number(2)
    values = []
    for group in range(8):
        if group < 4:
            step, least = levels[group] & 63, levels[group + 4] & 63
        else:
            step = (levels[group + 4] & 15) | (levels[group - 4] >> 6) << 4
            least = (levels[group + 4] >> 4) | (levels[group] >> 6) << 4
        for one in quants[group // 2 * 32 : group // 2 * 32 + 32]:
            quant = one >> 4 if group % 2 else one & 15
            values.append(scale * step * quant - minimum * least)
    return values


@pytest.mark.parametrize("name", FORMATS)
def test_dequantize_as_ggml_does(rng: np.random.Generator, name: str) -> None:
    told = FORMATS[name]
    raw = np.frombuffer(rng.bytes(20 * told.block_bytes), told.layout).copy()
    for field in {"scale", "minimum"} & set(told.layout.names or ()):
        raw[field] = rng.standard_normal(20)
    expected = [one_by_one(block.tobytes(), name) for block in raw]
    np.testing.assert_allclose(
        dequantize(raw.tobytes(), name).reshape(20, -1), expected, rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("name", FORMATS)
def test_quantize_and_back(rng: np.random.Generator, name: str) -> None:
    told = FORMATS[name]
    values = rng.standard_normal((6, 2 * told.elements)) * np.exp(rng.uniform(-3, 3, (6, 1)))
    values[1] = 0
    values[2] = np.abs(values[2]) + 1
    values[3] = -np.abs(values[3])
    raw = quantize(values, name)
    assert raw.size == 6 * told.row_bytes(values.shape[1])
    blocks = values.reshape(-1, told.elements)
    spread = np.maximum(blocks.max(1), 0) - np.minimum(blocks.min(1), 0)
    error = np.abs(dequantize(raw, name).reshape(blocks.shape) - blocks)
    assert (error <= WORST[name] * spread[:, None] + 1e-7).all()
    np.testing.assert_array_equal(error[2:4], 0)


@pytest.mark.parametrize("name", FORMATS)
def test_product(device: Device, rng: np.random.Generator, name: str) -> None:
    columns = 2 * FORMATS[name].elements
    values = rng.standard_normal((37, columns))
    weight = QuantizedWeight.from_numpy(values, name)
    x = rng.standard_normal((3, 2, columns)).astype(np.float32)
    got = ubridge.quantized_matmul(ubridge.asarray(x), weight).to_numpy()
    assert got.shape == (3, 2, 37)
    stored = weight.to_numpy().astype(np.float64)
    wide = x.astype(np.float64)
    magnitude = np.abs(wide) @ np.abs(stored).T
    assert (np.abs(got - wide @ stored.T) <= 1e-5 * magnitude + 1e-5).all()
    # A transposed view is copied first; `out` is written where it says.
    turned = np.ascontiguousarray(x[:, 0].T)
    out = ubridge.zeros((4, 37), device=device)
    made = ubridge.quantized_matmul(ubridge.asarray(turned).T, weight, out=out[1:])
    assert made.shape == (3, 37)
    again = out.to_numpy()
    np.testing.assert_array_equal(again[0], 0)
    np.testing.assert_array_equal(again[1:], got[:, 0])


def test_nothing_to_multiply(device: Device) -> None:
    weight = QuantizedWeight.from_numpy(np.ones((3, 64)), "q4_0")
    assert ubridge.quantized_matmul(ubridge.zeros((0, 64)), weight).shape == (0, 3)
    none = QuantizedWeight.from_numpy(np.ones((3, 0)), "q4_0")
    got = ubridge.quantized_matmul(ubridge.zeros((2, 0)), none)
    np.testing.assert_array_equal(got.to_numpy(), np.zeros((2, 3)))


def test_what_is_refused(host: Device) -> None:
    weight = QuantizedWeight.from_numpy(np.ones((3, 64)), "q8_0")
    x = ubridge.zeros((2, 64))
    with pytest.raises(ValueError, match=r"whole blocks of 256 elements, got 64 columns"):
        QuantizedWeight.from_numpy(np.ones((3, 64)), "q4_K")
    with pytest.raises(ValueError, match="no block format 'q3_K'; there are q4_0, q8_0, q4_K"):
        quantize(np.ones(32), "q3_K")
    with pytest.raises(ValueError, match=r"expected a matrix, got shape \(64,\)"):
        QuantizedWeight.from_numpy(np.ones(64), "q8_0")
    with pytest.raises(ValueError, match=r"last axis of 64, got shape \(2, 32\)"):
        ubridge.quantized_matmul(ubridge.zeros((2, 32)), weight)
    with pytest.raises(TypeError, match=r"expected x of f32, got f16: use astype"):
        ubridge.quantized_matmul(x.astype("f16"), weight)
    with pytest.raises(TypeError, match="expected a QuantizedWeight, got DeviceTensor"):
        ubridge.quantized_matmul(x, x)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"'weight'.*at least 204 elements.*got one of 203"):
        QuantizedWeight(DeviceBuffer.zeros(203, "u8"), "q8_0", 3, 64)
    with pytest.raises(ValueError, match="blocks at a multiple of 2 bytes"):
        QuantizedWeight(DeviceBuffer.zeros(300, "u8")[1:], "q8_0", 3, 64)
    with pytest.raises(ValueError, match=r"whole blocks of 34 bytes, got 33"):
        dequantize(bytes(33), "q8_0")
    with pytest.raises(ValueError, match="other memory than x's"):
        ubridge.quantized_matmul(x, weight, out=x[:, :3])


def test_gcus_are_refused_in_words(simulated: object) -> None:
    simulated("tops-sim")  # type: ignore[operator]
    with Device(0, backend="tops"):
        x = ubridge.zeros((1, 64))
        with pytest.raises(NotImplementedError, match=r"tops backend has no such kernel"):
            ubridge.quantized_matmul(x, QuantizedWeight.from_numpy(np.ones((3, 64)), "q8_0"))
