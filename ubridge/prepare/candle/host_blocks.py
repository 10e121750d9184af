"""Lowerings of products of blocks and vectors of 8 bits by ubridge's own kernels for CPUs.

Vectors are Q8_0 on CPUs, or Q8_K for weights of blocks of 256.
"""

from __future__ import annotations

from ubridge.core.block_formats import FORMATS, activation_bytes
from ubridge.core.kernel_def import KernelDef, pieces_of_lines
from ubridge.core.layout import Layout
from ubridge.core.lowering import Launches, Lowerings, Memory, Steps
from ubridge.core.question import Question
from ubridge.definitions.composing import converted
from ubridge.definitions.products import ACTIVATIONS, INDEXED_PRODUCT, QUANTIZED_PRODUCT
from uhal.dtypes import f32

_ALIKE = 16
"""Vectors of a launch without panels, whose bytes stay in a core's cache."""


def _activations(question: Question, steps: Steps) -> None:
    x = steps.operands[0]
    vectors, columns = question.layout(0).shape
    steps.launch((vectors, 1, x.size), x=x, out=steps.result, vectors=vectors, columns=columns)


def _product(question: Question, steps: Steps) -> None:
    weight, x = steps.operands
    (vectors, rows), columns = question.shape, question.attribute("columns")
    # Sums with panels have another order than sums of few vectors.
    is_invariant = question.has_flag("batch_invariant")
    most = _ALIKE if is_invariant else vectors
    for first in range(0, vectors, most):
        count = min(most, vectors - first)
        steps.launch(
            (rows, 32, count * rows * columns),
            steps.result.dtype,
            weight=weight,
            x=x[first * activation_bytes(columns) :],
            out=steps.result[first * rows :],
            rows=rows,
            columns=columns,
            vectors=count,
            few=_ALIKE if is_invariant else 0,
        )


def weights_of(question: Question) -> int:
    """Return the number of consecutive weights in the first operand."""
    rows, columns = question.shape[-1], question.attribute("columns")
    each = rows * FORMATS[question.attribute("format")].row_bytes(columns)
    return question.layout(0).size * question.dtype.itemsize // each


def deliver(made: Memory, steps: Steps) -> None:
    """Add the conversion of f32 sums to the result's type, unless the result is f32."""
    if made is not steps.result:
        converted(made, Layout.contiguous(made.size), steps.result, steps)


def _product_at_ids(question: Question, steps: Steps) -> None:
    weights, x, ids = steps.operands
    tokens, used, rows = question.shape
    count, columns = weights_of(question), question.attribute("columns")
    products = tokens * used
    out = steps.result
    made = out if out.dtype is f32 else steps.scratch(products * rows, f32)
    sharing = products // question.layout(1).shape[0]
    # Products of a token stay together, as they do in a batch of one token.
    is_invariant = question.has_flag("batch_invariant")
    most = max(1, _ALIKE // used) * used if is_invariant else products
    for first in range(0, products, most):
        some = min(most, products - first)
        # Each piece copies the vectors of a weight, so with many vectors there are few pieces.
        least = 32 if some <= 3 * count else rows // (4 * steps.limits.processors)
        steps.launch(
            (rows, max(32, least), some * rows * columns),
            f32,
            weights=weights,
            x=x[first // sharing * activation_bytes(columns) :],
            ids=ids[first:],
            out=made[first * rows :],
            count=count,
            rows=rows,
            columns=columns,
            products=some,
            sharing=sharing,
            few=most if is_invariant else 0,
        )
    deliver(made, steps)


LOWERINGS: Lowerings = {
    ACTIVATIONS: Launches(
        _activations, KernelDef("block_matmul", "{root}_{elements}_{dtype}", pieces_of_lines)
    ),
    QUANTIZED_PRODUCT: Launches(
        _product, KernelDef("block_matmul", "{root}_{format}_{dtype}", pieces_of_lines)
    ),
    INDEXED_PRODUCT: Launches(
        _product_at_ids, KernelDef("block_matmul", "{root}_{format}", pieces_of_lines)
    ),
}
