"""What each method of lowerings reads and writes, by its arguments: a rule for each method.

A rule refuses numbers that no operation makes of its operands, and yields how many elements of each
place are touched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ubridge.core.layout import Layout, Shape
from ubridge.core.op_table import Op
from ubridge.graph.calls import Place
from ubridge.graph.storage import Storages
from ubridge.graph.uses import (
    Use,
    reach,
    require,
    require_family,
    require_one_shape,
    some,
)
from ubridge.graph.window_rules import windows
from ubridge.quantized import FORMATS
from uhal import DType
from uhal.dtypes import u8

Rule = Callable[..., Iterator[Use]]


# -- element by element --------------------------------------------------------------------------


def _unary(
    _: Storages, op: Op, x: Place, layout: Layout, out: Place, parameter: Any
) -> Iterator[Use]:
    require_family(op, "unary" if parameter is None else "unary_scalar")
    yield Use("x", x, reach(op.name, layout))
    yield Use("out", out, layout.size)


def _binary(
    _: Storages, op: Op, x: Place, x_layout: Layout, y: Place, y_layout: Layout, out: Place
) -> Iterator[Use]:
    require_family(op, "binary", "compare")
    require_one_shape(op.name, x_layout, y_layout)
    yield Use("x", x, reach(op.name, x_layout))
    yield Use("y", y, reach(op.name, y_layout))
    yield Use("out", out, x_layout.size)


def _where(
    _: Storages, operands: tuple[Place, ...], layouts: tuple[Layout, ...], out: Place
) -> Iterator[Use]:
    require_one_shape("where", *layouts)
    for name, place, layout in zip(("condition", "x", "y"), operands, layouts, strict=True):
        yield Use(name, place, reach("where", layout))
    yield Use("out", out, layouts[0].size)


def _masked_fill(
    _: Storages,
    mask: Place,
    mask_layout: Layout,
    x: Place,
    x_layout: Layout,
    value: Any,
    out: Place,
) -> Iterator[Use]:
    require_one_shape("masked_fill", mask_layout, x_layout)
    yield Use("mask", mask, reach("masked_fill", mask_layout))
    yield Use("x", x, reach("masked_fill", x_layout))
    yield Use("out", out, x_layout.size)


def _gated(_: Storages, op: Op, gate: Place, up: Place, size: int, out: Place) -> Iterator[Use]:
    require_family(op, "gated")
    for name, place in (("gate", gate), ("up", up), ("out", out)):
        yield Use(name, place, some(op.name, size))


def _affine(
    _: Storages, x: Place, layout: Layout, out: Place, multiplier: Any, addend: Any
) -> Iterator[Use]:
    yield Use("x", x, reach("affine", layout))
    yield Use("out", out, layout.size)


def _cast(_: Storages, x: Place, layout: Layout, dtype: DType, out: Place) -> Iterator[Use]:
    require(out.dtype is dtype, f"cast: expected a result of {dtype}, got one of {out.dtype}")
    yield Use("x", x, reach("cast", layout))
    yield Use("out", out, layout.size)


def _fill(_: Storages, x: Place, layout: Layout, value: Any) -> Iterator[Use]:
    yield Use("x", x, reach("fill", layout))


def _copy2d(
    _: Storages, source: Place, destination: Place, rows: int, columns: int, *pitches: int
) -> Iterator[Use]:
    some("copy2d", rows, columns)
    for name, place, pitch in zip(
        ("source", "destination"), (source, destination), pitches, strict=True
    ):
        yield Use(name, place, (rows - 1) * pitch + columns)


# -- by ids --------------------------------------------------------------------------------------


def _index_select(
    _: Storages, x: Place, ids: Place, sizes: tuple[int, ...], out: Place
) -> Iterator[Use]:
    left, length, count, right = sizes
    yield Use("x", x, some("index_select", left, length, right))
    yield Use("ids", ids, count, steers=True)
    yield Use("out", out, some("index_select", left, count, right))


def _gather(_: Storages, x: Place, ids: Place, sizes: tuple[int, ...], out: Place) -> Iterator[Use]:
    left, length, count, right = sizes
    yield Use("x", x, some("gather", left, length, right))
    yield Use("ids", ids, some("gather", left, count, right), steers=True)
    yield Use("out", out, left * count * right)


def _scatter(
    _: Storages, op: Op, ids: Place, source: Place, target: Place, sizes: tuple[int, ...]
) -> Iterator[Use]:
    require_family(op, "scatter")
    left, count, length, right = sizes
    yield Use("ids", ids, some(op.name, left, count, right), steers=True)
    yield Use("source", source, left * count * right)
    yield Use("target", target, some(op.name, left, length, right))


def _index_add(
    _: Storages, ids: Place, source: Place, target: Place, sizes: tuple[int, ...]
) -> Iterator[Use]:
    left, count, length, right = sizes
    yield Use("ids", ids, count, steers=True)
    yield Use("source", source, some("index_add", left, count, right))
    yield Use("target", target, some("index_add", left, length, right))


# -- along axes ----------------------------------------------------------------------------------


def _reduce(
    _: Storages, op: Op, x: Place, ordered: Layout, results: int, elements: int, out: Place
) -> Iterator[Use]:
    require_family(op, "reduce", "arg_reduce")
    reached = reach(op.name, ordered)
    require(
        some(op.name, results, elements) == ordered.size,
        f"{op.name}: {results} results of {elements} elements are not the {ordered.size} there are",
    )
    yield Use("x", x, reached)
    yield Use("out", out, results)


def _rows(_: Storages, x: Place, out: Place, rows: int, columns: int, *rest: Any) -> Iterator[Use]:
    elements = some("rows", rows, columns)
    yield Use("x", x, elements)
    yield Use("out", out, elements)


def _norm(
    _: Storages, op: Op, x: Place, weight: Place, bias: Place | None, out: Place,
    rows: int, columns: int, epsilon: Any,
) -> Iterator[Use]:  # fmt: skip
    require_family(op, "rmsnorm" if bias is None else "layernorm")
    elements = some(op.name, rows, columns)
    for name, place, size in (("x", x, elements), ("weight", weight, columns),
                              ("bias", bias, columns), ("out", out, elements)):  # fmt: skip
        yield Use(name, place, size)


def _argsort(_: Storages, op: Op, x: Place, out: Place, rows: int, columns: int) -> Iterator[Use]:
    require_family(op, "sort")
    elements = some(op.name, rows, columns)
    # An order that changes while it is sought has no end.
    yield Use("x", x, elements, steers=True)
    yield Use("out", out, elements)


def _rope(
    _: Storages, op: Op, x: Place, shape: Shape, cos: Place, sin: Place, per_batch: bool, out: Place
) -> Iterator[Use]:
    require_family(op, "rope", "rope_i", "rope_thd")
    require(
        len(shape) == 4 and shape[3] % 2 == 0,
        f"{op.name}: expected four axes, the last of an even length, got {shape}",
    )
    elements = some(op.name, *shape)
    positions = shape[1 if op.name == "rope_thd" else 2]
    angles = positions * shape[3] // 2 * (shape[0] if per_batch else 1)
    for name, place, size in (("x", x, elements), ("cos", cos, angles), ("sin", sin, angles),
                              ("out", out, elements)):  # fmt: skip
        yield Use(name, place, size)


# -- products ------------------------------------------------------------------------------------


def _matmul(
    _: Storages, a: Place, left: Layout, b: Place, right: Layout, out: Place
) -> Iterator[Use]:
    require(
        left.rank >= 2
        and right.rank >= 2
        and left.shape[-1] == right.shape[-2]
        and left.shape[:-2] == right.shape[:-2],
        f"matmul: no matrices of shapes {left.shape} and {right.shape} can be multiplied",
    )
    yield Use("a", a, reach("matmul", left))
    yield Use("b", b, reach("matmul", right))
    yield Use("out", out, some("matmul", *left.shape[:-1], right.shape[-1]))


def _quantized_matvec(
    _: Storages, op: Op, weight: Place, x: Place, out: Place, sizes: tuple[int, ...]
) -> Iterator[Use]:
    require_family(op, "quantized_matvec")
    vectors, rows, columns = sizes
    form = FORMATS[op.name.removeprefix("matvec_")]
    some(op.name, vectors, rows, columns)
    require(
        weight.dtype in (u8, form.word),
        f"{op.name}: expected a weight of {u8} or {form.word}, got one of {weight.dtype}",
    )
    yield Use("weight", weight, rows * form.row_bytes(columns) // weight.dtype.itemsize)
    yield Use("x", x, vectors * columns)
    yield Use("out", out, vectors * rows)


def _attention(
    _: Storages, query: Place, key: Place, value: Place, mask: Place | None, out: Place,
    sizes: tuple[int, ...], scale: Any, causal: bool, batch: int,
) -> Iterator[Use]:  # fmt: skip
    require(len(sizes) == 7, f"attention: expected 7 sizes, got {sizes}")
    heads, kv_heads, queries, keys, width, of_batch, of_head = sizes
    elements = some("attention", batch, heads, queries, width)
    require(
        kv_heads >= 1 and heads % kv_heads == 0 and width <= 256,
        f"attention: expected a multiple of the kv heads and a width of at most 256, got {sizes}",
    )
    kept = batch * kv_heads * keys * width
    scores = (batch - 1) * of_batch + (heads - 1) * of_head + queries * keys
    for name, place, size in (("query", query, elements), ("key", key, kept),
                              ("value", value, kept), ("mask", mask, scores),
                              ("out", out, elements)):  # fmt: skip
        yield Use(name, place, size)


def _kv_concat(
    _: Storages, x: Place, y: Place, shapes: tuple[Shape, Shape], axis: int, out: Place
) -> Iterator[Use]:
    left, right = shapes
    require(
        len(left) == len(right)
        and axis < len(left)
        and all(one == other or at == axis
                for at, (one, other) in enumerate(zip(left, right, strict=True))),
        f"kv_concat: shapes {left} and {right} cannot be joined along axis {axis}",
    )  # fmt: skip
    both = some("kv_concat", left.size + right.size)
    yield Use("x", x, left.size)
    yield Use("y", y, right.size)
    yield Use("out", out, both)


def _kv_append(
    _: Storages, source: Place, target: Place, position: Place, sizes: tuple[int, ...]
) -> Iterator[Use]:
    rows, tokens, capacity, width = sizes
    yield Use("source", source, some("kv_append", rows, tokens, width))
    yield Use("target", target, some("kv_append", rows, capacity, width))
    yield Use("position", position, 1, steers=True)


RULES: dict[str, Rule] = {
    "affine": _affine,
    "argsort": _argsort,
    "attention": _attention,
    "binary": _binary,
    "cast": _cast,
    "copy2d": _copy2d,
    "fill": _fill,
    "gated": _gated,
    "gather": _gather,
    "index_add": _index_add,
    "index_select": _index_select,
    "kv_append": _kv_append,
    "kv_concat": _kv_concat,
    "log_softmax": _rows,
    "masked_fill": _masked_fill,
    "matmul": _matmul,
    "norm": _norm,
    "quantized_matvec": _quantized_matvec,
    "reduce": _reduce,
    "rope": _rope,
    "scatter": _scatter,
    "softmax": _rows,
    "unary": _unary,
    "where": _where,
    "windows": windows,
}
"""Method to its rule: called with the storages and the call's arguments."""

__all__ = ["RULES"]
