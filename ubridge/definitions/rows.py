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
from ubridge.definitions.composing import converted, widened
from ubridge.definitions.elementwise import (
    ADD,
    COPY,
    EXP,
    LOG,
    MAXIMUM,
    MINIMUM,
    MULTIPLY,
    SUBTRACT,
)
from ubridge.definitions.memory import FILL
from uhal.dtypes import f64


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


def _rmsnorm(x: Array, weight: Array, epsilon: float) -> Array:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon) * weight


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
    shape, kept = question.layout(0).shape, Layout.contiguous(question.shape)
    whole = Layout.contiguous(shape)
    spread = Layout(shape, (*kept.strides, *[0] * (len(shape) - kept.rank)))
    x = widened(steps.operands[0], question.layout(0), steps)
    highest, bound, total = [steps.scratch(kept.size, x.dtype) for _ in range(3)]
    steps.run(MAX, [(x, whole)], (highest, kept))
    # The largest may be infinite: infinity less itself is NaN.
    most = np.finfo(np.float64 if x.dtype is f64 else np.float32).max
    for op, number in ((MINIMUM, float(most)), (MAXIMUM, -float(most))):
        steps.run(FILL, [], (bound, kept), number)
        steps.run(op, [(highest, kept), (bound, kept)], (highest, kept))
    steps.run(SUBTRACT, [(x, whole), (highest, spread)], (x, whole))
    steps.run(EXP, [(x, whole)], (x, whole))
    steps.run(SUM, [(x, whole)], (total, kept))
    steps.run(LOG, [(total, kept)], (total, kept))
    steps.run(ADD, [(total, kept), (highest, kept)], (total, kept))
    converted(total, kept, steps.result, steps)


def _multiplied(question: Question) -> Shape:
    left, _, right = _lines(question)
    return Shape((left, right))


def _lines(question: Question) -> Shape:
    """Three axes, of which operations go along the second one."""
    (x,) = shapes(question)
    require(len(x) == 3, f"{question.op.name}: expected three axes, got {x}")
    return x


def _lines_first(question: Question, steps: Steps) -> tuple[Memory, Memory]:
    """Return the operand with its second axis first (f16 and bf16 as f32), and as much scratch."""
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
    """Multiply one half of the elements by the other, until one is left."""
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
    _rmsnorm,
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
    batch, channels, _ = question.shape
    groups = question.attribute("groups")
    whole, each = Layout.contiguous(question.shape), Layout.contiguous((channels,))
    rows = Layout.contiguous((batch * groups, whole.size // (batch * groups)))
    row, spread = Layout.contiguous(rows.shape[1:]), Layout(question.shape, (0, 1, 0))
    given = zip(steps.operands, (whole, each, each), strict=True)
    x, weight, bias = [widened(memory, layout, steps) for memory, layout in given]
    ones, zeros = [steps.scratch(row.size, x.dtype) for _ in range(2)]
    steps.run(FILL, [], (ones, row), 1.0)
    steps.run(FILL, [], (zeros, row), 0.0)
    steps.run(LAYER_NORM, [(x, rows), (ones, row), (zeros, row)], (x, rows), steps.number())
    steps.run(MULTIPLY, [(x, whole), (weight, spread)], (x, whole))
    steps.run(ADD, [(x, whole), (bias, spread)], (x, whole))
    converted(x, whole, steps.result, steps)


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
