"""Operations along axes and on rows: reductions, softmax, norms, sorting."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ubridge.core.accuracy import EXACT, OF_PRODUCT, OF_SUM, ROW
from ubridge.core.fits import count, flag, require, shapes
from ubridge.core.layout import Layout, Shape
from ubridge.core.lowering import Memory, Steps
from ubridge.core.operation import ORDERED, REALS, Array, Family, define
from ubridge.core.question import Question
from ubridge.definitions import composing
from ubridge.definitions.composing import accumulated, converted, cut, widened
from ubridge.definitions.elementwise import ADD, CLIP, COPY, EXP, LOG, MULTIPLY, SUBTRACT
from ubridge.definitions.indexing import GATHER
from ubridge.definitions.memory import FILL
from uhal.dtypes import f64, u32


def _reduced(question: Question) -> Shape:
    """The first axes of the operand; the others are reduced."""
    layout, kept = question.layout(0), question.result[1].rank
    require(kept < layout.rank, f"{question.op.name}: expected fewer axes than {layout.shape}")
    return Shape(layout.shape[:kept])


def _rows(question: Question) -> Shape:
    """The rows of the first operand; weights have their length."""
    x, *weights = shapes(question)
    require(len(x) == 2, f"{question.op.name}: expected rows, got shape {x}")
    require_weights(question.op.name, x[1:], weights)
    return x


def require_weights(name: str, expected: tuple[int, ...], weights: Sequence[Shape]) -> None:
    """Refuse weights of another shape."""
    for one in weights:
        require(one == expected, f"{name}: expected weights of shape {expected}, got {one}")


def _logarithms(question: Question) -> Shape:
    flag(question, "compensated")
    return _rows(question)


def _softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def _log_softmax(x: Array) -> Array:
    above = x - x.max(-1, keepdims=True)
    return above - np.log(np.exp(above).sum(-1, keepdims=True))


def _layernorm(x: Array, weight: Array, bias: Array, epsilon: float) -> Array:
    centered = x - x.mean(-1, keepdims=True)
    deviation = np.sqrt((centered * centered).mean(-1, keepdims=True) + epsilon)
    return centered / deviation * weight + bias


REDUCTION = Family(
    "reduce", "x", "shape of x without the axes", rule=_reduced, accuracy=OF_SUM, settings="axes"
)


def _logsumexp(x: Array, axis: int) -> Array:
    most = np.finfo(x.dtype).max
    highest = x.max(axis, keepdims=True).clip(-most, most)
    return np.log(np.exp(x - highest).sum(axis)) + highest.squeeze(axis)


def _compose_logsumexp(question: Question, steps: Steps) -> None:
    """Subtract the largest, so that powers stay finite; f16 and bf16 are computed in f32."""
    (given,), layout = steps.operands, question.layout(0)
    kept, reduced = Layout.contiguous(question.shape), layout.rank - len(question.shape)
    dtype = accumulated(given.dtype)
    first = steps.scratch(kept.size, given.dtype)
    steps.run(MAX, [(given, layout)], (first, kept))
    highest = first if dtype is given.dtype else widened(first, kept, steps)
    # The largest may be infinite: infinity minus infinity is NaN.
    most = float(np.finfo(np.float64 if dtype is f64 else np.float32).max)
    steps.run(CLIP, [(highest, kept)], (highest, kept), -most, most)
    total, added = steps.scratch(kept.size, dtype), steps.scratch(1, dtype)
    piece = min(layout.size, max(1, composing.PIECE_BYTES // dtype.itemsize))
    powers, done, each = steps.scratch(piece, dtype), 0, layout.size // kept.size
    for part in cut(layout, piece):
        results = Layout.contiguous(part.shape[: max(0, part.rank - reduced)])
        spread = Layout(part.shape, (*results.strides, *[0] * (part.rank - results.rank)))
        whole, row = Layout.contiguous(part.shape), done // each
        x, lies = given[part.start_offset : part.extent], part.from_start
        if dtype is not given.dtype:
            converted(x, lies, powers, steps)
            x, lies = powers, whole
        largest = highest[row : row + results.size]
        steps.run(SUBTRACT, [(x, lies), (largest, spread)], (powers, whole))
        steps.run(EXP, [(powers, whole)], (powers, whole))
        found = total[row : row + results.size]
        sums = added if done % each else found
        steps.run(SUM, [(powers, whole)], (sums, results))
        if done % each:
            steps.run(ADD, [(found, results), (sums, results)], (found, results))
        done += part.size
    steps.run(LOG, [(total, kept)], (total, kept))
    steps.run(ADD, [(total, kept), (highest, kept)], (total, kept))
    converted(total, kept, steps.result, steps)


def _multiplied(question: Question) -> Shape:
    left, _, right = _lines(question)
    return Shape((left, right))


def _lines(question: Question) -> Shape:
    """Three axes; operations go along the second axis."""
    (x,) = shapes(question)
    require(len(x) == 3, f"{question.op.name}: expected three axes, got {x}")
    return x


def _lines_first(question: Question, steps: Steps) -> tuple[Memory, Memory]:
    """Return the operand with its second axis first (f16 and bf16 as f32), and scratch of the same
    size.
    """
    turned = question.layout(0).permute((1, 0, 2))
    made = widened(steps.operands[0], turned, steps)
    return made, steps.scratch(made.size, made.dtype)


def _compose_cumsum(question: Question, steps: Steps) -> None:
    """Add elements 1, 2, 4, … apart until each includes all before it (Hillis and Steele, 1986)."""
    left, length, right = question.shape
    made, other = _lines_first(question, steps)
    apart = 1
    while apart < length:
        kept, added = apart * left * right, (length - apart) * left * right
        few, rest = Layout.contiguous((kept,)), Layout.contiguous((added,))
        steps.run(COPY, [(made[:kept], few)], (other[:kept], few))
        steps.run(ADD, [(made[kept:], rest), (made[:added], rest)], (other[kept:], rest))
        made, other = other, made
        apart *= 2
    back = Layout.contiguous((length, left, right)).permute((1, 0, 2))
    converted(made, back, steps.result, steps)


def _compose_prod(question: Question, steps: Steps) -> None:
    """Multiply one half of the elements by the other half, until one element is left."""
    left, length, right = question.layout(0).shape
    made, other = _lines_first(question, steps)
    size = left * right
    line = Layout.contiguous((size,))
    while length > 1:
        half = length // 2
        many = Layout.contiguous((half * size,))
        parts = [(made[: half * size], many), (made[half * size : 2 * half * size], many)]
        steps.run(MULTIPLY, parts, (other[: half * size], many))
        if length % 2:
            last = made[2 * half * size : length * size]
            steps.run(MULTIPLY, [(other[:size], line), (last, line)], (other[:size], line))
        made, other = other, made
        length = half
    converted(made[:size], line, steps.result, steps)


SUM = define("sum", REDUCTION, "fast_sum", ORDERED, "sum", np.sum)
MIN = define("min", REDUCTION, "fast_min", ORDERED, "minimum", np.min, accuracy=EXACT)
MAX = define("max", REDUCTION, "fast_max", ORDERED, "maximum", np.max, accuracy=EXACT)
LOGSUMEXP = define(
    "logsumexp",
    REDUCTION,
    "logsumexp",
    REALS,
    "logarithm of the sum of e to the x",
    _logsumexp,
    accuracy=ROW,
    composed=_compose_logsumexp,
)
CUMSUM = define(
    "cumsum",
    Family(
        "scan",
        "x",
        "shape of x",
        rule=_lines,
        packed=1,
        settings="axis dtype",
        accuracy=OF_PRODUCT,
    ),
    "cumsum",
    ORDERED,
    "sums of the elements up to each",
    np.cumsum,
    composed=_compose_cumsum,
)
PROD = define(
    "prod",
    Family(
        "fold",
        "x",
        "shape of x without the axes",
        rule=_multiplied,
        packed=1,
        settings="axis dtype keepdims",
        accuracy=OF_PRODUCT,
    ),
    "prod",
    ORDERED,
    "product",
    np.prod,
    composed=_compose_prod,
)
ARG_REDUCTION = Family(
    "arg_reduce",
    "x",
    "shape of x without the axis; u32",
    rule=_reduced,
    kinds="T -> u32",
    settings="axis",
)
ARGMIN = define(
    "argmin", ARG_REDUCTION, "fast_argmin", ORDERED, "index of the first minimum", np.argmin
)
ARGMAX = define(
    "argmax", ARG_REDUCTION, "fast_argmax", ORDERED, "index of the first maximum", np.argmax
)
SOFTMAX = define(
    "softmax",
    Family(
        "softmax",
        "x",
        "shape of x; over its last axis",
        rule=_rows,
        packed=3,
        replaces=1,
        accuracy=ROW,
    ),
    "softmax",
    REALS,
    "e to the x over the sum of e to the x",
    _softmax,
)
LOG_SOFTMAX = define(
    "log_softmax",
    Family(
        "log_softmax",
        "x",
        "shape of x; over its last axis",
        rule=_logarithms,
        packed=1,
        attributes="compensated",
        replaces=1,
        accuracy=ROW,
    ),
    "log_softmax",
    REALS,
    "x minus the logarithm of the sum of e to the x",
    _log_softmax,
)
RMS_NORM = define(
    "rms_norm",
    Family(
        "rmsnorm",
        "x weight",
        "shape of x; over its last axis",
        rule=_rows,
        packed=3,
        replaces=1,
        accuracy=ROW,
        numbers="epsilon",
    ),
    "rmsnorm",
    REALS,
    "x over its root mean square",
    lambda x, weight, epsilon: x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon) * weight,
)
LAYER_NORM = define(
    "layer_norm",
    Family(
        "layernorm",
        "x weight bias",
        "shape of x; over its last axis",
        rule=_rows,
        packed=3,
        replaces=1,
        accuracy=ROW,
        numbers="epsilon",
    ),
    "layernorm",
    REALS,
    "(x - mean) over the standard deviation",
    _layernorm,
)


def require_groups(name: str, x: Shape, groups: int) -> None:
    """Refuse a shape whose channels, the second axis, are no multiple of the groups."""
    fits = len(x) >= 2 and count(groups) and x[1] % groups == 0
    require(
        fits,
        f"{name}: expected (batch, channels, …) with a multiple of {groups} channels, got "
        f"shape {x}",
    )


def _grouped(question: Question) -> Shape:
    x, *weights = shapes(question)
    require(len(x) == 3, f"{question.op.name}: expected three axes, got {x}")
    require_groups(question.op.name, x, question.attribute("groups"))
    require_weights(question.op.name, x[1:2], weights)
    return x


def _groupnorm(x: Array, weight: Array, bias: Array, groups: int, epsilon: float) -> Array:
    rows = x.reshape(len(x), groups, -1)
    ones = np.ones(1, x.dtype)
    shape = (-1, *[1] * (x.ndim - 2))
    normed = _layernorm(rows, ones, 0 * ones, epsilon).reshape(x.shape)
    return normed * weight.reshape(shape) + bias.reshape(shape)


def _compose_group_norm(question: Question, steps: Steps) -> None:
    """Norm each group as a row, then scale and shift each channel, in f32 for f16 and bf16."""
    batch, channels, inner = question.shape
    groups = question.attribute("groups")
    x, dtype = steps.operands[0], accumulated(question.dtype)
    size = channels // groups * inner
    row, each = Layout.contiguous((size,)), Layout.contiguous((channels,))
    weight, bias = [widened(memory, each, steps) for memory in steps.operands[1:]]
    ones, zeros = [steps.scratch(size, dtype) for _ in range(2)]
    steps.run(FILL, [], (ones, row), 1.0)
    steps.run(FILL, [], (zeros, row), 0.0)
    most = batch * groups
    if dtype is not x.dtype:
        most = min(most, max(1, composing.PIECE_BYTES // (size * dtype.itemsize)))
        wide = steps.scratch(most * size, dtype)
    for part in cut(Layout.contiguous((batch, groups)), most):
        rows = Layout.contiguous((part.size, size))
        span = slice(part.start_offset * size, part.start_offset * size + rows.size)
        given, target = x[span], steps.result[span]
        made = target
        if dtype is not x.dtype:
            converted(given, rows, wide, steps)
            given = made = wide
        steps.run(
            LAYER_NORM, [(given, rows), (ones, row), (zeros, row)], (made, rows), steps.number()
        )
        shape = (*part.shape[:-1], part.shape[-1] * channels // groups, inner)
        whole = Layout.contiguous(shape)
        spread = Layout(shape, (*[0] * (len(shape) - 2), 1, 0))
        first = part.start_offset % groups * channels // groups
        for op, weights in ((MULTIPLY, weight), (ADD, bias)):
            of_part = weights[first : first + shape[-2]]
            steps.run(op, [(made, whole), (of_part, spread)], (made, whole))
        if made is not target:
            converted(made, whole, target, steps)


GROUP_NORM = define(
    "group_norm",
    Family(
        "group_norm",
        "x weight bias",
        "shape of x: (batch, channels, …)",
        rule=_grouped,
        packed=3,
        attributes="groups",
        replaces=1,
        accuracy=ROW,
        numbers="epsilon",
    ),
    "group_norm",
    REALS,
    "layer_norm of groups of channels",
    _groupnorm,
    composed=_compose_group_norm,
)
SORTING = Family(
    "sort", "x", "shape of x; along its last axis; u32", rule=_rows, kinds="T -> u32", packed=1
)
ARGSORT = define("argsort", SORTING, "asort_asc", ORDERED, "indices in rising order")
ARGSORT_DESCENDING = define(
    "argsort_descending",
    SORTING,
    "asort_desc",
    ORDERED,
    "indices in falling order",
    called="argsort",
    descending=True,
)


def _compose_sort(question: Question, steps: Steps) -> None:
    """Find the order of each row, then choose its elements."""
    op = ARGSORT_DESCENDING if question.op is SORT_DESCENDING else ARGSORT
    rows, elements = question.shape, Layout.contiguous((*question.shape, 1))
    order, row = steps.scratch(rows.size, u32), Layout.contiguous(rows)
    x = steps.operands[0]
    steps.run(op, [(x, row)], (order, row))
    steps.run(GATHER, [(x, elements), (order, elements)], (steps.result, elements))


ELEMENTS_IN_ORDER = Family(
    "elements_in_order", "x", "shape of x; along its last axis", rule=_rows, packed=1
)
SORT = define(
    "sort",
    ELEMENTS_IN_ORDER,
    "sort_asc",
    ORDERED,
    "elements in rising order",
    composed=_compose_sort,
)
SORT_DESCENDING = define(
    "sort_descending",
    ELEMENTS_IN_ORDER,
    "sort_desc",
    ORDERED,
    "elements in falling order",
    composed=_compose_sort,
    called="sort",
    descending=True,
)
