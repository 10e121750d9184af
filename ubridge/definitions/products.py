"""Products of matrices, dense and of blocks."""

from __future__ import annotations

import numpy as np

from ubridge.core.accuracy import OF_PRODUCT, ROUNDED, STEP
from ubridge.core.block_formats import FORMATS, BlockFormat, activation_bytes
from ubridge.core.fits import count, lies, parts, require, same
from ubridge.core.layout import Layout
from ubridge.core.operation import ORDERED, Family, define
from ubridge.core.question import Question
from uhal import DType
from uhal.dtypes import u8, u32


def _multiplied(question: Question) -> bool:
    dtypes, (result, left, right) = parts(question)
    if min(left.rank, right.rank) < 2 or not same(*dtypes):
        return False
    *batch, m, k = left.shape
    return right.shape[:-1] == (*batch, k) and result.shape == (*batch, m, right.shape[-1])


def _multiplied_by_blocks(question: Question) -> bool:
    (_, dtype, _), (result, weight, x) = parts(question)
    if not same(2, x.rank, result.rank) or not lies(x, weight) or weight.rank != 1:
        return False
    vectors, columns = x.shape
    return (
        result.shape[0] == vectors
        and _holds(question, dtype, weight, result.shape[1], columns)
        and question.operands[1][0] is question.result[0]
    )


def _rounded(question: Question) -> bool:
    (made, _), (result, x) = parts(question)
    if not same(2, x.rank, result.rank) or not lies(x):
        return False
    vectors, columns = x.shape
    elements = question.attribute("elements")
    require(elements in (32, 256), f"{question.op.name}: expected runs of 32 or 256 elements")
    whole = columns % elements == 0
    return whole and made is u8 and result.shape == (vectors, activation_bytes(columns))


def _rounded_by_blocks(question: Question) -> bool:
    (_, dtype, rounded), (result, weight, x) = parts(question)
    columns = question.attribute("columns")
    if not same(2, x.rank, result.rank) or not lies(x, weight) or weight.rank != 1:
        return False
    return (
        count(columns)
        and rounded is u8
        and x.shape == (result.shape[0], activation_bytes(columns))
        and _holds(question, dtype, weight, result.shape[1], columns)
    )


def _rounded_at_ids(question: Question) -> bool:
    (_, dtype, rounded, kind), (result, weights, x, ids) = parts(question)
    columns = question.attribute("columns")
    if not same(3, result.rank) or not same(2, x.rank, ids.rank) or not lies(weights, x, ids):
        return False
    tokens, used, rows = result.shape
    format = _format(question)
    if not count(columns) or columns % format.elements or weights.rank != 1:
        return False
    several, rest = divmod(weights.size * dtype.itemsize, rows * format.row_bytes(columns))
    return (
        (rounded, kind, dtype) == (u8, u32, format.word)
        and ids.shape == (tokens, used)
        and x.shape in ((tokens, activation_bytes(columns)), (tokens * used, x.shape[1]))
        and x.shape[1] == activation_bytes(columns)
        and several >= 1
        and rest == 0
    )


def _elements(question: Question) -> bool:
    (_, dtype), (result, weight) = parts(question)
    if result.rank != 2 or weight.rank != 1 or not lies(weight):
        return False
    return _holds(question, dtype, weight, *result.shape)


def _format(question: Question) -> BlockFormat:
    name = question.attribute("format")
    require(type(name) is str and name in FORMATS, f"{question.op.name}: no format {name!r:.80}")
    return FORMATS[name]


def _holds(question: Question, dtype: DType, weight: Layout, rows: int, columns: int) -> bool:
    """Whether a weight has so many rows and columns, in words of the size its kernels read."""
    format = _format(question)
    return (
        columns % format.elements == 0
        and weight.size * dtype.itemsize == rows * format.row_bytes(columns)
        and dtype is format.word
    )


MATMUL = define(
    "matmul",
    Family("matmul", "x y", "(…, rows of x, columns of y)", check=_multiplied, accuracy=OF_PRODUCT),
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
        check=_multiplied_by_blocks,
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
        "activations", "x", "(vectors, bytes)", check=_rounded, attributes="elements", accuracy=STEP
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
        check=_rounded_by_blocks,
        attributes="format columns",
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
        check=_rounded_at_ids,
        attributes="format columns",
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
        check=_elements,
        attributes="format",
        accuracy=ROUNDED,
    ),
    "dequantize",
    "bf16 f16 f32",
    "elements of a block weight of a `format`",
)
