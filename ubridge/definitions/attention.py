"""Attention, its caches, and rotary positions."""

from __future__ import annotations

from functools import partial

from ubridge.core.accuracy import OF_PRODUCT, PARTS
from ubridge.core.fits import lies, one_shape, parts, require, require_counts, same
from ubridge.core.layout import Layout, Shape
from ubridge.core.operation import REALS, Family, define
from ubridge.core.question import Question
from uhal.dtypes import f32, i64


def _rotated(question: Question, along: int) -> bool:
    dtypes, (result, layout, cos, sin) = parts(question)
    if layout.rank != 4 or layout.shape[3] % 2 or not lies(layout, cos, sin):
        return False
    positions = layout.shape[along]
    plain = (positions, layout.shape[3] // 2)
    angles = cos.shape in (plain, (layout.shape[0], *plain)) and cos.shape == sin.shape
    return angles and result.shape == layout.shape and same(*dtypes)


def _rotated_at(question: Question) -> bool:
    dtypes, (result, x, cos, sin, position) = parts(question)
    if not lies(x, cos, sin) or not same(3, x.rank, result.rank) or cos.rank != 2:
        return False
    return (
        one_shape([result, x])
        and cos.shape == sin.shape
        and 2 * cos.shape[1] <= x.shape[2]
        and position.shape == (1,)
        and same(dtypes[0], dtypes[1])
        and same(f32, *dtypes[2:4])
        and dtypes[4] is i64
        and type(question.attribute("interleaved")) is bool
    )


def _attended(question: Question) -> bool:
    dtypes, (result, query, key, value, *masks) = parts(question)
    if not same(4, query.rank, key.rank) or not lies(query, key, value):
        return False
    batch, heads, queries, width = query.shape
    of_keys, kv_heads, keys, key_width = key.shape
    require(
        heads % kv_heads == 0,
        f"attention: expected a multiple of the kv heads, got {heads} of {kv_heads}",
    )
    for mask in masks:
        rows = Layout(mask.shape[2:], mask.strides[2:])
        if mask.shape != (batch, heads, queries, keys) or not rows.is_contiguous:
            return False
    return (
        (of_keys, key_width) == (batch, width)
        and width <= 256
        and value.shape == key.shape
        and result.shape == query.shape
        and same(*dtypes)
        and type(question.attribute("causal")) is bool
    )


def _attended_cached(question: Question) -> bool:
    dtypes, (result, query, keys, values, position, *biases) = parts(question)
    if not lies(query, keys, values, *biases) or not same(3, query.rank, keys.rank):
        return False
    (_, heads, width), (kv_heads, capacity, of_keys) = query.shape, keys.shape
    require(heads % kv_heads == 0, "cached_attention: expected a multiple of the kv heads")
    window = question.attribute("window")
    require_counts("cached_attention: the window", window)
    return (
        one_shape([result, query])
        and one_shape([keys, values])
        and width == of_keys <= 256
        and position.shape == (1,)
        and all(one.shape == (heads, capacity) for one in biases)
        and same(*dtypes[:4])
        and dtypes[4] is i64
        and same(f32, *dtypes[5:])
        and type(question.attribute("is_bounded")) is bool
    )


def _joined(question: Question) -> bool:
    dtypes, (result, left, right) = parts(question)
    axis = question.attribute("axis")
    if type(axis) is not int or not 0 <= axis < left.rank or left.rank != right.rank:
        return False
    joined = list(left.shape)
    joined[axis] += right.shape[axis]
    fits = all(
        one == other
        for number, (one, other) in enumerate(zip(left.shape, right.shape, strict=True))
        if number != axis
    )
    return fits and same(*dtypes) and lies(left, right) and result.shape == Shape(joined)


def _appended(question: Question) -> bool:
    dtypes, (target, source, position) = parts(question)
    if not same(3, target.rank, source.rank) or not lies(source) or position.shape != (1,):
        return False
    rows, tokens, width = source.shape
    capacity = target.shape[1]
    return (
        target.shape == (rows, capacity, width)
        and tokens <= capacity
        and dtypes[0] is dtypes[1]
        and dtypes[2] is i64
    )


ROPE_I = define(
    "rope_i",
    Family(
        "rope_i",
        "x cos sin",
        "shape of x: (batch, heads, positions, width)",
        check=partial(_rotated, along=2),
        replaces=1,
        accuracy=PARTS,
    ),
    "rope_i",
    REALS,
    "rotary positions on neighbouring pairs",
    called="rope",
    interleaved=True,
)
ROPE = define(
    "rope",
    Family(
        "rope",
        "x cos sin",
        "shape of x: (batch, heads, positions, width)",
        check=partial(_rotated, along=2),
        replaces=1,
        accuracy=PARTS,
    ),
    "rope",
    REALS,
    "rotary positions on pairs half a width apart",
)
ROPE_THD = define(
    "rope_thd",
    Family(
        "rope_thd",
        "x cos sin",
        "shape of x: (batch, positions, heads, width)",
        check=partial(_rotated, along=1),
        replaces=1,
        accuracy=PARTS,
    ),
    "rope_thd",
    REALS,
    "rope with positions before heads",
    called="rope",
    heads_last=True,
)
ROPE_AT = define(
    "rope_at",
    Family(
        "rope_at",
        "x cos sin position",
        "shape of x: (tokens, heads, width)",
        check=_rotated_at,
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
        check=_attended,
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
        check=_attended_cached,
        attributes="window is_bounded",
        accuracy=OF_PRODUCT,
        numbers="scale cap",
    ),
    "sdpa_cached",
    REALS,
    "attention over the filled part of a cache",
)
KV_CONCAT = define(
    "kv_concat",
    Family(
        "kv_concat", "x y", "shape of x, longer along the axis", check=_joined, attributes="axis"
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
        check=_appended,
        is_in_place=True,
    ),
    "kv_append",
    REALS,
    "keys or values written to a cache",
)
