"""Which questions of attention, caches and rotary positions there are; see `soundness`."""

from __future__ import annotations

from ubridge.core.fits import lies, one_shape, parts, require, require_counts, same
from ubridge.core.layout import Layout, Shape
from ubridge.core.question import Question
from uhal.dtypes import f32, i64


def rope(question: Question) -> bool:
    """Say whether the parts of a question fit."""
    dtypes, (result, layout, cos, sin) = parts(question)
    if layout.rank != 4 or layout.shape[3] % 2 or not lies(layout, cos, sin):
        return False
    positions = layout.shape[1 if question.op.name == "rope_thd" else 2]
    plain = (positions, layout.shape[3] // 2)
    angles = cos.shape in (plain, (layout.shape[0], *plain)) and cos.shape == sin.shape
    return angles and result.shape == layout.shape and same(*dtypes)


def attention(question: Question) -> bool:
    """Say whether the parts of a question fit."""
    dtypes, (result, query, key, value, *masks) = parts(question)
    if not same(4, query.rank, key.rank) or not lies(query, key, value):
        return False
    batch, heads, queries, width = query.shape
    of_keys, kv_heads, keys, key_width = key.shape
    require(
        heads % kv_heads == 0, f"attention: expected a multiple of the kv heads, got {heads} of "
        f"{kv_heads}"
    )  # fmt: skip
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


def kv_concat(question: Question) -> bool:
    """Say whether the parts of a question fit."""
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


def kv_append(question: Question) -> bool:
    """Say whether the parts of a question fit."""
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


def rope_at(question: Question) -> bool:
    """Say whether the parts of a question fit."""
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


def cached_attention(question: Question) -> bool:
    """Say whether the parts of a question fit."""
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
