"""Runs of operations for decoding: appends to caches, and products with block-quantized weights."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

import ubridge as ub
from tests.ubridge.activation_data import exact_in_8_bits
from tests.ubridge.block_data import Array, elements, random_blocks
from tests.ubridge.op_runs import Outcome, Trial, run, wide
from tests.ubridge.operands import operand
from ubridge.quantized import FORMATS
from uhal.dtypes import as_dtype

Ids = npt.NDArray[np.int64]


@run("kv_append")
def append(t: Trial) -> Iterator[Outcome]:
    rows, tokens, width = t.shape(3)
    capacity = tokens + t.length()
    start = int(t.rng.integers(0, capacity - tokens + 1))
    whole = (rows, capacity, width)
    cache = operand(t.rng, t.device, "contiguous", t.dtype, whole, special=False)
    source = t.x((rows, tokens, width))
    position = ub.from_numpy(np.array([start], np.int64), device=t.device)
    exact = cache.array.copy()
    exact[:, start : start + tokens] = source.array
    yield Outcome(ub.kv_append(cache.tensor, source.tensor, position).to_numpy(), exact)


@run("rope_at")
def rope_at(t: Trial) -> Iterator[Outcome]:
    # GCUs rotate one token at a time.
    tokens = 1 if t.row.backend == "tops" else t.length()
    heads, pairs, rest = t.length(), t.length(4), int(t.rng.integers(0, 4))
    positions = tokens + t.length()
    place = int(t.rng.integers(0, positions - tokens + 1))
    interleaved = bool(t.rng.integers(0, 2))
    x = t.x((tokens, heads, 2 * pairs + rest))
    angles = t.rng.uniform(-np.pi, np.pi, (positions, pairs))
    cos, sin = (f(angles).astype(np.float32) for f in (np.cos, np.sin))
    got = ub.rope_at(
        x.tensor,
        *(ub.asarray(one, device=t.device) for one in (cos, sin)),
        ub.asarray(np.array([place]), device=t.device),
        interleaved=interleaved,
    )
    exact, magnitude = wide(x).copy(), abs(wide(x))
    first = np.arange(pairs) * 2 if interleaved else np.arange(pairs)
    second = first + (1 if interleaved else pairs)
    one, other = wide(x)[..., first], wide(x)[..., second]
    c, s = (table[place : place + tokens, None].astype(one.dtype) for table in (cos, sin))
    exact[..., first], exact[..., second] = one * c - other * s, one * s + other * c
    magnitude[..., first] = abs(one * c) + abs(other * s)
    magnitude[..., second] = abs(one * s) + abs(other * c)
    yield Outcome(got.to_numpy(), exact, magnitude, 2)


@run("cached_attention")
def cached_attention(t: Trial) -> Iterator[Outcome]:
    tokens = 1 if t.row.backend == "tops" else int(t.rng.choice([1, t.length()]))
    kv_heads, width = t.length(2), 4 * t.length(3)
    heads = kv_heads * t.length(3)
    # More than 256 keys are processed in parts.
    capacity = int(t.rng.choice([tokens + t.length(), 700]))
    place = int(t.rng.integers(0, capacity - tokens + 1))
    window = int(t.rng.choice([0, 1, t.length(), 300]))
    cap = float(t.rng.choice([0.0, 2.0]))
    query = t.x((tokens, heads, width))
    keys, values = (t.other((kv_heads, capacity, width)) for _ in range(2))
    bias = t.rng.standard_normal((heads, capacity)).astype(np.float32)
    has_bias = bool(t.rng.integers(0, 2))
    got = ub.cached_attention(
        query.tensor,
        keys.tensor,
        values.tensor,
        ub.asarray(np.array([place]), device=t.device),
        scale=0.25,
        window=window,
        cap=cap,
        bias=ub.asarray(bias, device=t.device) if has_bias else None,
    )
    group = heads // kv_heads
    k, v = (np.repeat(wide(one), group, 0) for one in (keys, values))
    scores = np.einsum("thw,hkw->htk", wide(query), k) * 0.25
    scores = cap * np.tanh(scores / cap) if cap else scores
    scores = scores + (bias[:, None] if has_bias else 0)
    own, key = np.arange(place, place + tokens)[:, None], np.arange(capacity)
    hidden = (key > own) | ((key <= own - window) if window else False)
    shares = np.exp(np.where(hidden, -np.inf, scores - scores.max(-1, keepdims=True)))
    shares /= shares.sum(-1, keepdims=True)
    exact = np.einsum("htk,hkw->thw", shares, v)
    magnitude = np.einsum("htk,hkw->thw", shares * (1 + abs(scores)), abs(v))
    yield Outcome(got.to_numpy(), exact, magnitude, place + tokens + width)


@run("paged_append")
def paged_append(t: Trial) -> Iterator[Outcome]:
    tokens, heads, width = t.shape(3)
    pages, page_size = -(-tokens // 2) + t.length(3), int(t.rng.integers(2, 5))
    pool = operand(
        t.rng, t.device, "contiguous", t.dtype, (pages, page_size, heads, width), special=False
    )
    source = t.x((tokens, heads, width))
    slots = t.rng.permutation(pages * page_size)[:tokens].astype(np.int64)
    slots[t.rng.random(tokens) < 0.2] = -1
    exact = pool.array.copy()
    flat = exact.reshape(pages * page_size, heads, width)
    flat[slots[slots >= 0]] = source.array[slots >= 0]
    given = ub.from_numpy(slots, device=t.device)
    yield Outcome(ub.paged_append(pool.tensor, source.tensor, given).to_numpy(), exact)


@run("paged_attention")
def paged_attention(t: Trial) -> Iterator[Outcome]:
    tokens, kv_heads, width = t.length(), t.length(2), 4 * t.length(3)
    heads = kv_heads * t.length(3)
    sequences, page_size = t.length(3), t.length(4)
    # More than 256 keys are processed in parts.
    of_each = int(t.rng.choice([t.length(), 300 // page_size]))
    pages = of_each * sequences + t.length(2)
    tables = t.rng.permutation(pages)[: of_each * sequences].reshape(sequences, of_each)
    capacity = of_each * page_size
    own = t.rng.integers(0, sequences, tokens)
    places = t.rng.integers(-1, capacity, tokens)
    window = int(t.rng.choice([0, 1, t.length(), 300]))
    cap = float(t.rng.choice([0.0, 2.0]))
    query = t.x((tokens, heads, width))
    keys, values = (t.other((pages, page_size, kv_heads, width)) for _ in range(2))
    sink_tokens = int(t.rng.choice([0, 1, t.length()]))
    bias = t.rng.standard_normal((heads, capacity)).astype(np.float32)
    sinks = t.rng.standard_normal(heads).astype(np.float32)
    # A token sees all keys, or random ones among the last 64.
    ancestors = t.rng.integers(-(2**63), 2**63, tokens, np.int64)
    ancestors[t.rng.random(tokens) < 0.3] = -1
    has_bias, has_sinks, has_ancestors = (bool(one) for one in t.rng.integers(0, 2, 3))
    got = ub.paged_attention(
        query.tensor,
        keys.tensor,
        values.tensor,
        *(ub.asarray(one.astype(np.int64), device=t.device) for one in (tables, own, places)),
        scale=0.25,
        window=window,
        cap=cap,
        bias=ub.asarray(bias, device=t.device) if has_bias else None,
        sinks=ub.asarray(sinks, device=t.device) if has_sinks else None,
        sink_tokens=sink_tokens,
        ancestors=ub.asarray(ancestors, device=t.device) if has_ancestors else None,
    )
    bits = ancestors if has_ancestors else None
    shown, columns = _shown(places, capacity, window, sink_tokens, bits)
    # A token's keys and values, (tokens, capacity, heads, width).
    k, v = (
        np.repeat(
            wide(one)[tables[own]].reshape(tokens, capacity, kv_heads, width), heads // kv_heads, 2
        )
        for one in (keys, values)
    )
    scores = np.einsum("thw,tkhw->htk", wide(query), k) * 0.25
    scores = cap * np.tanh(scores / cap) if cap else scores
    scores = np.where(shown, scores + (bias[:, columns] if has_bias else 0), -np.inf)
    # A sink is one more score without a value.
    sink = np.where(has_sinks, sinks, -np.inf)[:, None, None]
    most = np.maximum(scores.max(-1, keepdims=True), sink)
    most = np.where(np.isinf(most), 0, most)
    shares = np.exp(scores - most)
    shares /= np.maximum(
        shares.sum(-1, keepdims=True) + np.exp(sink - most), np.finfo(np.longdouble).tiny
    )
    scores = np.where(shown, scores, 0)
    exact = np.einsum("htk,tkhw->thw", shares, v)
    magnitude = np.einsum("htk,tkhw->thw", shares * (1 + abs(scores)), abs(v))
    yield Outcome(got.to_numpy(), exact, magnitude, capacity + width)


def _shown(
    places: Ids, capacity: int, window: int, sink_tokens: int, ancestors: Ids | None
) -> tuple[npt.NDArray[np.bool_], Ids]:
    """Return the keys that each token sees, and their numbers in the token's path."""
    key = np.arange(capacity)
    back = places[:, None] - key
    shown = back >= 0
    if ancestors is not None:
        bits = ancestors[:, None] >> np.clip(back, 0, 63) & 1
        shown &= (back > 63) | (bits == 1)
    columns = np.cumsum(shown, 1) - 1
    if window:
        shown &= (columns > columns[:, -1:] - window) | (key < sink_tokens)
    return shown, columns


@run("quantized_matvec")
def product_in_f32(t: Trial) -> Iterator[Outcome]:
    name = t.format()
    columns = FORMATS[name].elements * t.length(3)
    x = t.x((*t.shape(t.length(2)), columns))
    weight, values = _weight(t, name, t.length(), columns)
    got = ub.quantized_matmul(x.tensor, weight).to_numpy()
    yield Outcome(got, wide(x) @ values.T, abs(wide(x)) @ abs(values).T, columns)


@run("quantized_product")
def product_in_q8(t: Trial) -> Iterator[Outcome]:
    name = t.format()
    columns = FORMATS[name].elements * t.length(3)
    # Return vectors that need no rounding in the device's 8-bit format.
    x = exact_in_8_bits(t.rng, (*t.shape(2), columns)).astype(as_dtype(t.dtype).dtype)
    weight, values = _weight(t, name, t.length(), columns)
    given = ub.from_numpy(x, device=t.device)
    got = ub.quantized_matmul(given, weight, activations="q8").to_numpy()
    exact = x.astype(np.float64)
    magnitude = abs(exact) @ abs(values).T + 16 * abs(exact).sum(-1, keepdims=True)
    yield Outcome(got, exact @ values.T, magnitude, columns)


@run("indexed_product")
def product_at_ids(t: Trial) -> Iterator[Outcome]:
    name = t.format()
    experts, rows, columns = t.length(4), t.length(), FORMATS[name].elements * t.length(3)
    tokens, used = t.length(5), t.length(3)
    shared = bool(t.rng.integers(0, 2))
    x = exact_in_8_bits(t.rng, (tokens, 1 if shared else used, columns))
    x = x.astype(as_dtype(t.dtype).dtype)
    whole, values = _weight(t, name, experts * rows, columns)
    shape = (experts, rows, columns)
    weights = ub.QuantizedWeight(whole.buffer, name, experts * rows, columns, shape=shape)
    ids = t.rng.integers(0, experts, (tokens, used)).astype(np.uint32)
    given = ub.from_numpy(x, device=t.device)
    got = ub.indexed_matmul(given, weights, ub.from_numpy(ids, device=t.device)).to_numpy()
    chosen = values.reshape(shape)[ids]
    exact = np.broadcast_to(x.astype(np.float64), (tokens, used, columns))[..., None]
    magnitude = abs(chosen) @ abs(exact) + 16 * abs(exact).sum(2, keepdims=True)
    yield Outcome(got, (chosen @ exact)[..., 0], magnitude[..., 0], columns)


@run("activations")
def activations(t: Trial) -> Iterator[Outcome]:
    run_of = FORMATS[t.format()].activations
    # Use few vectors: a simulator takes minutes for a product of thousands.
    x = t.x((t.length(3), t.length(8), run_of))
    # Multiplication by the identity shows the rounded values.
    name = "q8_0" if run_of == 32 else "q8_K"
    blocks = np.zeros((run_of, FORMATS[name].block_bytes), np.uint8)
    scale = np.ones(1, np.float16 if run_of == 32 else np.float32).view(np.uint8)
    blocks[:, : scale.size] = scale
    blocks[:, scale.size : scale.size + run_of] = np.eye(run_of, dtype=np.uint8)
    weight = ub.QuantizedWeight.from_blocks(blocks.ravel(), name, run_of, run_of, device=t.device)
    got = ub.quantized_matmul(x.tensor, weight, activations="q8").to_numpy()
    yield Outcome(got, wide(x), abs(wide(x)).max(-1, keepdims=True))


@run("block_elements")
def block_elements(t: Trial) -> Iterator[Outcome]:
    name = t.format()
    weight, values = _weight(t, name, t.length(), FORMATS[name].elements * t.length(3))
    yield Outcome(weight.dequantize(t.dtype).to_numpy(), values)


def _weight(t: Trial, name: str, rows: int, columns: int) -> tuple[ub.QuantizedWeight, Array]:
    blocks = random_blocks(t.rng, name, rows * columns // FORMATS[name].elements)
    weight = ub.QuantizedWeight.from_blocks(blocks.ravel(), name, rows, columns, device=t.device)
    return weight, elements(blocks, name).astype(np.float64).reshape(rows, columns)
