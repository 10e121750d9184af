"""Operations with positions on the device: cache appends, rotations, attention over a cache."""

from __future__ import annotations

from math import prod
from typing import Any

from ubridge.core.layout import Layout
from ubridge.core.operand_checks import require_number, require_one_device, whole_number
from ubridge.definitions.attention import (
    CACHED_ATTENTION,
    KV_APPEND,
    PAGED_APPEND,
    PAGED_ATTENTION,
    ROPE_AT,
    appended,
    paged,
)
from ubridge.ops.engine import (
    Plan,
    Value,
    apply,
    ask,
    contiguous,
    plan_change,
    reshaped,
    run,
)
from ubridge.ops.remembering import remembered
from ubridge.ops.results import apart, require_tensors
from ubridge.ops.strided import Tensor
from uhal.dtypes import i64
from uhal.errors import ArgumentTypeError, ArgumentValueError
from uhal.interop import StreamLike


def plan_append(cache: Value, source: Value, position: Value) -> Plan | None:
    """Plan a write of tokens into a cache, from memory that does not overlap it."""
    require_tensors(KV_APPEND.name, cache, source, position)
    require_one_device(KV_APPEND.name, cache, source, position)
    whole, given = appended(cache._layout.shape, source._layout.shape), source._layout.shape
    count = position._layout.size
    if source._dtype is not cache._dtype or position._dtype is not i64 or count != 1:
        raise ArgumentTypeError(
            f"kv_append: expected a source of the cache's dtype {cache._dtype} and a position of "
            f"one i64, got {source._dtype} and {count} of {position._dtype}"
        )
    if not cache._layout.is_contiguous:
        raise ArgumentValueError(
            "kv_append: expected a contiguous cache, because it is changed in place"
        )
    rows = prod(whole[:-2])
    operands = (
        reshaped(contiguous(source), (rows, *given[-2:])),
        _position(KV_APPEND.name, position),
    )
    asked = Layout.contiguous((rows, *whole[-2:]))
    return plan_change(KV_APPEND, cache, operands, asked=asked)


@remembered(plan_append, changes=True)
def kv_append(
    cache: Tensor,
    source: Tensor,
    position: Tensor,
    *,
    stream: StreamLike | None = None,
) -> Tensor:
    """Write tokens into a cache from a position on.

    Returns the cache.

    `cache` is (…, capacity, width) and contiguous, `source` (…, tokens, width); `position` is one
    i64, the place of the first token. The device reads `position`, so each run of a graph can use
    another value. A position past the capacity is an `IndexError` with the next `to_numpy()`.
    """
    require_tensors(KV_APPEND.name, cache, source, position)
    require_one_device(KV_APPEND.name, cache, source, position)
    source, position = apart(cache, source, stream), apart(cache, position, stream)
    return append(cache, source, position, stream)


def append(cache: Tensor, source: Value, position: Value, stream: StreamLike | None) -> Tensor:
    """Write tokens into a cache, from memory that does not overlap it."""
    plan = plan_append(cache, source, position)
    return cache if plan is None else apply(plan, stream)


def plan_rope_at(
    x: Value, cos: Value, sin: Value, position: Value, interleaved: bool = False
) -> Plan:
    """Plan rotations by the angles of positions that the device reads."""
    name = ROPE_AT.name
    require_tensors(name, x, cos, sin, position)
    require_one_device(name, x, cos, sin, position)
    operands = (*map(contiguous, (x, cos, sin)), _position(name, position))
    return ask(ROPE_AT, operands, x._dtype, interleaved=bool(interleaved))


@remembered(plan_rope_at)
def rope_at(
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    position: Tensor,
    *,
    interleaved: bool = False,
    stream: StreamLike | None = None,
) -> Tensor:
    """Return x rotated by the angles of its tokens' positions.

    `x` is (tokens, heads, width); the first token stands at `position`, one i64 that the device
    reads. `cos` and `sin` are f32 (positions, half of the rotated elements). The first elements of
    a head are rotated; the other elements stay. The elements of a pair are half of the rotated
    elements apart, or neighbours if `interleaved`. A token behind the last position is an
    `IndexError` with the next `to_numpy()`. GCUs take one token.
    """
    return run(plan_rope_at(x, cos, sin, position, interleaved), None, stream)


def plan_cached_attention(
    query: Value,
    keys: Value,
    values: Value,
    position: Value,
    scale: float | None = None,
    window: int = 0,
    cap: float = 0.0,
    bias: Value | None = None,
) -> Plan:
    """Plan attention over a cache; the device reads the position of the first query."""
    name = CACHED_ATTENTION.name
    given = [query, keys, values, position, *([] if bias is None else [bias])]
    require_tensors(name, *given)
    require_one_device(name, *given)
    start = _position(name, position)
    window = whole_number("cached_attention, window", window)
    for number in (cap, 0.0 if scale is None else scale):
        require_number(name, number)
    operands = [start if one is position else contiguous(one) for one in given]
    factor = (prod(query.shape[-1:]) or 1) ** -0.5 if scale is None else scale
    numbers = (factor, float(cap))
    settings: dict[str, Any] = {"window": window, "is_bounded": cap != 0}
    return ask(CACHED_ATTENTION, operands, query._dtype, None, numbers, **settings)


@remembered(plan_cached_attention)
def cached_attention(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    position: Tensor,
    *,
    scale: float | None = None,
    window: int = 0,
    cap: float = 0.0,
    bias: Tensor | None = None,
    stream: StreamLike | None = None,
) -> Tensor:
    """Return the attention of queries to cached keys and values.

    Each query sees the keys up to its own position.

    Queries are (tokens, heads, width), the caches (kv heads, capacity, width). The first query
    stands at `position`, one i64 that is read by the device: the cost follows the text, not the
    capacity. Scores are multiplied by `scale`, by default 1 / the root of the width. If `cap` is
    not 0, a score becomes `cap * tanh(score / cap)`. Then `bias`, f32 (heads, capacity), is added.
    With a `window` a query sees only the last `window` keys up to its own position.

    Raises `ArgumentValueError` for inconsistent shapes, heads in incomplete groups and a width
    above 256. On GCUs, which take one token, later keys are scored too and then hidden.
    """
    return run(
        plan_cached_attention(query, keys, values, position, scale, window, cap, bias), None, stream
    )


def plan_paged_append(pool: Value, source: Value, slots: Value) -> Plan | None:
    """Plan a write of tokens into pages, from memory that does not overlap them."""
    name = PAGED_APPEND.name
    require_tensors(name, pool, source, slots)
    require_one_device(name, pool, source, slots)
    if slots._dtype is not i64:
        raise ArgumentTypeError(f"{name}: expected slots of i64, got {slots._dtype}")
    shapes = (one._layout.shape for one in (pool, source, slots))
    paged(*shapes, pool._dtype, source._dtype)
    if not pool._layout.is_contiguous:
        raise ArgumentValueError(
            f"{name}: expected a contiguous pool, because it is changed in place"
        )
    return plan_change(PAGED_APPEND, pool, [contiguous(one) for one in (source, slots)])


@remembered(plan_paged_append, changes=True)
def paged_append(
    pool: Tensor,
    source: Tensor,
    slots: Tensor,
    *,
    stream: StreamLike | None = None,
) -> Tensor:
    """Write tokens into slots of pages, in place, and return the pool.

    `pool` is (pages, page size, kv heads, width) and contiguous, `source` (tokens, kv heads,
    width). `slots` are i64, one for each token: page * page size + place in the page, or -1 for a
    token that is not written. The device reads them. Any other slot out of bounds is an
    `IndexError` with the next `to_numpy()`.

    A pool of i8 or f8e4m3 keeps bf16, f16 or f32 in 8 bits. A row of this pool is `width` elements,
    then four elements that hold the row's f32 scale. `width` is a multiple of 4. An element is its
    8 bits times the scale. The largest magnitude of a row becomes 127, or 448 for f8e4m3.
    """
    require_tensors(PAGED_APPEND.name, pool, source, slots)
    require_one_device(PAGED_APPEND.name, pool, source, slots)
    source, slots = apart(pool, source, stream), apart(pool, slots, stream)
    plan = plan_paged_append(pool, source, slots)
    return pool if plan is None else apply(plan, stream)


def plan_paged_attention(
    query: Value,
    keys: Value,
    values: Value,
    tables: Value,
    sequences: Value,
    positions: Value,
    scale: float | None = None,
    window: int = 0,
    cap: float = 0.0,
    bias: Value | None = None,
    sinks: Value | None = None,
    sink_tokens: int = 0,
    ancestors: Value | None = None,
) -> Plan:
    """Plan attention over pages; the device reads tables, sequences and positions."""
    name = PAGED_ATTENTION.name
    optional = {"bias": bias, "sinks": sinks, "ancestors": ancestors}
    more = {what: one for what, one in optional.items() if one is not None}
    given = [query, keys, values, tables, sequences, positions, *more.values()]
    require_tensors(name, *given)
    require_one_device(name, *given)
    for number in (cap, 0.0 if scale is None else scale):
        require_number(name, number)
    factor = (prod(query.shape[-1:]) or 1) ** -0.5 if scale is None else scale
    numbers = (factor, float(cap))
    operands = [contiguous(one) for one in given]
    settings: dict[str, Any] = {
        "window": whole_number(f"{name}, window", window),
        "sink_tokens": whole_number(f"{name}, sink_tokens", sink_tokens),
        "is_bounded": cap != 0,
        "given": " ".join(more),
    }
    return ask(PAGED_ATTENTION, operands, query._dtype, None, numbers, **settings)


@remembered(plan_paged_attention)
def paged_attention(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    tables: Tensor,
    sequences: Tensor,
    positions: Tensor,
    *,
    scale: float | None = None,
    window: int = 0,
    cap: float = 0.0,
    bias: Tensor | None = None,
    sinks: Tensor | None = None,
    sink_tokens: int = 0,
    ancestors: Tensor | None = None,
    stream: StreamLike | None = None,
) -> Tensor:
    """Return the attention of several sequences' tokens to pages of keys.

    Queries are (tokens, heads, width), `keys` and `values` (pages, page size, kv heads, width), or
    pages of 8 bits as `paged_append` writes them. `tables` is (sequences, pages of a sequence), the
    pages in order; positions behind a sequence's end are not read. `sequences` and `positions` are
    one number for each token: its row of the tables, and its place in the sequence. A token sees
    the keys up to its own position; a token at position -1 sees no key and gets zeros. Tables,
    sequences and positions are i64, and the device reads them; numbers out of bounds are an
    `IndexError` with the next `to_numpy()`.

    The keys are summed in the order of positions: neither the pages nor the other tokens change a
    result's bits. `scale`, `window`, `cap` and `bias` work as in `cached_attention`; `bias` is f32
    (heads, page size * pages of a sequence).

    Attention sinks: `sinks`, f32 (heads,), adds a score to each head's softmax, without a value.
    With a window, a token also sees the first `sink_tokens` keys.

    Trees: `ancestors`, i64 (tokens,), has 64 bits for each token. Bit j tells whether the token
    sees the key j places before its own; it sees all keys further back. So each drafted token of a
    tree sees the text and its own path. The window and the bias count only the keys of the path.

    Raises `ArgumentValueError` for inconsistent shapes and a width above 256, `NotSupportedError`
    on GCUs.
    """
    return run(
        plan_paged_attention(
            query,
            keys,
            values,
            tables,
            sequences,
            positions,
            scale,
            window,
            cap,
            bias,
            sinks,
            sink_tokens,
            ancestors,
        ),
        None,
        stream,
    )


def _position(name: str, position: Value) -> Value:
    """Return one i64 in the form for kernels."""
    if position._dtype is not i64 or position._layout.size != 1:
        raise ArgumentTypeError(
            f"{name}: expected a position of one i64, got {position._layout.size} of "
            f"{position._dtype}"
        )
    return position._viewed(Layout.contiguous(1, position._layout.start_offset))


__all__ = [
    "cached_attention",
    "kv_append",
    "paged_append",
    "paged_attention",
    "rope_at",
]
