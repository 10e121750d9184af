"""Products of dense and quantized matrices."""

from __future__ import annotations

import numpy as np

from ubridge.core.accuracy import OF_PRODUCT, ROUNDED, STEP
from ubridge.core.block_formats import FORMATS, BlockFormat, activation_bytes
from ubridge.core.fits import require, require_counts, shapes
from ubridge.core.layout import Shape
from ubridge.core.operand_checks import one_shape
from ubridge.core.operation import ORDERED, Family, define
from ubridge.core.question import Question
from uhal.errors import ArgumentValueError


def multiplied(x: Shape, y: Shape) -> tuple[Shape, int, int, int]:
    """Return the batch and m, k, n of a product of matrices or vectors."""
    left, right = x if len(x) > 1 else (1, *x), y if len(y) > 1 else (*y, 1)
    (m, k), (further, n) = left[-2:], right[-2:]
    if k != further:
        fits = "; x @ y.mT would fit" if len(y) > 1 and k == n else ""
        raise ArgumentValueError(
            "matmul: Input operand 1 has a mismatch in its core dimension 0, with gufunc signature "
            f"(n?,k),(k,m?)->(n?,m?) (size {further} is different from {k}): "
            f"got shapes {x} and {y}{fits}"
        )
    return one_shape("matmul", Shape(left[:-2]), Shape(right[:-2])), m, k, n


def _multiplied(question: Question) -> Shape:
    x, y = shapes(question)
    if min(len(x), len(y)) < 2 or x[:-2] != y[:-2]:
        raise ArgumentValueError(
            f"matmul: expected (…, m, k) and (…, k, n), got shapes {x} and {y}"
        )
    batch, m, _, n = multiplied(x, y)
    return Shape((*batch, m, n))


def _multiplied_by_blocks(question: Question) -> Shape:
    _, x = shapes(question)
    rows = _rows(question, len(x) == 2, 2)
    _require_blocks(question, rows, x[1])
    return Shape((x[0], rows))


def _rounded(question: Question) -> Shape:
    name, (x,), elements = question.op.name, shapes(question), question.attribute("elements")
    require(elements in (32, 256), f"{name}: expected runs of 32 or 256 elements")
    whole = len(x) == 2 and x[1] % elements == 0
    require(whole, f"{name}: expected vectors of whole runs of {elements}, got {x}")
    return Shape((x[0], activation_bytes(x[1])))


def _rounded_by_blocks(question: Question) -> Shape:
    (_, x), columns = shapes(question), _columns(question)
    rows = _rows(question, len(x) == 2 and x[1] == activation_bytes(columns), 2)
    _require_blocks(question, rows, columns)
    return Shape((x[0], rows))


def _rounded_at_ids(question: Question) -> Shape:
    (weights, x, ids), columns = shapes(question), _columns(question)
    fits = len(ids) == 2 and x in [(many, activation_bytes(columns)) for many in (ids[0], ids.size)]
    rows = _rows(question, fits, 3)
    each = rows * _format(question).row_bytes(columns)
    count = weights.size * question.dtype.itemsize // each if each else 0
    _require_blocks(question, count * rows, columns)
    require(count or 0 in (*ids, each), f"{question.op.name}: expected at least one weight")
    return Shape((*ids, rows))


def _elements(question: Question) -> Shape:
    require(len(question.shape) == 2, f"{question.op.name}: expected two axes, got {question!r}")
    _require_blocks(question, *question.shape)
    return question.shape


def _rows(question: Question, fits: bool, axes: int) -> int:
    """Rows of the weight, from the result's shape; refuse operands of other shapes."""
    fits = fits and len(question.shape) == axes
    require(fits, f"{question.op.name}: expected vectors that fit the weight, got {question!r}")
    return question.shape[-1]


def _columns(question: Question) -> int:
    columns: int = question.attribute("columns")
    require_counts(f"{question.op.name}: columns", columns)
    return columns


def _format(question: Question) -> BlockFormat:
    name = question.attribute("format")
    require(type(name) is str and name in FORMATS, f"{question.op.name}: no format {name!r:.80}")
    return FORMATS[name]


def _require_blocks(question: Question, rows: int, columns: int) -> None:
    """Refuse a weight with other rows and columns, or with words that kernels cannot read."""
    format, (dtype, weight) = _format(question), question.operands[0]
    require(
        dtype is format.word
        and weight.rank == 1
        and weight.size * dtype.itemsize == rows * format.row_bytes(columns),
        f"{question.op.name}: expected a weight of {rows} rows of {columns} in {format.name}, got "
        f"{question!r}",
    )


MATMUL = define(
    "matmul",
    Family(
        "matmul",
        "x y",
        "(…, rows of x, columns of y)",
        rule=_multiplied,
        attributes="[batch_invariant]",
        accuracy=OF_PRODUCT,
    ),
    "matmul",
    ORDERED,
    "matrix product",
    np.matmul,
)
QUANTIZED_MATVEC = define(
    "quantized_matvec",
    Family(
        "quantized_matvec",
        "x weight",
        "(…, rows of the weight)",
        rule=_multiplied_by_blocks,
        kinds="* T -> T",
        packed=2,
        attributes="format",
        accuracy=OF_PRODUCT,
    ),
    "matvec",
    "f32",
    "x times the transpose of a block weight of a `format`",
    called="quantized_matmul",
    activations="f32",
)
ACTIVATIONS = define(
    "activations",
    Family(
        "activations",
        "x",
        "(vectors, bytes)",
        rule=_rounded,
        kinds="* -> u8",
        packed=1,
        attributes="elements",
        accuracy=STEP,
    ),
    "activations",
    "bf16 f16 f32",
    "x in 8 bits, in runs of 32 or 256 `elements`",
    called="quantize_activations",
)
QUANTIZED_PRODUCT = define(
    "quantized_product",
    Family(
        "quantized_product",
        "x weight",
        "(vectors, rows)",
        rule=_rounded_by_blocks,
        kinds="* u8 -> *",
        packed=2,
        attributes="format columns [batch_invariant]",
        accuracy=OF_PRODUCT,
    ),
    "product",
    "bf16 f16 f32",
    "8-bit x times the transpose of a block weight of a `format`",
    called="quantized_matmul",
    activations="q8",
)
INDEXED_PRODUCT = define(
    "indexed_product",
    Family(
        "indexed_product",
        "x ids weights",
        "(tokens, used, rows)",
        rule=_rounded_at_ids,
        kinds="* u8 u32 -> *",
        packed=3,
        attributes="format columns [batch_invariant]",
        accuracy=OF_PRODUCT,
    ),
    "indexed",
    "bf16 f16 f32",
    "8-bit x times the transposes of the block weights at ids",
    called="indexed_matmul",
)
BLOCK_ELEMENTS = define(
    "block_elements",
    Family(
        "block_elements",
        "weight",
        "(rows, columns) of the weight",
        rule=_elements,
        kinds="* -> *",
        packed=1,
        attributes="format",
        accuracy=ROUNDED,
    ),
    "dequantize",
    "bf16 f16 f32",
    "elements of a block weight of a `format`",
)
