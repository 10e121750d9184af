"""Which questions are sound: how shapes, layouts and dtypes of an operation must fit together.

Operations on tensors have checked this already, with messages of their own. Graph files are not
trusted: a question with parts that do not fit would make a kernel read beyond its memory.
Sums and products are Python's integers, which never overflow.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from ubridge.core import soundness_of_attention as of_attention
from ubridge.core.block_formats import FORMATS, BlockFormat, activation_bytes
from ubridge.core.fits import MOST, count, lies, one_shape, parts, require, require_counts, same
from ubridge.core.layout import Layout
from ubridge.core.question import Question
from uhal import DType
from uhal.dtypes import i64, u8, u32


def require_sound(question: Question) -> None:
    """Refuse a question whose parts do not fit; `ArgumentValueError` says what was expected."""
    op = question.op
    known = (question.result, *question.operands)
    for _, layout in known:
        require_counts(f"{op.name}: a layout", *layout.key)
        require(layout.start_offset == 0, f"{op.name}: a layout begins with its memory")
        require(min(layout.shape, default=1) >= 1, f"{op.name}: expected nothing empty")
        require(
            prod(layout.shape) <= MOST,
            f"{op.name}: {layout.shape} are more than kernels can count",
        )
    rule = _RULES.get(op.family.name)
    require(rule, f"{op.name}: no operation of graph files")
    assert rule is not None
    wanted, numbers, names = _FORMS[op.family.name]
    require(
        len(question.operands) in wanted and question.numbers == numbers,
        f"{op.name}: expected {wanted[0]} operands and {numbers} numbers, got "
        f"{len(question.operands)} and {question.numbers}",
    )
    given = tuple(name for name, _ in question.attributes)
    require(
        set(given) == set(names.split()),
        f"{op.name}: expected the attributes {names or 'none'}, got {', '.join(given) or 'none'}",
    )
    if op.family.name not in ("fill", "copy2d"):
        require(question.result[1].is_contiguous, f"{op.name}: expected a result without gaps")
    require(rule(question), f"{op.name}: {question!r} do not fit")


def _of_each(question: Question) -> bool:
    dtypes, layouts = parts(question)
    family = question.op.family.name
    if family == "compare":
        dtypes[0] = u8 if dtypes[0] is not u8 else dtypes[1]
        return same(*dtypes) and question.result[0] is u8 and one_shape(layouts)
    if family == "where":
        del dtypes[1]
    elif family == "masked_fill":
        require(dtypes.pop() is u8, f"{question.op.name}: expected a mask of u8")
    elif family == "cast":
        dtypes.pop()
    if family == "gated" and not lies(*layouts):
        return False
    return same(*dtypes) and one_shape(layouts)


def _random(question: Question) -> bool:
    return question.result[0].name in question.op.dtypes


def _fill(question: Question) -> bool:
    return not question.result[1].may_alias


def _copy2d(question: Question) -> bool:
    dtypes, layouts = parts(question)
    rows = all(one.rank == 2 and one.strides[1] == 1 for one in layouts)
    return rows and same(*dtypes) and one_shape(layouts) and not layouts[0].may_alias


def _by_ids(question: Question) -> bool:
    dtypes, (result, *layouts) = parts(question)
    family = question.op.family.name
    of_data = 2 if family in ("scatter", "index_add") else 1
    if not lies(*layouts) or dtypes[0] is not dtypes[of_data] or result.rank != 3:
        return False
    left, length, right = result.shape
    first, second = (layout.shape for layout in layouts)
    if family == "index_select":
        return len(first) == 3 and len(second) == 1 and same(
            (left, length, right), (first[0], second[0], first[2]))  # fmt: skip
    if family == "gather":
        return len(first) == 3 and second == result.shape and same(
            (left, right), (first[0], first[2]))  # fmt: skip
    if family == "scatter":
        return len(first) == 3 and first == second and (left, right) == (first[0], first[2])
    return len(first) == 1 and second == (left, first[0], right)


def _reduce(question: Question) -> bool:
    (result_dtype, dtype), (result, layout) = parts(question)
    are_indices = question.op.family.name == "arg_reduce"
    kept = result.rank
    return (
        kept < layout.rank
        and result.shape == layout.shape[:kept]
        and result_dtype is (u32 if are_indices else dtype)
    )


def _rows(question: Question) -> bool:
    dtypes, (result, layout, *weights) = parts(question)
    family = question.op.family.name
    if family == "sort":
        dtypes[0] = dtypes[1] if dtypes[0] is u32 else i64
    if family == "log_softmax" and type(question.attribute("compensated")) is not bool:
        return False
    if family in ("rmsnorm", "layernorm") and len(weights) != 1 + (family == "layernorm"):
        return False
    return (
        layout.rank == 2
        and same(*dtypes)
        and result.shape == layout.shape
        and lies(layout, *weights)
        and all(weight.shape == layout.shape[1:] for weight in weights)
    )


def _convolution(question: Question) -> bool:
    dtypes, (result, layout, weight) = parts(question)
    axes = 2 if question.op.name.endswith("2d") else 1
    window = dict(question.attributes)
    stride, padding, dilation = window["stride"], window["padding"], window["dilation"]
    require_counts(question.op.name, *window.values())
    if not count(stride, dilation) or not same(axes + 2, layout.rank, weight.rank, result.rank):
        return False
    transposed = "out_padding" in window
    inner, outer = (0, 1) if transposed else (1, 0)
    batch, channels, *lengths = layout.shape
    if channels != weight.shape[inner] or not same(*dtypes):
        return False
    sizes = []
    for length, size in zip(lengths, weight.shape[2:], strict=True):
        reach = dilation * (size - 1)
        if transposed:
            sizes.append((length - 1) * stride + reach + window["out_padding"] + 1 - 2 * padding)
        else:
            sizes.append((length + 2 * padding - reach - 1) // stride + 1)
    return result.shape == (batch, weight.shape[outer], *sizes)


def _pool2d(question: Question) -> bool:
    dtypes, (result, layout) = parts(question)
    window, stride = question.attribute("window"), question.attribute("stride")
    if layout.rank != 4 or not _pairs(window, stride):
        return False
    sizes = [
        (length - size) // step + 1
        for length, size, step in zip(layout.shape[2:], window, stride, strict=True)
    ]
    return same(*dtypes) and result.shape == (*layout.shape[:2], *sizes)


def _pairs(*pairs: object) -> bool:
    return all(type(one) is tuple and len(one) == 2 and count(*one) for one in pairs)


def _resized(question: Question) -> bool:
    dtypes, (result, layout) = parts(question)
    if question.op.family.name == "bilinear2d":
        scale, aligned = question.attribute("scale"), question.attribute("align_corners")
        told = scale is None or (
            type(scale) is tuple and len(scale) == 2 and all(type(one) is float for one in scale)
        )
        if not told or type(aligned) is not bool:
            return False
    ranks = same(4, layout.rank, result.rank)
    return ranks and same(*dtypes) and result.shape[:2] == layout.shape[:2]


def _im2col(question: Question) -> bool:
    dtypes, (result, layout) = parts(question)
    axes = 1 if question.op.name == "im2col1d" else 2
    window = dict(question.attributes)
    require_counts(question.op.name, *window.values())
    if layout.rank != axes + 2 or result.rank != 2 * axes + 2 or not same(*dtypes):
        return False
    if not count(window["stride"], window["dilation"]):
        return False
    sizes = result.shape[axes + 2 :]
    lengths = [
        (length + 2 * window["padding"] - window["dilation"] * (size - 1) - 1) // window["stride"]
        + 1
        for length, size in zip(layout.shape[2:], sizes, strict=True)
    ]
    return result.shape == (layout.shape[0], *lengths, layout.shape[1], *sizes)


def _col2im1d(question: Question) -> bool:
    dtypes, (result, layout) = parts(question)
    stride = question.attribute("stride")
    if layout.rank != 4 or not count(stride) or not lies(layout) or not same(*dtypes):
        return False
    batch, length, channels, window = layout.shape
    return result.shape == (batch, channels, (length - 1) * stride + window)


def _matmul(question: Question) -> bool:
    dtypes, (result, left, right) = parts(question)
    if min(left.rank, right.rank) < 2 or not same(*dtypes):
        return False
    *batch, m, k = left.shape
    return right.shape[:-1] == (*batch, k) and result.shape == (*batch, m, right.shape[-1])


def _matvec(question: Question) -> bool:
    (_, dtype, _), (result, weight, x) = parts(question)
    if not same(2, x.rank, result.rank) or not lies(x, weight) or weight.rank != 1:
        return False
    vectors, columns = x.shape
    return (
        result.shape[0] == vectors
        and _holds(question, dtype, weight, result.shape[1], columns)
        and question.operands[1][0] is question.result[0]
    )


def _activations(question: Question) -> bool:
    (made, _), (result, x) = parts(question)
    if not same(2, x.rank, result.rank) or not lies(x):
        return False
    vectors, columns = x.shape
    elements = question.attribute("elements")
    require(elements in (32, 256), f"{question.op.name}: expected runs of 32 or 256 elements")
    whole = columns % elements == 0
    return whole and made is u8 and result.shape == (vectors, activation_bytes(columns))


def _product_of_blocks(question: Question) -> bool:
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


def _product_at_ids(question: Question) -> bool:
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


_CONVOLUTION = "stride padding dilation"

_FORMS: dict[str, tuple[tuple[int, ...], int, str]] = {
    **dict.fromkeys(("unary", "cast", "softmax", "sort", "reduce", "arg_reduce"), ((1,), 0, "")),
    "unary_scalar": ((1,), 1, ""),
    "affine": ((1,), 2, ""),
    **dict.fromkeys(("binary", "compare", "gated", "matmul"), ((2,), 0, "")),
    "where": ((3,), 0, ""),
    "masked_fill": ((2,), 1, ""),
    "fill": ((0,), 1, ""),
    "random": ((0,), 2, ""),
    "copy2d": ((1,), 0, ""),
    **dict.fromkeys(("index_select", "gather", "scatter", "index_add"), ((2,), 0, "")),
    "log_softmax": ((1,), 0, "compensated"),
    "rmsnorm": ((2,), 1, ""),
    "layernorm": ((3,), 1, ""),
    **dict.fromkeys(("rope", "rope_i", "rope_thd"), ((3,), 0, "")),
    **dict.fromkeys(("conv1d", "conv2d"), ((2,), 0, _CONVOLUTION)),
    **dict.fromkeys(
        ("conv_transpose1d", "conv_transpose2d"), ((2,), 0, f"{_CONVOLUTION} out_padding")
    ),
    "pool2d": ((1,), 0, "window stride"),
    "nearest2d": ((1,), 0, ""),
    "bilinear2d": ((1,), 0, "align_corners scale"),
    **dict.fromkeys(("im2col1d", "im2col"), ((1,), 0, _CONVOLUTION)),
    "col2im1d": ((1,), 0, "stride"),
    "quantized_matvec": ((2,), 0, "format"),
    "activations": ((1,), 0, "elements"),
    "quantized_product": ((2,), 0, "format columns"),
    "indexed_product": ((3,), 0, "format columns"),
    "block_elements": ((1,), 0, "format"),
    "attention": ((3, 4), 1, "causal"),
    "kv_concat": ((2,), 0, "axis"),
    "kv_append": ((2,), 0, ""),
    "rope_at": ((4,), 0, "interleaved"),
    "cached_attention": ((4, 5), 2, "window is_bounded"),
}
"""Family to its possible numbers of operands, its number of numbers, and its attributes."""

_RULES: dict[str, Callable[[Question], bool]] = {
    **dict.fromkeys(("unary", "unary_scalar", "affine", "binary", "compare"), _of_each),
    **dict.fromkeys(("cast", "where", "masked_fill", "gated"), _of_each),
    "fill": _fill,
    "random": _random,
    "copy2d": _copy2d,
    **dict.fromkeys(("index_select", "gather", "scatter", "index_add"), _by_ids),
    **dict.fromkeys(("reduce", "arg_reduce"), _reduce),
    **dict.fromkeys(("softmax", "log_softmax", "rmsnorm", "layernorm", "sort"), _rows),
    **dict.fromkeys(("rope", "rope_i", "rope_thd"), of_attention.rope),
    **dict.fromkeys(("conv1d", "conv2d", "conv_transpose1d", "conv_transpose2d"), _convolution),
    "pool2d": _pool2d,
    **dict.fromkeys(("nearest2d", "bilinear2d"), _resized),
    **dict.fromkeys(("im2col1d", "im2col"), _im2col),
    "col2im1d": _col2im1d,
    "matmul": _matmul,
    "quantized_matvec": _matvec,
    "activations": _activations,
    "quantized_product": _product_of_blocks,
    "indexed_product": _product_at_ids,
    "block_elements": _elements,
    "attention": of_attention.attention,
    "kv_concat": of_attention.kv_concat,
    "kv_append": of_attention.kv_append,
    "rope_at": of_attention.rope_at,
    "cached_attention": of_attention.cached_attention,
}
"""Family to whether the parts of a question fit."""

FAMILIES = frozenset(_RULES)
"""The families of operations that graphs hold."""

__all__ = ["FAMILIES", "MOST", "require", "require_counts", "require_sound"]
