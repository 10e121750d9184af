"""Attention in tiles of rows: every kernel, with masks, caches, windows, bounds and parts."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import ubridge
from tests.sampling import rounds
from tests.ubridge.kernel_bench import Array, Output, numpy_dtype, run
from uhal import Device, DeviceBuffer

DEVICES = ("cuda-sim",)
pytestmark = pytest.mark.entries

HALF_ULP = {"f16": 2.0**-11, "bf16": 2.0**-8, "f32": 2.0**-24}


def close(got: Array, exact: Array, magnitude: Array, dtype: str) -> None:
    """Assert results within one rounding, and within f32's error of weights and sums."""
    error = np.abs(got.astype(np.float64).reshape(exact.shape) - exact)
    allowed = HALF_ULP[dtype] * np.abs(exact) + 2.0**-17 * magnitude + 2.0**-24
    assert (error <= allowed).all(), float((error / allowed).max())


def attended(scores: Array, values: Array) -> tuple[Array, Array]:
    """Return exact results and sums of magnitudes; a score of -inf hides its key."""
    largest = np.maximum(scores.max(-1, keepdims=True), -1e30)
    weights = np.exp(scores - largest)
    total = weights.sum(-1, keepdims=True)
    weights /= np.where(total == 0, 1, total)
    return weights @ values, weights * (1 + np.abs(np.nan_to_num(scores))) @ np.abs(values)


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [*product(("tensor", "tensor_shared"), ("f16", "bf16")), ("tiles", "f32")],
)
@pytest.mark.parametrize("width", [64, 128])
def test_queries_with_a_mask(
    device: Device, rng: np.random.Generator, width: int, kind: str, dtype: str
) -> None:
    shared = kind == "tensor_shared"
    rows = 16 if shared else 128 if (kind, width) == ("tensor", 64) else 64
    for is_causal in rounds((bool(rng.integers(2)),), (False, True) * 10):
        batch, kv_heads, group = 2, 2, int(rng.integers(1, 4))
        queries = int(rng.integers(1, 16 // group + 1)) if shared else int(rng.integers(20, 50))
        keys = queries + int(rng.choice([0, 1, 60, 100]))
        dim = int(rng.choice([width, width - 8, width // 2 + 1]))
        heads, numbers = kv_heads * group, numpy_dtype(dtype)
        q = rng.standard_normal((batch, heads, queries, dim)).astype(numbers)
        k, v = (rng.standard_normal((batch, kv_heads, keys, dim)).astype(numbers) for _ in "kv")
        mask = rng.standard_normal((batch, queries, keys)).astype(numbers)
        mask[rng.random(mask.shape) < 0.3] = -np.inf
        start = int(rng.choice([0, 0, 3]))
        q_at, k_at, v_at, mask_at = (
            DeviceBuffer.from_numpy(np.append(np.zeros(start, numbers), one))[start:]
            for one in (q, k, v, mask)
        )
        output = Output(dtype, q.size)
        run(
            device,
            f"attention_{kind.removesuffix('_shared')}",
            f"sdpa_{kind}{width}_{dtype}",
            q_at,
            k_at,
            v_at,
            mask_at,
            None,
            None,
            output.buffer,
            None,
            heads,
            kv_heads,
            queries,
            keys,
            dim,
            queries * dim,
            dim,
            queries * keys,
            0,
            0,
            keys,
            0.25,
            0.0,
            is_causal,
            grid=(-(-group * queries // rows), 1, batch * kv_heads),
            block=128,
        )
        wide_k, wide_v = (np.repeat(one.astype(np.float64), group, 1) for one in (k, v))
        scores = q.astype(np.float64) @ wide_k.swapaxes(2, 3) * 0.25
        scores = scores + mask.astype(np.float64)[:, None]
        if is_causal:
            later = np.arange(keys) > np.arange(queries)[:, None] + keys - queries
            scores = np.where(later, -np.inf, scores)
        close(output.to_numpy(), *attended(scores, wide_v), dtype)


@pytest.mark.parametrize("queries", [1, 40])
def test_a_small_weight_keeps_its_digits(
    device: Device, rng: np.random.Generator, queries: int
) -> None:
    """The largest weight belongs to a value of zero, so that small weights determine the result."""
    width, keys = 64, 3
    scores = np.array([0.0, *rng.uniform(-13, -7, keys - 1)])
    k = np.zeros((1, 1, keys, width), np.float16)
    k[..., 0] = scores
    q = np.zeros((1, 1, queries, width), np.float16)
    q[..., 0] = 1
    v = rng.uniform(1, 4, k.shape).astype(np.float16)
    v[:, :, 0] = 0
    got = ubridge.attention(*(ubridge.asarray(one, device=device) for one in (q, k, v)), scale=1.0)
    weights = np.exp(k[0, 0, :, 0].astype(np.float64))
    exact = (weights / weights.sum()) @ v[0, 0].astype(np.float64)
    # One rounding to f16, with a constant error below 2^-14, and roundings to f32 for three terms.
    allowed = np.maximum(2.0**-11 * exact, 2.0**-25) + 2.0**-18 * exact
    error = np.abs(got.to_numpy().astype(np.float64) - exact)
    assert (error <= allowed).all(), float((error / allowed).max())


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
@pytest.mark.parametrize("tokens", [1, 2, 30])
def test_a_cache(device: Device, rng: np.random.Generator, tokens: int, dtype: str) -> None:
    """Caches contain garbage after the text; a single token's keys are split into parts."""
    kv_heads, group, width = 2, int(rng.integers(1, 5)), int(rng.choice([40, 64, 72]))
    capacity = 300 if tokens == 1 else 90
    place = int(rng.integers(0, capacity - tokens + 1))
    window, cap = int(rng.choice([0, 7, 40])), float(rng.choice([0.0, 2.0]))
    heads, kind = kv_heads * group, numpy_dtype(dtype)
    q = rng.standard_normal((tokens, heads, width)).astype(kind)
    k, v = (rng.standard_normal((kv_heads, capacity, width)).astype(kind) for _ in range(2))
    k[:, place + tokens :], v[:, place + tokens :] = np.nan, np.nan
    bias = rng.standard_normal((heads, capacity)).astype(np.float32)
    got = ubridge.cached_attention(
        *(ubridge.asarray(one, device=device) for one in (q, k, v)),
        ubridge.asarray(np.array([place]), device=device),
        scale=0.5,
        window=window,
        cap=cap,
        bias=ubridge.asarray(bias, device=device),
    ).to_numpy()
    wide_k, wide_v = (np.repeat(one.astype(np.float64), group, 0) for one in (k, v))
    wide_k[:, place + tokens :], wide_v[:, place + tokens :] = 0, 0
    scores = q.astype(np.float64).swapaxes(0, 1) @ wide_k.swapaxes(1, 2) * 0.5
    scores = (cap * np.tanh(scores / cap) if cap else scores) + bias[:, None]
    own, key = np.arange(place, place + tokens)[:, None], np.arange(capacity)
    hidden = (key > own) | ((key <= own - window) if window else False)
    exact, magnitude = attended(np.where(hidden, -np.inf, scores), wide_v)
    close(got, exact.swapaxes(0, 1), magnitude.swapaxes(0, 1), dtype)
