"""GCU-only operations on the simulated runtime, compared with numpy in f64."""

from __future__ import annotations

import numpy as np
import pytest

import ubridge
from ubridge.ops import gcus
from uhal import Device, DeviceBuffer, as_dtype
from uhal.errors import ArgumentValueError, NotSupportedError

DEVICES = ("tops-sim",)


def drawn(rng: np.random.Generator, dtype: str, *shape: int) -> tuple[DeviceBuffer, np.ndarray]:
    array = rng.uniform(-1, 1, shape).astype(as_dtype(dtype).dtype)
    return DeviceBuffer.from_numpy(array.ravel()), array.astype(np.float64)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_quantized_weights(bits: int, dtype: str, device: Device, rng: np.random.Generator) -> None:
    m, k, n, group = 5, 64, 24, 32
    a, x = drawn(rng, dtype, m, k)
    scales, scale = drawn(rng, dtype, k // group, n)
    zeros, zero = drawn(rng, dtype, k // group, n)
    levels = rng.integers(0, 16 if bits == 4 else 100, (k, n)).astype(np.uint8)
    packed = levels[::2] | levels[1::2] << 4 if bits == 4 else levels
    weight = DeviceBuffer.from_numpy(packed.ravel())
    got = gcus.launch_quantized_matmul(a, weight, scales, zeros, m, k, n, group, bits=bits)
    spread = [np.repeat(one, group, 0) for one in (zero, scale)]
    expected = x @ ((levels - spread[0]) * spread[1])
    step = {"f16": 1e-3, "bf16": 8e-3}[dtype]
    found = got.to_numpy().astype(np.float64).reshape(m, n)
    assert np.abs(found - expected).max() <= step * np.abs(expected).max()


@pytest.mark.parametrize("table", ["f16", "f32"])
@pytest.mark.parametrize("interleaved", [False, True])
def test_rotary(table: str, interleaved: bool, device: Device, rng: np.random.Generator) -> None:
    tokens, heads, kv_heads, width = 7, 4, 2, 8
    query, q = drawn(rng, "f16", tokens, heads, width)
    key, k = drawn(rng, "f16", tokens, kv_heads, width)
    cos_sin, angles = drawn(rng, table, 20, width)
    where = rng.integers(0, 20, tokens)
    positions = DeviceBuffer.from_numpy(where)
    sizes = (tokens, heads, kv_heads, width)
    gcus.launch_rotary(query, key, cos_sin, positions, *sizes, interleaved=interleaved)
    cos, sin = (half[:, None] for half in np.split(angles[where], 2, -1))
    for buffer, given in ((query, q), (key, k)):
        pairs = (given[..., ::2], given[..., 1::2]) if interleaved else np.split(given, 2, -1)
        turned = (pairs[0] * cos - pairs[1] * sin, pairs[0] * sin + pairs[1] * cos)
        joined = (
            np.stack(turned, -1).reshape(given.shape) if interleaved else np.concatenate(turned, -1)
        )
        np.testing.assert_allclose(
            buffer.to_numpy().astype(np.float64).reshape(given.shape), joined, 2e-3, 2e-3
        )
    with pytest.raises(IndexError, match="rotary: expected positions from 0 to 19"):
        positions.copy_from(np.full(tokens, 20))
        gcus.launch_rotary(query, key, cos_sin, positions, *sizes)


def test_paged_caches(device: Device, rng: np.random.Generator) -> None:
    heads, kv_heads, width, block, blocks = 4, 2, 8, 4, 6
    lengths = np.array([7, 3], np.int32)
    tables = np.array([[4, 1], [2, 0]], np.int32)
    caches = [DeviceBuffer.zeros(blocks * kv_heads * block * width, "f16") for _ in range(2)]
    stored = []
    for sequence, length in enumerate(lengths):
        positions = np.arange(length)
        slots = tables[sequence][positions // block].astype(np.int64) * block + positions % block
        keys, k = drawn(rng, "f16", int(length), kv_heads, width)
        values, v = drawn(rng, "f16", int(length), kv_heads, width)
        sizes = (int(length), kv_heads, width, block)
        gcus.launch_reshape_and_cache(keys, values, *caches, DeviceBuffer.from_numpy(slots), *sizes)
        stored.append((k, v))
    query, q = drawn(rng, "f16", 2, heads, width)
    got = gcus.launch_paged_attention(
        query,
        *caches,
        DeviceBuffer.from_numpy(tables.ravel()),
        DeviceBuffer.from_numpy(lengths),
        2,
        heads,
        kv_heads,
        width,
        block,
        0.5,
    )
    for sequence, (k, v) in enumerate(stored):
        for head in range(heads):
            scores = k[:, head // 2] @ q[sequence, head] * 0.5
            weights = np.exp(scores - scores.max())
            expected = weights @ v[:, head // 2] / weights.sum()
            found = got.to_numpy().astype(np.float64).reshape(2, heads, width)[sequence, head]
            np.testing.assert_allclose(found, expected, 2e-3, 2e-3)
    with pytest.raises(IndexError, match="expected slots below 24"):
        gcus.launch_reshape_and_cache(
            keys, values, *caches, DeviceBuffer.from_numpy(np.array([24])), 1, kv_heads, width, 4
        )


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_q8_0(dtype: str, device: Device, rng: np.random.Generator) -> None:
    buffer, x = drawn(rng, dtype, 320)
    blocks = gcus.launch_quantize_q8_0(buffer)
    out = DeviceBuffer.from_numpy(np.full(320, 77, as_dtype(dtype).dtype))
    gcus.launch_dequantize_q8_0(blocks, 320, out)
    largest = np.abs(x.reshape(-1, 32)).max(1, keepdims=True)
    error = np.abs(out.to_numpy().astype(np.float64).reshape(-1, 32) - x.reshape(-1, 32))
    assert (error <= largest * (0.5 / 127 + 8e-3)).all()
    with pytest.raises(ArgumentValueError, match="whole blocks of 32 elements, got 33"):
        gcus.launch_dequantize_q8_0(blocks, 33, out)


def test_what_kernels_do_wrong_is_refused(device: Device) -> None:
    x = ubridge.ones((2, 3), device=device)
    with pytest.raises(NotSupportedError, match="gelu_erf: the kernel is the tanh form"):
        ubridge.gelu_erf(x)
    line = ubridge.ones((1, 1, 9), device=device)
    with pytest.raises(NotSupportedError, match="conv1d: on a GCU with a dilation of 1 only"):
        ubridge.conv1d(line, line[..., :3], dilation=2)


def test_others_have_no_such_kernels() -> None:
    with Device(0, "host"), pytest.raises(NotSupportedError, match="only GCUs have this kernel"):
        gcus.launch_quantize_q8_0(DeviceBuffer.zeros(32, "f32"))
