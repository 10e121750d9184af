"""Attention, its caches, and rotary positions."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

from ubridge.core.accuracy import OF_PRODUCT, PARTS
from ubridge.core.fits import flag, require, require_counts, same, shapes
from ubridge.core.layout import Layout, Shape
from ubridge.core.operation import REALS, Family, Op, define
from ubridge.core.question import Question
from ubridge.definitions.indexing import slices_of
from uhal import DType
from uhal.dtypes import bf16, f8e4m3, f16, f32, i8, i64
from uhal.errors import ArgumentTypeError


def angles_of(name: str, x: Shape, along: int, per_batch: bool = False) -> Shape:
    """Return the shape of the cosines, and of the sines, for positions along an axis."""
    require(
        len(x) == 4 and x[3] % 2 == 0,
        f"{name}: expected four axes, the last of an even length, got {x}",
    )
    return Shape((*x[: int(per_batch)], x[along], x[3] // 2))


def _rotated(question: Question, along: int) -> Shape:
    name, (x, cos, sin) = question.op.name, shapes(question)
    plain, of_each = (angles_of(name, x, along, per_batch) for per_batch in (False, True))
    require(
        cos == sin and cos in (plain, of_each),
        f"{name}: expected cos and sin of shape {plain} or {of_each}, got {cos} and {sin}",
    )
    return x


def _rotated_at(question: Question) -> Shape:
    x, cos, sin, position = shapes(question)
    require(
        (len(x), len(cos), len(position)) == (3, 2, 1) and cos == sin and 2 * cos[1] <= x[2],
        "rope_at: expected x of (tokens, heads, width), cos and sin of (positions, at most "
        f"half the width), got {x}, {cos} and {sin}",
    )
    dtypes = [dtype for dtype, _ in question.operands[1:3]]
    if not same(f32, *dtypes):
        raise ArgumentTypeError(
            f"rope_at: expected cos and sin of f32, got {dtypes[0]} and {dtypes[1]}"
        )
    flag(question, "interleaved")
    return x


def scores_of(query: Shape, key: Shape, value: Shape) -> Shape:
    """Return the shape of the scores, (batch, heads, queries, keys)."""
    require(
        same(4, len(query), len(key)) and key == value,
        "attention: expected four axes, and keys and values of one shape, got "
        f"{query}, {key} and {value}",
    )
    batch, heads, queries, width = query
    of_keys, kv_heads, keys, key_width = key
    whole = kv_heads and heads % kv_heads == 0
    require(
        whole and (of_keys, key_width) == (batch, width) and width <= 256,
        "attention: expected as many batches, a multiple of the kv heads, and a width of at "
        f"most 256 in both, got {query} for {key}",
    )
    return Shape((batch, heads, queries, keys))


def _attended(question: Question) -> Shape:
    query, key, value = shapes(question)[:3]
    scores = scores_of(query, key, value)
    for _, layout in question.operands[3:]:
        rows = Layout(layout.shape[2:], layout.strides[2:])
        fits = layout.shape == scores and rows.is_contiguous
        require(fits, f"attention: expected a mask of rows for each query, got {layout!r}")
    flag(question, "causal")
    return query


def _attended_cached(question: Question) -> Shape:
    query, keys, values, _, *biases = shapes(question)
    require(
        same(3, len(query), len(keys)) and keys == values,
        "cached_attention: expected queries of (tokens, heads, width) and keys and values of "
        f"(kv heads, capacity, width), got {query}, {keys} and {values}",
    )
    (_, heads, width), (kv_heads, capacity, of_keys) = query, keys
    require(
        kv_heads and heads % kv_heads == 0 and width == of_keys <= 256,
        "cached_attention: expected one width of at most 256 and a multiple of the kv heads, "
        f"got {query} for {keys}",
    )
    dtypes = [dtype for dtype, _ in question.operands]
    if not same(*dtypes[:3]):
        raise ArgumentTypeError(
            f"cached_attention: expected one dtype, got {dtypes[0]}, {dtypes[1]} and {dtypes[2]}"
        )
    for dtype, bias in zip(dtypes[4:], biases, strict=True):
        require(
            dtype is f32 and bias == (heads, capacity),
            f"cached_attention: expected a bias of f32 {(heads, capacity)}, got {dtype} {bias}",
        )
    require_counts("cached_attention: the window", question.attribute("window"))
    flag(question, "is_bounded")
    return query


def _attended_paged(question: Question) -> Shape:
    query, keys, values, tables, sequences, positions, *more = shapes(question)
    require(
        len(query) == 3 and len(keys) == 4 and keys == values and len(tables) == 2,
        "paged_attention: expected queries of (tokens, heads, width), keys and values of (pages, "
        f"page size, kv heads, width) and tables of (sequences, pages), got {query}, {keys}, "
        f"{values} and {tables}",
    )
    (tokens, heads, width), (_, page_size, kv_heads, of_keys) = query, keys
    dtypes = [dtype for dtype, _ in question.operands]
    require(
        kv_heads
        and heads % kv_heads == 0
        and width <= 256
        and of_keys == row_elements(dtypes[1], width),
        "paged_attention: expected one width of at most 256 and a multiple of the kv heads, "
        f"got {query} for {keys}",
    )
    require(
        same((tokens,), sequences, positions),
        f"paged_attention: expected a sequence and a position for each of {tokens} tokens, got "
        f"{sequences} and {positions}",
    )
    capacity = tables[1] * page_size
    require(
        capacity < 1 << 31,
        f"paged_attention: expected tables for fewer than 2**31 tokens, got {capacity}",
    )
    if not same(*dtypes[1:3]) or not _are_kept(dtypes[0], dtypes[1]):
        raise ArgumentTypeError(
            f"paged_attention: expected one dtype, got {dtypes[0]}, {dtypes[1]} and {dtypes[2]}"
        )
    if not same(i64, *dtypes[3:6]):
        raise ArgumentTypeError(
            "paged_attention: expected tables, sequences and positions of i64, got "
            f"{dtypes[3]}, {dtypes[4]} and {dtypes[5]}"
        )
    given = question.attribute("given")
    wanted = {
        "bias": (f32, (heads, capacity)),
        "sinks": (f32, (heads,)),
        "ancestors": (i64, (tokens,)),
    }
    names = [one for one in wanted if one in str(given).split()]
    require(
        given == " ".join(names) and len(names) == len(more),
        f"paged_attention: expected the names of {len(more)} operands among "
        f"{', '.join(wanted)}, got {given!r:.80}",
    )
    for name, dtype, shape in zip(names, dtypes[6:], more, strict=True):
        kind, fitting = wanted[name]
        require(
            dtype is kind and shape == fitting,
            f"paged_attention, {name}: expected {kind} {fitting}, got {dtype} {tuple(shape)}",
        )
    for name in ("window", "sink_tokens"):
        require_counts(f"paged_attention, {name}", question.attribute(name))
    flag(question, "is_bounded")
    return query


def _joined(question: Question) -> Shape:
    (x, y), axis = shapes(question), question.attribute("axis")
    require(
        type(axis) is int and 0 <= axis < len(x) == len(y),
        f"kv_concat: expected an axis of both, got {axis!r:.80} of {x} and {y}",
    )
    require(
        slices_of(x, (), axis) == slices_of(y, (), axis),
        "kv_concat: all the input array dimensions except for the concatenation axis must "
        f"match exactly, got {x} and {y}",
    )
    return slices_of(x, (x[axis] + y[axis],), axis)


@lru_cache(maxsize=4096)
def appended(cache: Shape, source: Shape) -> Shape:
    """Return the shape of a cache; refuse tokens of another shape."""
    require(
        len(cache) >= 2 and len(source) == len(cache) and source[:-2] == cache[:-2],
        f"kv_append: expected shapes (…, capacity, width) and (…, tokens, width), got {cache} "
        f"and {source}",
    )
    require(
        source[-1] == cache[-1] and source[-2] <= cache[-2],
        "kv_append: expected tokens as wide as the cache and no more than it holds, got "
        f"{source} for {cache}",
    )
    return cache


def _appended(question: Question) -> Shape:
    source, position = shapes(question)
    fits = len(source) == 3 and position == (1,)
    require(fits, f"kv_append: expected three axes and one position, got {source} and {position}")
    return appended(question.shape, source)


PAGES_OF_BYTES = (i8, f8e4m3)
"""Element types of pages that keep 8 bits of an element, and a scale for each row."""
SCALED = (bf16, f16, f32)
"""Element types that pages of 8 bits can keep."""


def row_elements(dtype: DType, width: int) -> int:
    """Return the elements of a row of pages: `width`, plus four for the scale in 8-bit pages."""
    return width + 4 if dtype in PAGES_OF_BYTES else width


def _are_kept(given: DType, pages: DType) -> bool:
    """Return whether pages of a dtype can keep another dtype."""
    return given is pages or (pages in PAGES_OF_BYTES and given in SCALED)


@lru_cache(maxsize=4096)
def paged(pool: Shape, source: Shape, slots: Shape, into: DType, of: DType) -> Shape:
    """Return the shape of a pool of pages; refuse tokens of another shape or dtype."""
    if not _are_kept(of, into):
        raise ArgumentTypeError(
            f"paged_append: expected a source of the pool's dtype {into}, or of bf16, f16 or f32 "
            f"for a pool of i8 or f8e4m3, got {of}"
        )
    rows = (*source[1:-1], row_elements(into, source[-1])) if len(source) == 3 else ()
    require(
        len(pool) == 4 and rows == pool[2:],
        "paged_append: expected a pool of (pages, page size, kv heads, width) and a source of "
        f"(tokens, kv heads, width), got {pool} and {source}",
    )
    require(
        into not in PAGES_OF_BYTES or source[-1] % 4 == 0,
        f"paged_append: expected a width of a multiple of 4 for pages of {into}, got {source[-1]}",
    )
    require(
        slots == source[:1],
        f"paged_append: expected a slot for each of {source[0]} tokens, got {slots}",
    )
    return pool


def _paged(question: Question) -> Shape:
    source, slots = shapes(question)
    return paged(question.shape, source, slots, question.result[0], question.operands[0][0])


def _rotation(name: str, axes: str, summary: str, **settings: Any) -> Op:
    """Define a rotation of pairs in a tensor of these axes; `settings` are passed to `rope`."""
    rule = partial(_rotated, along=axes.split(", ").index("positions"))
    shape = f"shape of x: ({axes})"
    family = Family(name, "x cos sin", shape, rule=rule, packed=3, replaces=1, accuracy=PARTS)
    return define(name, family, name, REALS, summary, called="rope", **settings)


_HEADS = "batch, heads, positions, width"
ROPE_I = _rotation("rope_i", _HEADS, "rotary positions on neighbouring pairs", interleaved=True)
ROPE = _rotation("rope", _HEADS, "rotary positions on pairs half a width apart")
ROPE_THD = _rotation(
    "rope_thd",
    "batch, positions, heads, width",
    "rope with positions before heads",
    heads_last=True,
)
ROPE_AT = define(
    "rope_at",
    Family(
        "rope_at",
        "x cos sin position",
        "shape of x: (tokens, heads, width)",
        rule=_rotated_at,
        kinds="T f32 f32 i64 -> T",
        packed=4,
        attributes="interleaved",
        accuracy=PARTS,
    ),
    "rope_at",
    REALS,
    "rotary positions from device memory",
)
ATTENTION = define(
    "attention",
    Family(
        "attention",
        "query key value [mask]",
        "shape of query",
        rule=_attended,
        packed=3,
        attributes="causal",
        accuracy=OF_PRODUCT,
        numbers="scale",
    ),
    "sdpa",
    REALS,
    "softmax-weighted sum of values",
)
CACHED_ATTENTION = define(
    "cached_attention",
    Family(
        "cached_attention",
        "query keys values position [bias]",
        "shape of query",
        rule=_attended_cached,
        kinds="T T T i64 f32 -> T",
        packed=5,
        attributes="window is_bounded",
        accuracy=OF_PRODUCT,
        numbers="scale cap",
    ),
    "sdpa_cached",
    REALS,
    "attention over the filled part of a cache",
)
PAGED_ATTENTION = define(
    "paged_attention",
    Family(
        "paged_attention",
        "query keys values tables sequences positions [bias] [sinks] [ancestors]",
        "shape of query",
        rule=_attended_paged,
        kinds="T * * i64 i64 i64 * * * -> T",
        packed=9,
        attributes="window sink_tokens is_bounded given",
        accuracy=OF_PRODUCT,
        numbers="scale cap",
    ),
    "sdpa_paged",
    REALS,
    "attention of tokens of several sequences over pages",
)
KV_CONCAT = define(
    "kv_concat",
    Family(
        "kv_concat",
        "x y",
        "shape of x, longer along the axis",
        rule=_joined,
        packed=2,
        attributes="axis",
    ),
    "kvconcat",
    REALS,
    "keys or values, appended",
)
KV_APPEND = define(
    "kv_append",
    Family(
        "kv_append",
        "x source position",
        "shape of x, changed in place",
        rule=_appended,
        kinds="T i64 -> T",
        packed=2,
        is_in_place=True,
    ),
    "kv_append",
    REALS,
    "keys or values written to a cache",
)
PAGED_APPEND = define(
    "paged_append",
    Family(
        "paged_append",
        "x source slots",
        "shape of x, changed in place",
        rule=_paged,
        kinds="* i64 -> *",
        packed=2,
        is_in_place=True,
    ),
    "paged_append",
    REALS,
    "keys or values written to slots of pages",
)
