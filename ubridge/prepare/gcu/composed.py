"""Lowerings to other operations where GCUs lack a kernel: attention, log-softmax, gates.

Intermediate results are always f32: rounding each to f16 or bf16 would lose more bits than a fused
kernel does. Intermediate results take memory that a fused kernel does not need.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ubridge.core.layout import Layout
from ubridge.core.lowering import Given, Launches, Lowerings, Memory, Steps
from ubridge.core.prepared import Elements
from ubridge.core.question import Question
from ubridge.definitions.attention import (
    ATTENTION,
    CACHED_ATTENTION,
    KV_CONCAT,
    ROPE,
    ROPE_AT,
    ROPE_I,
)
from ubridge.definitions.composing import converted
from ubridge.definitions.elementwise import (
    ADD,
    AFFINE,
    ASTYPE,
    DIVIDE,
    EXP,
    GREATER,
    LESS_EQUAL,
    LOG,
    MASKED_FILL,
    MULTIPLY,
    SILU,
    SILU_MUL,
    SUBTRACT,
    TANH,
)
from ubridge.definitions.indexing import INDEX_SELECT
from ubridge.definitions.memory import FILL
from ubridge.definitions.products import MATMUL
from ubridge.definitions.rows import LOG_SOFTMAX, MAX, SOFTMAX, SUM
from ubridge.prepare.gcu.copies import copy_kept, copy_strided
from ubridge.prepare.gcu.products import require_one_token
from uhal import DType
from uhal.dtypes import f32, u8
from uhal.errors import ArgumentTypeError, NotSupportedError

_HIDDEN = -1e30
"""The score of a key that a query does not see: its exponential is always 0."""
_ONE = Layout.contiguous(1)


def _silu_mul(question: Question, steps: Steps) -> None:
    """Add the activation, then the product."""
    size = question.shape.size
    line = Layout.contiguous(size)
    wide, factor = [_wide(one, size, steps) for one in steps.operands]
    activated = steps.scratch(size, f32)
    steps.run(SILU, [(wide, line)], (activated, line))
    steps.run(MULTIPLY, [(activated, line), (factor, line)], (activated, line))
    converted(activated, line, steps.result, steps)


def _log_softmax(question: Question, steps: Steps) -> None:
    """Add a log-softmax of each row; sums are plain, as the kernels' are."""
    if question.attribute("compensated"):
        raise NotSupportedError(
            "log_softmax: compensated sums need a kernel that GCUs do not have; without "
            "compensated=True the sums are plain",
            backend="tops",
        )
    rows, columns = question.shape
    whole, line = Layout.contiguous((rows, columns)), Layout.contiguous(rows)
    of_row = Layout((rows, columns), (1, 0))
    above = _wide(steps.operands[0], whole.size, steps)
    each = steps.scratch(rows, f32)
    shifted, powers = [steps.scratch(whole.size, f32) for _ in range(2)]
    steps.run(MAX, [(above, whole)], (each, line))
    steps.run(SUBTRACT, [(above, whole), (each, of_row)], (shifted, whole))
    steps.run(EXP, [(shifted, whole)], (powers, whole))
    steps.run(SUM, [(powers, whole)], (each, line))
    logarithms = steps.scratch(rows, f32)
    steps.run(LOG, [(each, line)], (logarithms, line))
    steps.run(SUBTRACT, [(shifted, whole), (logarithms, of_row)], (powers, whole))
    converted(powers, whole, steps.result, steps)


def _attention(question: Question, steps: Steps) -> None:
    """Add an attention; queries of neighboring heads, which share keys, are rows of one product."""
    batch, heads, queries, _ = question.shape
    _, kv_heads, keys, _ = question.layout(1).shape
    if keys == 0:
        steps.run(FILL, (), (steps.result, Layout.contiguous(question.shape.size)), 0)
        return
    shape = (batch, heads, queries, keys)
    line, spread = Layout.contiguous(shape), Layout(shape, (0, 0, keys, 1))
    seen = _hidden(queries, keys, steps) if question.attribute("causal") else None
    hidden = [] if seen is None else [(seen, spread)]

    def mask(scores: Memory, room: Memory) -> None:
        for one in steps.operands[3:]:
            of_mask = Layout(shape, (*question.layout(3).strides[:2], keys, 1))
            converted(one, of_mask, room, steps)
            steps.run(ADD, [(scores, line), (room, line)], (scores, line))

    _attend((batch * kv_heads, heads // kv_heads * queries, keys), line, mask, hidden, steps)


def _rope_at(question: Question, steps: Steps) -> None:
    """Add the angles of a position, then the rotation of a token's heads."""
    x, cos, sin, position = steps.operands
    tokens, heads, width = question.shape
    positions, half = question.layout(1).shape
    require_one_token(question.op.name, tokens)
    angles = Layout.contiguous((1, half))

    def row_of(table: Memory) -> Memory:
        row = steps.scratch(half, f32)
        rows = Layout.contiguous((1, positions, half))
        chosen = Layout.contiguous((1, 1, half))
        steps.run(INDEX_SELECT, [(table, rows), (position, _ONE)], (row, chosen))
        return _as(row, x.dtype, half, steps)

    def rotate(source: Memory, target: Memory, turned: int) -> None:
        shape = Layout.contiguous((1, heads, 1, turned))
        steps.run(op, [(source, shape), (cosines, angles), (sines, angles)], (target, shape))

    cosines, sines = row_of(cos), row_of(sin)
    op = ROPE_I if question.attribute("interleaved") else ROPE
    out = steps.result
    if 2 * half == width:
        rotate(x, out, width)
        return
    turned, stays = (heads, 2 * half), (heads, width - 2 * half)
    part, rest = [steps.scratch(heads * one[1], x.dtype) for one in (turned, stays)]
    copy_strided(x, Layout(turned, (width, 1)), part, steps)
    copy_strided(x[2 * half :], Layout(stays, (width, 1)), rest, steps)
    done = steps.scratch(heads * 2 * half, x.dtype)
    rotate(part, done, 2 * half)
    joined = [(done, Layout.contiguous(turned)), (rest, Layout.contiguous(stays))]
    steps.run(KV_CONCAT, joined, (out, Layout.contiguous((heads, width))), axis=1)


def _cached_attention(question: Question, steps: Steps) -> None:
    """Add an attention over all keys of the cache; a mask excludes positions not yet written."""
    tokens, heads, _ = question.shape
    kv_heads, keys, _ = question.layout(1).shape
    require_one_token(question.op.name, tokens)
    line, across = Layout.contiguous((heads, keys)), Layout((heads, keys), (0, 1))

    def bound(scores: Memory, room: Memory) -> None:
        if question.attribute("is_bounded"):
            cap, spread = steps.scratch(1, f32), Layout((heads, keys), (0, 0))
            steps.run(FILL, (), (cap, _ONE), steps.number(1))
            steps.run(DIVIDE, [(scores, line), (cap, spread)], (room, line))
            steps.run(TANH, [(room, line)], (scores, line))
            _scale(scores, line, steps.number(1), steps)
        for bias in steps.operands[4:]:
            steps.run(ADD, [(scores, line), (bias, line)], (scores, line))

    window = question.attribute("window")
    hidden = [(one, across) for one in _unseen(steps.operands[3], keys, window, steps)]
    _attend((kv_heads, heads // kv_heads, keys), line, bound, hidden, steps)


def _attend(
    sizes: tuple[int, int, int],
    line: Layout,
    change: Callable[[Memory, Memory], None],
    hidden: Sequence[tuple[Memory, Layout]],
    steps: Steps,
) -> None:
    """Add two products with a softmax of all scores between them.

    `sizes` are the numbers of products, of queries per product, and of keys; `line` is the layout
    of the scores. `change` is called with the scores and with scratch memory of the same size.
    """
    products, rows, keys = sizes
    width = steps.question.shape[-1]
    of_queries = Layout.contiguous((products, rows, width))
    of_keys = Layout.contiguous((products, keys, width))
    of_scores = Layout.contiguous((products, rows, keys))
    of_rows = Layout.contiguous((products * rows, keys))
    q, k, v = [
        _wide(memory, layout.size, steps)
        for memory, layout in zip(steps.operands[:3], (of_queries, of_keys, of_keys), strict=True)
    ]
    scores, weights = [steps.scratch(line.size, f32) for _ in range(2)]
    steps.run(MATMUL, [(q, of_queries), (k, of_keys.transpose())], (scores, of_scores))
    _scale(scores, line, steps.number(), steps)
    change(scores, weights)
    for mask in hidden:
        steps.run(MASKED_FILL, [(scores, line), mask], (scores, line), _HIDDEN)
    steps.run(SOFTMAX, [(scores, of_rows)], (weights, of_rows))
    # A query of a whole attention may see no key, and gets zeros.
    for mask in hidden if steps.question.op is ATTENTION else ():
        steps.run(MASKED_FILL, [(weights, line), mask], (weights, line), 0.0)
    result = steps.scratch(of_queries.size, f32)
    steps.run(MATMUL, [(weights, of_scores), (v, of_keys)], (result, of_queries))
    converted(result, of_queries, steps.result, steps)


def _unseen(position: Memory, keys: int, window: int, steps: Steps) -> list[Memory]:
    """1 for each key behind a position, or a window or more before this position."""
    indices, line = steps.scratch(keys, f32), Layout.contiguous(keys)
    counted = Elements("u8", np.arange(keys, dtype=np.float32).tobytes())
    copy_kept(counted, indices.view(u8), steps)
    own = steps.scratch(1, f32)
    steps.run(ASTYPE, [(position, _ONE)], (own, _ONE))
    spread = Layout((keys,), (0,))
    hidden = [steps.scratch(keys, u8)]
    steps.run(GREATER, [(indices, line), (own, spread)], (hidden[0], line))
    if window:
        left = steps.scratch(1, f32)
        hidden.append(steps.scratch(keys, u8))
        steps.run(AFFINE, [(own, _ONE)], (left, _ONE), 1.0, -float(window))
        steps.run(LESS_EQUAL, [(indices, line), (left, spread)], (hidden[1], line))
    return hidden


def _hidden(queries: int, keys: int, steps: Steps) -> Memory:
    """1 for each key hidden from a query; the last query sees all keys. Uploaded once."""
    seen = np.tri(queries, keys, keys - queries, dtype=np.uint8)
    hidden = steps.scratch(seen.size, u8)
    copy_kept(Elements("u8", (1 - seen).tobytes()), hidden, steps)
    return hidden


def _scale(x: Memory, layout: Layout, factor: Given, steps: Steps) -> None:
    steps.run(AFFINE, [(x, layout)], (x, layout), factor, 0.0)


def _wide(x: Memory, size: int, steps: Steps) -> Memory:
    """The elements as f32, converted if necessary."""
    if x.dtype.name not in ("f32", "f16", "bf16"):
        raise ArgumentTypeError(
            f"{steps.question.op.name}: dtype {x.dtype} is not supported on tops; it is made "
            "of kernels for bf16 f16 f32"
        )
    return _as(x, f32, size, steps)


def _as(x: Memory, dtype: DType, size: int, steps: Steps) -> Memory:
    """The elements themselves if they have the requested type, else converted."""
    if x.dtype is dtype:
        return x
    out = steps.scratch(size, dtype)
    converted(x, Layout.contiguous(size), out, steps)
    return out


LOWERINGS: Lowerings = {
    SILU_MUL: Launches(_silu_mul),
    LOG_SOFTMAX: Launches(_log_softmax),
    ATTENTION: Launches(_attention),
    ROPE_AT: Launches(_rope_at),
    CACHED_ATTENTION: Launches(_cached_attention),
}
