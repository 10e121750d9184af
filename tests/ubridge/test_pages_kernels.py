"""The kernels of attention over pages, also over pages of 8 bits and with split keys."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from tests.sampling import rounds
from tests.ubridge.kernel_bench import numpy_dtype, random_geometry, run
from ubridge.prepare.candle.attention import SPLIT, part_width
from uhal import Device, DeviceBuffer

pytestmark = pytest.mark.entries

Array = npt.NDArray[np.float64]
LARGEST = {"i8": 127, "f8e4m3": 448}
POOLS = [*LARGEST, None]
"""Types of 8-bit pages; pages without a type of their own have the queries' type."""
NEAR = {"f64": 2e-6, "f32": 2e-5, "f16": 4e-3, "bf16": 4e-2}
CASES = [(dtype, pool) for dtype in NEAR for pool in POOLS if pool is None or dtype != "f64"]


def packed(elements: npt.NDArray[np.generic], scales: npt.NDArray[np.float32]) -> Array:
    """Return rows of 8-bit elements, each row with its scale behind it, as bytes."""
    return np.concatenate([elements.view(np.uint8), scales[..., None].view(np.uint8)], axis=-1)


def numbers(rows: npt.NDArray[np.uint8], pool: str) -> Array:
    """Return the numbers of rows that `packed` made."""
    scales = np.ascontiguousarray(rows[..., -4:]).view(np.float32)
    elements = np.ascontiguousarray(rows[..., :-4]).view(numpy_dtype(pool))
    return elements.astype(np.float64) * scales


@pytest.mark.parametrize(("dtype", "pool"), [case for case in CASES if case[1] is not None])
def test_append_to_pages_of_8_bits(
    device: Device, rng: np.random.Generator, dtype: str, pool: str
) -> None:
    """Each number is kept within half a step; rows that no token writes keep their bytes."""
    for _ in range(rounds(4, 100)):
        tokens, heads = (int(one) for one in rng.integers(1, 9, 2))
        width, capacity = 4 * int(rng.integers(1, 5)), tokens + int(rng.integers(0, 9))
        x = rng.standard_normal((tokens, heads, width)) * 10.0 ** rng.integers(
            -2, 3, (tokens, 1, 1)
        )
        x[rng.random((tokens, heads)) < 0.2] = 0
        given = x.astype(numpy_dtype(dtype))
        slots = rng.permutation(capacity)[:tokens].astype(np.int64)
        slots[rng.random(tokens) < 0.2] = -1
        before = rng.integers(0, 256, (capacity, heads, width + 4), np.uint8)
        target = DeviceBuffer.from_numpy(before.ravel()).view(pool)
        run(
            device,
            "pages",
            f"paged_append_{pool}_{dtype}",
            tokens * heads,
            DeviceBuffer.from_numpy(slots),
            DeviceBuffer.from_numpy(given.ravel()),
            target,
            capacity,
            heads,
            width,
            **random_geometry(rng),
        )
        after = target.view("u8").to_numpy().reshape(before.shape)
        written = np.isin(np.arange(capacity), slots)
        assert (after[~written] == before[~written]).all()
        exact = given[slots >= 0].astype(np.float64)
        got = numbers(after[slots[slots >= 0]], pool)
        most = abs(exact).max(-1, keepdims=True)
        # f8e4m3: a sixteenth of the number, or half of the smallest step.
        step = most / 254 if pool == "i8" else np.maximum(abs(exact) / 16, most / 448 / 1024)
        assert (abs(got - exact) <= step * (1 + 1e-5)).all()


@pytest.mark.parametrize(("dtype", "pool"), CASES)
def test_attention_over_pages(
    device: Device, rng: np.random.Generator, dtype: str, pool: str | None
) -> None:
    """Unused places of pages are NaN, some tokens are none, and blocks may share a token's keys."""
    kind, wide = numpy_dtype(dtype), np.float64 if dtype == "f64" else np.float32
    for turn in range(rounds(2, 30)):
        kv_heads, group, texts = (int(one) for one in rng.integers(1, 4, 3))
        width = int(rng.integers(3, 20)) if pool is None else 4 * int(rng.integers(1, 6))
        page_size = int(rng.integers(1, 9))
        heads, cap = kv_heads * group, float(rng.choice([0.0, 1.5]))
        window, tokens = int(rng.choice([0, 5])), int(rng.integers(1, 7))
        lengths = rng.integers(1, 40, texts)
        if turn % 2 == 0:
            lengths[0] = rng.integers(SPLIT + 1, 3 * SPLIT)
        table_pages = int(-(-lengths.max() // page_size))
        splits = -(-table_pages * page_size // SPLIT)
        pages = texts * table_pages
        tables = rng.permutation(pages).reshape(texts, table_pages).astype(np.int64)
        q = rng.standard_normal((tokens, heads, width)).astype(kind)
        held = kind if pool is None else np.dtype(np.uint8)
        empty = np.nan if pool is None else 0xFF  # the scale's bytes are then a NaN, too
        columns = width if pool is None else width + 4
        pools = [np.full((pages, page_size, kv_heads, columns), empty, held) for _ in range(2)]
        own: list[Array] = []
        for table, length in zip(tables, lengths, strict=True):
            exact = []
            at = np.arange(length)
            for one in pools:
                part = rng.standard_normal((length, kv_heads, width))
                if pool is None:
                    rows = part.astype(kind)
                    exact.append(rows.astype(np.float64))
                else:
                    most = abs(part).max(-1, keepdims=True)
                    elements = part / most * LARGEST[pool]
                    elements = elements.round() if pool == "i8" else elements
                    scales = (most[..., 0] / LARGEST[pool]).astype(np.float32)
                    rows = packed(elements.astype(numpy_dtype(pool)), scales)
                    exact.append(numbers(rows, pool))
                one[table[at // page_size], at % page_size] = rows
            own.append(np.stack(exact))
        sequences = rng.integers(0, texts, tokens)
        positions = np.array([int(rng.integers(lengths[one])) for one in sequences])
        positions[rng.random(tokens) < 0.2] = -1
        out = DeviceBuffer.from_numpy(np.full(q.size, np.nan, kind))
        parts = np.full(tokens * heads * splits * part_width(width), np.nan, wide)
        sums = DeviceBuffer.from_numpy(parts) if splits > 1 else None
        stored = [DeviceBuffer.from_numpy(one.ravel()) for one in pools]
        ids = [DeviceBuffer.from_numpy(one.ravel()) for one in (tables, sequences, positions)]
        run(
            device,
            "pages",
            f"sdpa_paged_{dtype}" if pool is None else f"sdpa_paged_{pool}_{dtype}",
            DeviceBuffer.from_numpy(q.ravel()),
            *(stored if pool is None else [one.view(pool) for one in stored]),
            *ids,
            None,
            None,
            None,
            out,
            sums,
            heads,
            kv_heads,
            width,
            pages,
            page_size,
            texts,
            table_pages,
            window,
            0,
            0.5,
            cap,
            grid=(tokens * heads, splits, 1),
            block=64,
        )
        if splits > 1:
            run(
                device,
                "pages",
                f"sdpa_paged_merge_{dtype}",
                sums,
                *ids[1:],
                None,
                None,
                out,
                heads,
                width,
                texts,
                table_pages * page_size,
                window,
                0,
                splits,
                grid=tokens * heads,
                block=64,
            )
        exact_result = np.zeros(q.shape)
        for token, (text, place) in enumerate(zip(sequences, positions, strict=True)):
            if place < 0:
                continue
            seen = slice(max(0, place + 1 - window) if window else 0, place + 1)
            keys, values = (np.repeat(one[seen], group, 1) for one in own[text])
            scores = np.einsum("hw,khw->hk", q[token].astype(np.float64), keys) * 0.5
            scores = cap * np.tanh(scores / cap) if cap else scores
            shares = np.exp(scores - scores.max(-1, keepdims=True))
            shares /= shares.sum(-1, keepdims=True)
            exact_result[token] = np.einsum("hk,khw->hw", shares, values)
        got = out.to_numpy().reshape(q.shape).astype(np.float64)
        np.testing.assert_allclose(got, exact_result, atol=NEAR[dtype], rtol=NEAR[dtype])
