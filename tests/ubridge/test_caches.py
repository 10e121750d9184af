"""Caches of keys and values on every backend: appends at a position, and their errors."""

from __future__ import annotations

import numpy as np
import pytest

import ubridge
from tests.sampling import rounds
from tests.ubridge.kernel_bench import numpy_dtype
from ubridge.definitions.attention import KV_APPEND
from ubridge.definitions.products import QUANTIZED_PRODUCT
from ubridge.device.host import has_host_memory
from uhal import Device
from uhal.errors import ArgumentTypeError, ArgumentValueError, NotSupportedError

DEVICES = ("host", "cuda-sim", "rocm-sim", "tops-sim", "opencl")


def test_tokens_go_to_their_place(device: Device, rng: np.random.Generator) -> None:
    for _ in range(rounds(3, 50)):
        for dtype in ("f32", "f16", "bf16"):
            heads, width, capacity = (int(one) for one in rng.integers(2, 9, 3))
            shapes = (1, heads, capacity, width), (1, heads, 1, width)
            cache, source = (
                rng.standard_normal(shape).astype(numpy_dtype(dtype)) for shape in shapes
            )
            whole = ubridge.asarray(cache, device=device)
            position = int(rng.integers(0, capacity))
            where = ubridge.asarray(np.array([position]), device=device)
            assert ubridge.kv_append(whole, ubridge.asarray(source, device=device), where) is whole
            expected = cache.copy()
            expected[:, :, position] = source[:, :, 0]
            np.testing.assert_array_equal(whole.to_numpy(), expected)


def test_a_place_past_the_cache_is_an_index_error(device: Device) -> None:
    cache = ubridge.zeros((2, 4, 3), device=device)
    source = ubridge.ones((2, 1, 3), device=device)
    for wrong in (4, -1, 1 << 40):
        with pytest.raises(IndexError, match="kv_append"):
            ubridge.kv_append(cache, source, ubridge.asarray(np.array([wrong]), device=device))
            cache.to_numpy()
    assert not cache.to_numpy().any()


def test_a_place_past_the_angles_is_an_index_error(device: Device) -> None:
    x = ubridge.ones((1, 2, 4), device=device)
    cos, sin = ubridge.ones((3, 2), device=device), ubridge.zeros((3, 2), device=device)
    for place in (3, -1, 1 << 40, 2):
        where = ubridge.asarray(np.array([place]), device=device)
        if place == 2:
            assert (ubridge.rope_at(x, cos, sin, where).to_numpy() == 1).all()
        else:
            with pytest.raises(IndexError, match="out of bounds"):
                ubridge.rope_at(x, cos, sin, where).to_numpy()


def test_what_does_not_fit_is_refused(device: Device) -> None:
    cache = ubridge.zeros((2, 4, 3), device=device)
    source = ubridge.ones((2, 1, 3), device=device)
    position = ubridge.asarray(np.array([0]), device=device)
    with pytest.raises(ArgumentValueError, match=r"kv_append: expected shapes \(…, capacity"):
        ubridge.kv_append(cache, source[:1], position)
    with pytest.raises(ArgumentValueError, match="as wide as the cache"):
        ubridge.kv_append(cache, source[:, :, :2], position)
    with pytest.raises(ArgumentValueError, match="no more than it holds"):
        ubridge.kv_append(cache, ubridge.ones((2, 5, 3), device=device), position)
    with pytest.raises(ArgumentTypeError, match="got f16 and 1 of i64"):
        ubridge.kv_append(cache, ubridge.ones((2, 1, 3), "f16", device=device), position)
    with pytest.raises(ArgumentTypeError, match="got f32 and 2 of i64"):
        ubridge.kv_append(cache, source, ubridge.asarray(np.array([0, 1]), device=device))
    with pytest.raises(ArgumentValueError, match="contiguous cache"):
        ubridge.kv_append(cache[:, ::2], source, position)
    if device.backend == "tops":
        with pytest.raises(NotSupportedError, match="one token at a time, got 2"):
            ubridge.kv_append(cache, ubridge.ones((2, 2, 3), device=device), position)


def test_models_ask_devices_for_what_they_can_do(device: Device) -> None:
    at = ubridge.DeviceExecutor.of(device)
    assert at.lowering(KV_APPEND).of_one_token == (device.backend == "tops")
    assert at.has(QUANTIZED_PRODUCT) == (device.backend != "tops")
    assert has_host_memory(device) == (device.backend == "host")


def test_a_query_sees_as_many_keys_as_its_window(host: Device, rng: np.random.Generator) -> None:
    heads, capacity, width = 2, 9, 8
    query = rng.standard_normal((2, heads, width), dtype="f4")
    keys, values = rng.standard_normal((2, heads, capacity, width), dtype="f4")
    position = int(rng.integers(2, capacity - 2))
    given = [ubridge.asarray(one, device=host) for one in (query, keys, values)]
    where = ubridge.asarray(np.array([position]), device=host)
    for window in (0, 1, 2, 3, position, position + 1, position + 2, position + 3, 1 << 20):
        got = ubridge.cached_attention(*given, where, window=window).to_numpy()
        for token in range(2):
            own = position + token
            seen = slice(max(0, own + 1 - window) if window else 0, own + 1)
            scores = np.einsum("hw,hkw->hk", query[token].astype("f8"), keys[:, seen]) / width**0.5
            weights = np.exp(scores - scores.max(1, keepdims=True))
            weights /= weights.sum(1, keepdims=True)
            expected = np.einsum("hk,hkw->hw", weights, values[:, seen])
            np.testing.assert_allclose(got[token], expected, 1e-5, 1e-5, err_msg=f"{window}")
            if window == 1:
                np.testing.assert_array_equal(got[token], values[:, own])


def test_heads_are_at_most_256_wide(host: Device, rng: np.random.Generator) -> None:
    where = ubridge.asarray(np.array([2]), device=host)

    def both(width: int) -> list[ubridge.DeviceTensor]:
        drawn = rng.standard_normal((3, 1, 3, width), dtype="f4")
        query, keys, values = (ubridge.asarray(one, device=host) for one in drawn)
        last = query[:, 2:]
        return [
            ubridge.attention(last[None], keys[None], values[None])[0, :, 0],
            ubridge.cached_attention(last.swapaxes(0, 1).copy(), keys, values, where)[0],
        ]

    one, other = both(256)
    np.testing.assert_allclose(one.to_numpy(), other.to_numpy(), 1e-5, 1e-5)
    for attend in (ubridge.attention, ubridge.cached_attention):
        wide = ubridge.zeros((1, 1, 3, 257), device=host)
        given = (wide, wide, wide) if attend is ubridge.attention else (*[wide[0]] * 3, where)
        with pytest.raises(ArgumentValueError, match="at most 256"):
            attend(*given)


def test_causal_queries_before_the_first_key_get_zeros(
    host: Device, rng: np.random.Generator
) -> None:
    query = rng.standard_normal((1, 1, 5, 8), dtype="f4")
    keys, values = rng.standard_normal((2, 1, 1, 2, 8), dtype="f4")
    given = [ubridge.asarray(one, device=host) for one in (query, keys, values)]
    got = ubridge.attention(*given, causal=True).to_numpy()[0, 0]
    assert not got[:3].any()
    np.testing.assert_array_equal(got[3], values[0, 0, 0])
    assert np.isfinite(got).all() and got[4].any()
