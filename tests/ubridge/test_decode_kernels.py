"""The kernels for generation token by token, which read positions from device memory."""

from __future__ import annotations

import numpy as np
import pytest

from tests.sampling import rounds
from tests.ubridge.kernel_bench import (
    assert_same,
    numpy_dtype,
    random_geometry,
    random_values,
    run,
)
from ubridge.prepare.candle.attention import part_width
from uhal import Device, DeviceBuffer

pytestmark = pytest.mark.entries


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16"])
def test_kv_append(device: Device, rng: np.random.Generator, dtype: str) -> None:
    for _ in range(rounds(4, 100)):
        rows, width, capacity = (int(one) for one in rng.integers(1, 9, 3))
        tokens = int(rng.integers(1, capacity + 1))
        start = int(rng.integers(0, capacity - tokens + 1))
        cache = random_values(rng, dtype, rows * capacity * width)
        given = random_values(rng, dtype, rows * tokens * width)
        target, source = DeviceBuffer.from_numpy(cache), DeviceBuffer.from_numpy(given)
        position = DeviceBuffer.from_numpy(np.array([start]))
        run(
            device,
            "decode",
            f"kv_append_{dtype}",
            given.size,
            position,
            source,
            target,
            tokens,
            capacity,
            width,
            **random_geometry(rng),
        )
        expected = cache.reshape(rows, capacity, width).copy()
        expected[:, start : start + tokens] = given.reshape(rows, tokens, width)
        assert_same(target.to_numpy(), expected.ravel())


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16"])
def test_paged_append(device: Device, rng: np.random.Generator, dtype: str) -> None:
    """Tokens of slot -1 are skipped; other slots are overwritten, and the rest stays."""
    for _ in range(rounds(4, 100)):
        tokens, width = (int(one) for one in rng.integers(1, 9, 2))
        capacity = tokens + int(rng.integers(0, 9))
        pool = random_values(rng, dtype, capacity * width)
        given = random_values(rng, dtype, tokens * width)
        slots = rng.permutation(capacity)[:tokens].astype(np.int64)
        slots[rng.random(tokens) < 0.2] = -1
        target = DeviceBuffer.from_numpy(pool)
        run(
            device,
            "decode",
            f"paged_append_{dtype}",
            given.size,
            DeviceBuffer.from_numpy(slots),
            DeviceBuffer.from_numpy(given),
            target,
            capacity,
            width,
            **random_geometry(rng),
        )
        expected = pool.reshape(capacity, width).copy()
        expected[slots[slots >= 0]] = given.reshape(tokens, width)[slots >= 0]
        assert_same(target.to_numpy(), expected.ravel())


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16"])
def test_rope_at(device: Device, rng: np.random.Generator, dtype: str) -> None:
    for _ in range(rounds(3, 60)):
        tokens, heads, pairs = (int(one) for one in rng.integers(1, 6, 3))
        width, positions = 2 * pairs + int(rng.integers(0, 4)), tokens + int(rng.integers(0, 9))
        place = int(rng.integers(0, positions - tokens + 1))
        neighbors = bool(rng.integers(0, 2))
        x = rng.standard_normal((tokens, heads, width)).astype(numpy_dtype(dtype))
        angles = rng.uniform(-4, 4, (positions, pairs)).astype(np.float32)
        out = DeviceBuffer.from_numpy(np.full_like(x, np.nan).ravel())
        run(
            device,
            "decode",
            f"rope_at_{dtype}",
            tokens * heads,
            DeviceBuffer.from_numpy(np.array([place])),
            DeviceBuffer.from_numpy(x.ravel()),
            DeviceBuffer.from_numpy(np.cos(angles).ravel()),
            DeviceBuffer.from_numpy(np.sin(angles).ravel()),
            out,
            heads,
            width,
            2 * pairs,
            positions,
            neighbors,
            **random_geometry(rng),
        )
        exact = x.astype(np.float64)
        first = 2 * np.arange(pairs) if neighbors else np.arange(pairs)
        second = first + (1 if neighbors else pairs)
        turned = angles[place : place + tokens, None].astype(np.float64)
        a, b = exact[..., first], exact[..., second]
        exact[..., first] = a * np.cos(turned) - b * np.sin(turned)
        exact[..., second] = a * np.sin(turned) + b * np.cos(turned)
        got = out.to_numpy().reshape(x.shape).astype(np.float64)
        np.testing.assert_allclose(got, exact, atol=_NEAR[dtype], rtol=_NEAR[dtype])


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16"])
def test_attention_over_a_cache_in_parts(
    device: Device, rng: np.random.Generator, dtype: str
) -> None:
    """Test attention by one block, and in parts by two kernels; unused keys contain garbage."""
    for _ in range(rounds(2, 30)):
        kv_heads, group, width = (int(one) for one in (*rng.integers(1, 3, 2), rng.integers(3, 20)))
        heads, capacity, split = kv_heads * group, int(rng.integers(30, 60)), 16
        place = int(rng.integers(0, capacity))
        window = int(rng.choice([0, 5, 20]))
        kind = numpy_dtype(dtype)
        q = rng.standard_normal((heads, width)).astype(kind)
        k, v = (rng.standard_normal((kv_heads, capacity, width)).astype(kind) for _ in range(2))
        k[:, place + 1 :], v[:, place + 1 :] = np.nan, np.nan
        buffers = [DeviceBuffer.from_numpy(one.ravel()) for one in (q, k, v)]
        position = DeviceBuffer.from_numpy(np.array([place]))
        splits = -(-capacity // split)
        compute = np.float64 if dtype == "f64" else np.float32
        room = np.full(heads * splits * part_width(width), np.nan, compute)
        parts, whole, merged = (
            DeviceBuffer.from_numpy(one)
            for one in (room, *(np.full(heads * width, np.nan, kind) for _ in range(2)))
        )
        sizes = (heads, kv_heads, width, capacity, window, split, 0.5, 0.0)
        for out, blocks in ((whole, 1), (merged, splits)):
            run(
                device,
                "attention",
                f"sdpa_cached_{dtype}",
                *buffers,
                None,
                position,
                out,
                parts,
                *sizes,
                grid=(heads, blocks, 1),
                block=64,
            )
        run(
            device,
            "attention",
            f"sdpa_merge_{dtype}",
            parts,
            position,
            merged,
            heads,
            width,
            capacity,
            window,
            split,
            splits,
            grid=heads,
            block=32,
        )
        first = max(0, place + 1 - window) if window else 0
        seen = slice(first, place + 1)
        keys, values = (np.repeat(one, group, 0).astype(np.float64)[:, seen] for one in (k, v))
        scores = np.einsum("hw,hkw->hk", q.astype(np.float64), keys) * 0.5
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        exact = np.einsum("hk,hkw->hw", shares / shares.sum(-1, keepdims=True), values)
        for out in (whole, merged):
            got = out.to_numpy().reshape(exact.shape).astype(np.float64)
            np.testing.assert_allclose(got, exact, atol=_NEAR[dtype], rtol=_NEAR[dtype])


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_attention_that_packs_its_keys(host: Device, rng: np.random.Generator, dtype: str) -> None:
    """Test tiles of every size, over caches that end within a tile; only CPUs have this kernel."""
    for _ in range(rounds(12, 100)):
        kv_heads, group, tokens = (int(one) for one in rng.integers(1, [3, 5, 40]))
        # Vectors of a single token are not packed.
        width = int(rng.choice([rng.integers(1, 40), 16 * rng.integers(1, 10)]))
        capacity = tokens + int(rng.integers(0, 150))
        heads, tile = kv_heads * group, int(rng.choice([1, rng.integers(2, 20)]))
        place, window = int(rng.integers(0, capacity - tokens + 1)), int(rng.choice([0, 1, 30, 90]))
        cap, has_bias = float(rng.choice([0.0, 1.5])), bool(rng.integers(0, 2))
        kind = numpy_dtype(dtype)
        q = rng.standard_normal((tokens, heads, width)).astype(kind)
        k, v = (rng.standard_normal((kv_heads, capacity, width)).astype(kind) for _ in range(2))
        k[:, place + tokens :], v[:, place + tokens :] = np.nan, np.nan
        bias = (5 * rng.standard_normal((heads, capacity))).astype(np.float32)
        buffers = [DeviceBuffer.from_numpy(one.ravel()) for one in (q, k, v)]
        added = DeviceBuffer.from_numpy(bias.ravel()) if has_bias else None
        out = DeviceBuffer.from_numpy(np.full(q.size, np.nan, kind))
        run(
            host,
            "attention_packed",
            f"sdpa_packed_{dtype}",
            *buffers,
            added,
            DeviceBuffer.from_numpy(np.array([place])),
            out,
            tokens,
            tile,
            heads,
            kv_heads,
            width,
            capacity,
            window,
            0.7,
            cap,
            grid=(kv_heads, -(-tokens // tile), 1),
            block=8,
        )
        seen = place + tokens
        keys, values = (np.repeat(one, group, 0).astype(np.float64)[:, :seen] for one in (k, v))
        scores = np.einsum("thw,hkw->thk", q.astype(np.float64), keys) * 0.7
        scores = cap * np.tanh(scores / cap) if cap else scores
        scores = scores + (bias[None, :, :seen] if has_bias else 0)
        own, key = np.arange(place, seen)[:, None, None], np.arange(seen)
        hidden = (key > own) | ((key <= own - window) if window else False)
        scores = np.where(hidden, -np.inf, scores)
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        exact = np.einsum("thk,hkw->thw", shares / shares.sum(-1, keepdims=True), values)
        got = out.to_numpy().reshape(exact.shape).astype(np.float64)
        np.testing.assert_allclose(got, exact, atol=_NEAR[dtype], rtol=_NEAR[dtype])


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_attention_of_whole_tensors(host: Device, rng: np.random.Generator, dtype: str) -> None:
    """Test causal and masked attention, grouped heads, single queries and tiles of queries."""
    kind = numpy_dtype(dtype)
    for _ in range(rounds(16, 200)):
        batch, kv_heads, group = (int(one) for one in rng.integers(1, [3, 4, 4]))
        queries, keys = (int(rng.choice([1, rng.integers(2, 150)])) for _ in range(2))
        width = int(rng.choice([rng.integers(1, 40), 16 * rng.integers(1, 10)]))
        heads, is_causal = kv_heads * group, bool(rng.integers(0, 2))
        q = rng.standard_normal((batch, heads, queries, width)).astype(kind)
        shape = (batch, kv_heads, keys, width)
        k, v = (rng.standard_normal(shape).astype(kind) for _ in range(2))
        tile = int(rng.choice([1, rng.integers(2, 20)]))
        mask = None
        mask_strides: tuple[int, ...] = (0, 0)
        if rng.integers(0, 2):
            mask = rng.standard_normal(
                (*[int(rng.choice([1, n])) for n in (batch, heads)], queries, keys)
            )
            mask[rng.random(mask.shape) < 0.3] = -np.inf
            mask[..., 0, :] = -np.inf
            mask = mask.astype(kind)
            strides = (one // mask.itemsize for one in mask.strides)
            lengths = zip(mask.shape[:2], strides, strict=False)
            mask_strides = tuple(stride if length > 1 else 0 for length, stride in lengths)
        out = DeviceBuffer.from_numpy(np.full(q.size, np.nan, kind))
        run(
            host,
            "attention_packed",
            f"sdpa_whole_{dtype}",
            *(DeviceBuffer.from_numpy(one.ravel()) for one in (q, k, v)),
            None if mask is None else DeviceBuffer.from_numpy(mask.ravel()),
            out,
            queries,
            tile,
            heads,
            kv_heads,
            width,
            keys,
            *mask_strides,
            0.7,
            is_causal,
            grid=(kv_heads, -(-queries // tile), batch),
            block=8,
        )
        every_key, values = (np.repeat(one, group, 1).astype(np.float64) for one in (k, v))
        scores = np.einsum("bhqw,bhkw->bhqk", q.astype(np.float64), every_key) * 0.7
        if mask is not None:
            scores = scores + mask.astype(np.float64)
        if is_causal:
            last = np.arange(queries)[:, None] + keys - queries
            scores = np.where(np.arange(keys) > last, -np.inf, scores)
        shares = np.exp(scores - np.maximum(scores.max(-1, keepdims=True), -1e30))
        total = shares.sum(-1, keepdims=True)
        exact = shares / np.where(total == 0, 1, total) @ values
        got = out.to_numpy().reshape(exact.shape).astype(np.float64)
        told = f"{q.shape} {k.shape} causal {is_causal} mask {mask is not None}"
        np.testing.assert_allclose(got, exact, atol=_NEAR[dtype], rtol=_NEAR[dtype], err_msg=told)


_NEAR = {"f64": 2e-6, "f32": 2e-5, "f16": 4e-3, "bf16": 4e-2}
