"""Block formats in numpy, and products with weights of blocks."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest

import ubridge
from tests.ubridge.block_data import KINDS, Array, elements, random_blocks
from ubridge.quantized import ENCODED, FORMATS, QuantizedWeight, dequantize, quantize
from uhal import Device, DeviceBuffer, Stream
from uhal.dtypes import as_dtype

DEVICES = ("host", "cuda-sim", "rocm-sim", "opencl")
EXACT = ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "tq1_0", "tq2_0", "mxfp4")
"""Formats that the package gguf writes, too."""
OF_GGML = {
    **{"q2_K": 0.296466, "q3_K": 0.150801, "q4_K": 0.071323, "q5_K": 0.036110, "q6_K": 0.017724},
    **{"iq4_nl": 0.076131, "iq4_xs": 0.076713},
}
"""Root mean square error of `ggml_quantize_chunk` without weights, for 8 million standard normal
numbers. Measured with llama.cpp of llama-cpp-python 0.3.36, gcc 12, 2026-11-22."""
ROUNDING = {"f32": 2.0**-20, "f16": 2.0**-10, "bf16": 2.0**-7}
"""Tolerance of a product of 500 elements, relative to the sum of its terms' magnitudes."""
WORST = {"q4_0": 2 / 15, "q8_0": 1 / 127, "q4_K": 1.2 / 15}
"""Error bound of quantizing, relative to the range of the elements."""


@pytest.mark.parametrize("name", FORMATS)
def test_dequantize_as_ggml_does(rng: np.random.Generator, name: str) -> None:
    for kind in KINDS:
        blocks = random_blocks(rng, name, 20, kind)
        got = dequantize(blocks.tobytes(), name)
        expected = elements(blocks, name).ravel()
        np.testing.assert_array_equal(got.view(np.uint32), expected.view(np.uint32), kind)


def test_the_table_is_ggmls() -> None:
    known = {
        kind.name.lower().replace("_k", "_K"): (int(kind), *sizes)
        for kind, sizes in gguf.GGML_QUANT_SIZES.items()
        if sizes[0] > 1
    }
    # gguf lists q8_1 with an f32 that ggml removed years ago; ubridge does not support q1_0.
    known["q8_1"] = (9, 32, 36)
    del known["q1_0"]
    assert {
        one.name: (one.ggml_type, one.elements, one.block_bytes) for one in FORMATS.values()
    } == known


def test_every_dtype_of_elements(device: Device, rng: np.random.Generator) -> None:
    blocks = random_blocks(rng, "q5_K", 6)
    weight = QuantizedWeight.from_blocks(blocks.ravel(), "q5_K", 3, 512)
    assert weight.shape == (3, 512) and weight.device == device
    exact = elements(blocks, "q5_K").reshape(3, 512)
    for dtype in ("f32", "f16", "bf16"):
        got = weight.dequantize(dtype)
        assert got.dtype == dtype and got.shape == (3, 512)
        np.testing.assert_array_equal(got.to_numpy(), exact.astype(got.to_numpy().dtype))
    with pytest.raises(TypeError, match=r"block_elements: dtype i32 is not supported"):
        weight.dequantize("i32")


@pytest.mark.parametrize("name", WORST)
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


@pytest.mark.parametrize("name", EXACT)
def test_bytes_are_those_of_gguf(rng: np.random.Generator, name: str) -> None:
    values = drawn_rows(rng, FORMATS[name].elements * 8)
    if name == "mxfp4":
        # gguf computes a wrong power of two for these, because the exponent wraps around.
        values = np.delete(values, 2, 0)
    kind = gguf.GGMLQuantizationType[name.upper()]
    expected = gguf.quants.quantize(values, kind).ravel()
    # A fused multiply-add may round an exact half the other way, which changes one byte in one of a
    # thousand runs.
    different = (quantize(values, name) != expected).sum()
    assert different <= 4


def drawn_rows(rng: np.random.Generator, columns: int) -> Array:
    """Return rows whose magnitudes fit f16, and rows of zeros, of one value and of tiny numbers."""
    values = rng.standard_normal((64, columns)) * np.exp(rng.uniform(-6, 6, (64, 1)))
    values[0], values[1] = 0, -2.5
    values[2] *= 1e-38
    return values.astype(np.float32)


@pytest.mark.parametrize("name", OF_GGML)
def test_errors_are_at_most_ggmls(rng: np.random.Generator, name: str) -> None:
    values = rng.standard_normal((512, 2048)).astype(np.float32)
    made = dequantize(quantize(values, name), name).reshape(values.shape)
    error = np.sqrt(((made - values).astype(np.float64) ** 2).mean())
    assert error <= 1.02 * OF_GGML[name], float(error / OF_GGML[name])


@pytest.mark.parametrize("name", ENCODED)
def test_quantize_what_is_unusual(rng: np.random.Generator, name: str) -> None:
    values = drawn_rows(rng, FORMATS[name].elements * 3)
    made = dequantize(quantize(values, name), name).reshape(values.shape)
    assert np.isfinite(made).all()
    np.testing.assert_array_equal(made[0], 0)
    # A single repeated value is as exact as its block's scale; MXFP4 has only 2 and 3 near 2.5.
    assert (abs(made[1] + 2.5) <= (0.5 if name == "mxfp4" else 2.5 * 2**-4)).all()
    assert (abs(made[2]) <= 1e-30).all()
    halves = values.astype(as_dtype("bf16").dtype)
    np.testing.assert_array_equal(quantize(halves, name), quantize(halves.astype(np.float32), name))
    # A block does not depend on its neighbors, however many blocks one call makes.
    rows = [quantize(values[i], name) for i in range(3, 7)]
    np.testing.assert_array_equal(np.concatenate(rows), quantize(values[3:7], name))


def test_activations_by_their_definition(rng: np.random.Generator) -> None:
    values = rng.standard_normal((5, 256)).astype(np.float32)
    blocks = quantize(values, "q8_K").reshape(5, 292)
    quants = blocks[:, 4:260].view(np.int8).astype(np.int64)
    sums = np.ascontiguousarray(blocks[:, 260:]).view(np.int16)
    np.testing.assert_array_equal(quants.reshape(5, 16, 16).sum(2), sums)
    assert (abs(quants).max(1) == 127).all()
    step = abs(values).max(1, keepdims=True) / 127
    assert (abs(dequantize(blocks.tobytes(), "q8_K").reshape(5, 256) - values) <= 0.51 * step).all()
    blocks = quantize(values, "q8_1").reshape(-1, 36)
    of_f16 = np.ascontiguousarray(blocks[:, :4]).view(np.float16).astype(np.float64)
    quants = blocks[:, 4:].view(np.int8).astype(np.int64)
    exact = quants.sum(1) * abs(values.reshape(-1, 32)).max(1).astype(np.float64) / 127
    np.testing.assert_allclose(of_f16[:, 1], exact, rtol=2e-3, atol=1e-6)


@pytest.mark.parametrize("name", WORST)
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
    # A transposed view is copied first; the result goes into `out`.
    turned = np.ascontiguousarray(x[:, 0].T)
    out = ubridge.zeros((4, 37), device=device)
    made = ubridge.quantized_matmul(ubridge.asarray(turned).T, weight, out=out[1:])
    assert made.shape == (3, 37)
    again = out.to_numpy()
    np.testing.assert_array_equal(again[0], 0)
    np.testing.assert_array_equal(again[1:], got[:, 0])


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_products_of_8_bits(device: Device, rng: np.random.Generator, dtype: str) -> None:
    """x is rounded once for all weights of a kind; the products add no other error."""
    # One kernel takes up to 8 vectors, another kernel takes more.
    lead = (2, int(rng.choice([1, 3, 6])))
    given = rng.standard_normal((*lead, 512)).astype(as_dtype(dtype).dtype)
    x, wide = ubridge.asarray(given), given.astype(np.float64)
    names = ("q4_0", "q6_K", "q8_0")
    weights = [QuantizedWeight.from_numpy(rng.standard_normal((5, 512)), name) for name in names]
    together = ubridge.quantized_matmul(x, weights, activations="q8")
    for weight, got in zip(weights, together, strict=True):
        stored = weight.to_numpy().astype(np.float64)
        run = weight.format.activations
        largest = abs(wide).reshape(*lead, -1, run).max(-1)
        lost = largest @ abs(stored).reshape(5, -1, run).sum(-1).T / 220
        bound = lost + ROUNDING[dtype] * (abs(wide) @ abs(stored).T)
        assert got.dtype == dtype and got.shape == (*lead, 5)
        values = got.to_numpy()
        assert (abs(values.astype(np.float64) - wide @ stored.T) <= bound).all()
        alone = ubridge.quantized_matmul(x, weight, activations="q8")
        np.testing.assert_array_equal(alone.to_numpy(), values)
        np.testing.assert_array_equal(ubridge.linear(x, weight).to_numpy(), values)
        out = ubridge.zeros((lead[1], 2, 5), dtype=dtype)
        turned = x.transpose(1, 0, 2)
        ubridge.quantized_matmul(turned, weight, activations="q8", out=out)
        np.testing.assert_array_equal(out.to_numpy(), values.transpose(1, 0, 2))
    exactly = ubridge.quantized_matmul(x, weights[0]).to_numpy().astype(np.float64)
    stored = weights[0].to_numpy().astype(np.float64)
    terms = abs(wide) @ abs(stored).T
    assert (abs(exactly - wide @ stored.T) <= ROUNDING[dtype] * terms).all()


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_a_quantized_weight_stands_where_a_dense_one_does(
    device: Device, rng: np.random.Generator, dtype: str
) -> None:
    quantized = QuantizedWeight.from_numpy(rng.standard_normal((5, 64)), "q8_0")
    dense = quantized.dequantize(dtype)
    x = ubridge.asarray(rng.standard_normal((2, 3, 64)).astype(as_dtype(dtype).dtype))
    bias = ubridge.asarray(rng.standard_normal(5).astype(as_dtype(dtype).dtype))
    sizes = [abs(part.to_numpy().astype(np.float64)) for part in (x, dense, bias)]
    terms = sizes[0] @ sizes[1].T + sizes[2]
    for given in ((), (bias,)):
        one = ubridge.linear(x, quantized, *given, activations="f32")
        other = ubridge.linear(x, dense, *given)
        assert one.dtype == other.dtype == dtype and one.shape == other.shape == (2, 3, 5)
        wide = [part.to_numpy().astype(np.float64) for part in (one, other)]
        # The weights and both results are rounded.
        assert (abs(wide[0] - wide[1]) <= 2 * ROUNDING[dtype] * terms).all()


def test_parts_and_rows(device: Device, rng: np.random.Generator) -> None:
    blocks = random_blocks(rng, "q6_K", 12)
    exact = elements(blocks, "q6_K").reshape(2, 3, 512)
    stack = QuantizedWeight(
        DeviceBuffer.from_numpy(blocks.ravel()), "q6_K", 6, 512, shape=(2, 3, 512)
    )
    np.testing.assert_array_equal(stack[1][-1].to_numpy(), exact[1, 2])
    np.testing.assert_array_equal(stack[:1].to_numpy(), exact[:1])
    rows = stack[1].take(np.array([[2, 0], [1, 1]]), "f16")
    assert rows.dtype == "f16"
    with np.errstate(over="ignore"):
        wanted = exact[1][[[2, 0], [1, 1]]].astype(np.float16)
    np.testing.assert_array_equal(rows.to_numpy(), wanted)
    with pytest.raises(
        ValueError, match=r"a weight of two axes, got <Quant.*\(2, 3, 512\)>; index"
    ):
        ubridge.quantized_matmul(ubridge.ones((1, 512)), stack)
    with pytest.raises(IndexError, match="cut in steps of 1"):
        stack[::2]
    with pytest.raises(ValueError, match=r"expected a shape of 6 rows of 512, got \(5, 512\)"):
        QuantizedWeight(stack.buffer, "q6_K", 6, 512, shape=(5, 512))


@pytest.mark.parametrize("name", ["q4_0", "q6_K"])
def test_rows_of_blocks_in_a_graph_and_its_file(
    device: Device, rng: np.random.Generator, tmp_path: Path, name: str
) -> None:
    blocks = random_blocks(rng, name, 2 * 512 // FORMATS[name].elements * 5)
    weight = QuantizedWeight.from_blocks(blocks.ravel(), name, 10, 512)
    exact = elements(blocks, name).reshape(10, 512)
    ids = ubridge.from_numpy(rng.integers(0, 10, (2, 3)).astype(np.uint32))
    with ubridge.trace() as graph:
        graph.name(ids, "ids")
        rows = ubridge.embedding(ids, weight)
        doubled = rows + rows
    graph.save(tmp_path / "graph.json")
    other = rng.integers(0, 10, (2, 3)).astype(np.uint32)
    ids.buffer.copy_from(other)
    stream = Stream()
    graph.instantiate(stream).replay(stream)
    stream.synchronize()
    np.testing.assert_array_equal(rows.to_numpy(), exact[other])
    np.testing.assert_array_equal(doubled.to_numpy(), 2 * exact[other])
    loaded = ubridge.ComputeGraph.load(tmp_path / "graph.json", graph.leaves)
    ubridge.execute_graph(loaded)
    got = loaded.tensor(loaded.nodes[-1].index).to_numpy()
    np.testing.assert_array_equal(got, 2 * exact[other])


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
    with pytest.raises(ValueError, match="no block format 'q9_k'; there are q4_0, q4_1, q5_0"):
        quantize(np.ones(32), "q9_k")
    with pytest.raises(ValueError, match="quantize: no way to iq2_xxs is known; there are q4_0"):
        quantize(np.ones(256), "iq2_xxs")
    with pytest.raises(ValueError, match=r"expected a matrix, got shape \(64,\)"):
        QuantizedWeight.from_numpy(np.ones(64), "q8_0")
    with pytest.raises(ValueError, match=r"last axis of 64, got shape \(2, 32\)"):
        ubridge.quantized_matmul(ubridge.zeros((2, 32)), weight)
    with pytest.raises(TypeError, match=r"expected x of f32, f16 or bf16, got f64: use astype"):
        ubridge.quantized_matmul(x.astype("f64"), weight)
    with pytest.raises(ValueError, match="activations: expected 'f32' or 'q8', got 'i8'"):
        ubridge.quantized_matmul(x, weight, activations="i8")  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="out: expected none for several weights"):
        ubridge.quantized_matmul(x, [weight], out=x)  # type: ignore[call-overload]
    with pytest.raises(ValueError, match=r"a last axis of 32, got shape \(2, 64\)"):
        narrow = QuantizedWeight.from_numpy(np.ones((3, 32)), "q8_0")
        ubridge.quantized_matmul(x, [weight, narrow])
    with pytest.raises(TypeError, match="expected a QuantizedWeight, got DeviceTensor"):
        ubridge.quantized_matmul(x, x)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"'weight'.*at least 204 elements.*got one of 203"):
        QuantizedWeight(DeviceBuffer.zeros(203, "u8"), "q8_0", 3, 64)
    with pytest.raises(ValueError, match="blocks at a multiple of 2 bytes"):
        QuantizedWeight(DeviceBuffer.zeros(300, "u8")[1:], "q8_0", 3, 64)
    with pytest.raises(ValueError, match=r"whole blocks of 34 bytes, got 33"):
        dequantize(bytes(33), "q8_0")


def test_gcus_are_refused_in_words(simulated: object) -> None:
    simulated("tops-sim")  # type: ignore[operator]
    with Device(0, backend="tops"):
        x = ubridge.zeros((1, 64))
        with pytest.raises(NotImplementedError, match=r"tops backend has no such kernel"):
            ubridge.quantized_matmul(x, QuantizedWeight.from_numpy(np.ones((3, 64)), "q8_0"))
