"""Variance, products, running sums, `any` and `all` over axes, composed of other operations.

All take numpy's `axis` and `keepdims`, `out=` and `stream=`, enqueue and return at once. As in
`mean`, f16 and bf16 are computed in f32 and rounded once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod as product_of

from ubridge.core.fits import require
from ubridge.core.layout import Layout
from ubridge.core.operand_checks import axes_of, axis_of, element_of, require_number
from ubridge.core.operation import Op
from ubridge.definitions.composing import accumulated
from ubridge.definitions.elementwise import (
    ADD,
    DIVIDE,
    EQUAL,
    MULTIPLY,
    NOT_EQUAL,
    SQRT,
    SQUARE,
    SUBTRACT,
)
from ubridge.definitions.rows import CUMSUM, MAX, MIN, PROD, SUM
from ubridge.ops.elementwise import (
    binary,
    converted,
    plan_binary,
    plan_conversion,
    plan_unary,
    unary,
)
from ubridge.ops.engine import Plan, Value, ask, contiguous, filled, reshaped, run
from ubridge.ops.reductions import (
    Axes,
    averaged,
    cuts,
    pieces,
    plan_joined,
    plan_reduction,
    plan_total,
    reduced,
)
from ubridge.ops.remembering import remembered
from ubridge.ops.results import require_tensors
from ubridge.ops.strided import Tensor
from uhal import DType
from uhal.dtypes import DTypeLike, bool_, i64
from uhal.interop import StreamLike


def _plan_spread(
    name: str, x: Value, axis: Axes = None, ddof: float = 0, keepdims: bool = False
) -> Value | None:
    """Plan `var`, or `std` by its name; `None` for a tensor that is widened in pieces."""
    require_tensors(name, x)
    axes = axes_of(name, x._layout, axis)
    count = product_of(x.shape[one] for one in axes)
    require_number(f"{name}, ddof", ddof)
    require(
        count > ddof,
        f"{name}: expected more elements than ddof along the axes, got {count} and {ddof}",
    )
    wide = accumulated(averaged(x._dtype))
    if cuts(x, axes, wide):
        return None
    apart = plan_binary(SUBTRACT, plan_conversion(x, wide), _plan_middle(x, wide, axes, count))
    total = plan_reduction(SUM, plan_unary(SQUARE, apart), axes, keepdims)
    return _plan_of_variance(name, plan_binary(DIVIDE, total, count - ddof), x._dtype)


def _plan_of_variance(name: str, variance: Value, dtype: DType) -> Value:
    """Plan the variance or its root in the dtype of averages; f16 and bf16 are computed in f32."""
    found = plan_unary(SQRT, variance) if name == "std" else variance
    return plan_conversion(found, averaged(dtype))


_plan_var = partial(_plan_spread, "var")
_plan_std = partial(_plan_spread, "std")


def _plan_middle(x: Value, wide: DType, axes: tuple[int, ...], count: int) -> Value:
    return plan_binary(DIVIDE, plan_total(x, wide, axes, True), count)


def _variance_in_pieces(
    name: str, x: Tensor, axis: Axes, ddof: float, keepdims: bool, stream: StreamLike | None
) -> Tensor:
    """Compute the variance of a large tensor; one piece at a time is widened."""
    axes = axes_of(name, x._layout, axis)
    count = product_of(x.shape[one] for one in axes)
    wide = accumulated(averaged(x._dtype))
    middle: Tensor = run(_plan_middle(x, wide, axes, count), None, stream)

    def squares_of(part: Tensor) -> Tensor:
        apart: Tensor = binary(SUBTRACT, converted(part, wide, stream=stream), middle, None, stream)
        squares: Tensor = unary(SQUARE, apart, None, None, stream)
        return reduced(SUM, squares, axes, keepdims, None, stream)

    first, *others = pieces(x, axes, wide)
    total = squares_of(first)
    for part in others:
        binary(ADD, total, squares_of(part), total, stream)
    return binary(DIVIDE, total, count - ddof, None, stream)


def _spread(
    name: str,
    x: Tensor,
    axis: Axes,
    ddof: float,
    correction: float | None,
    keepdims: bool,
    out: Tensor | None,
    stream: StreamLike | None,
) -> Tensor:
    """Compute `var` or `std`; `correction` is another name of `ddof`."""
    if correction is not None:
        require(not ddof, f"{name}: expected ddof or correction, got both. Give one.")
        ddof = correction
    plan = _plan_spread(name, x, axis, ddof, keepdims)
    if plan is None:
        variance = _variance_in_pieces(name, x, axis, ddof, keepdims, stream)
        plan = _plan_of_variance(name, variance, x._dtype)
    return run(plan, out, stream)


@remembered(_plan_var)
def var(
    x: Tensor,
    axis: Axes = None,
    ddof: float = 0,
    keepdims: bool = False,
    *,
    correction: float | None = None,
    out: Tensor | None = None,
    stream: StreamLike | None = None,
) -> Tensor:
    """Return the variance over axes: sum((x - mean)**2) / (count - ddof).

    The mean is computed first, so that a large mean does not cancel digits. Integers give f64.
    `correction` is another name of `ddof`; PyTorch's default is 1. Raises `ArgumentValueError` for
    `ddof` elements or fewer.
    """
    return _spread("var", x, axis, ddof, correction, keepdims, out, stream)


@remembered(_plan_std)
def std(
    x: Tensor,
    axis: Axes = None,
    ddof: float = 0,
    keepdims: bool = False,
    *,
    correction: float | None = None,
    out: Tensor | None = None,
    stream: StreamLike | None = None,
) -> Tensor:
    """Return the standard deviation over axes: the root of `var`."""
    return _spread("std", x, axis, ddof, correction, keepdims, out, stream)


def plan_prod(
    x: Value, axis: Axes = None, dtype: DTypeLike | None = None, keepdims: bool = False
) -> Value:
    """Plan the product over axes, in the type that kernels multiply in."""
    require_tensors(PROD.name, x)
    shape, axes = x.shape, axes_of(PROD.name, x._layout, axis)
    result = _summed(x, dtype)
    left = [1 if one in axes else n for one, n in enumerate(shape) if keepdims or one not in axes]
    if 0 in shape:
        return filled(x, result, left, 1)
    parts = pieces(x, axes, accumulated(result))
    factors = [_plan_product(_operand_of(PROD, part, result), axes, left) for part in parts]
    return plan_conversion(plan_joined(MULTIPLY, factors), result)


def _plan_product(x: Value, axes: tuple[int, ...], shape: Sequence[int]) -> Plan:
    """Plan the product over axes; axes that are not neighbors are moved to the end."""
    first, rank = min(axes, default=0), len(x.shape)
    if axes == tuple(range(first, first + len(axes))):
        return _along(PROD, x, first, first + len(axes), shape)
    kept = [one for one in range(rank) if one not in axes]
    turned = x._viewed(x._layout.permute((*kept, *axes)))
    return _along(PROD, turned, len(kept), rank, shape)


@remembered(plan_prod)
def prod(
    x: Tensor,
    axis: Axes = None,
    dtype: DTypeLike | None = None,
    keepdims: bool = False,
    *,
    out: Tensor | None = None,
    stream: StreamLike | None = None,
) -> Tensor:
    """Multiply over axes.

    The dtype is the tensor's unless `dtype` is given; booleans become i64. Products of integers may
    wrap around: `dtype="i64"` gives numpy's result. The product of no elements is 1.
    """
    return run(plan_prod(x, axis, dtype, keepdims), out, stream)


def plan_cumsum(x: Value, axis: int | None = None, dtype: DTypeLike | None = None) -> Value | None:
    """Plan the cumulative sums along an axis; `None` for a tensor that is converted in pieces."""
    x, axis, result = _scanned(x, axis, dtype)
    if cuts(x, range(len(x.shape)), accumulated(result)):
        return None
    plan = _along(CUMSUM, _operand_of(CUMSUM, x, result), axis, axis + 1, x.shape)
    return plan_conversion(plan, result)


@remembered(plan_cumsum)
def cumsum(
    x: Tensor,
    axis: int | None = None,
    dtype: DTypeLike | None = None,
    *,
    out: Tensor | None = None,
    stream: StreamLike | None = None,
) -> Tensor:
    """Return the cumulative sums along an axis.

    Without an axis, all elements form one row. The result has the tensor's dtype unless `dtype`
    names another; booleans are counted as i64. Sums of small integers may wrap around:
    `dtype="i64"` gives numpy's result. A large tensor that is summed in a wider type is
    converted in pieces of 64 MiB.
    """
    plan = plan_cumsum(x, axis, dtype)
    if plan is not None:
        return run(plan, out, stream)
    x, axis, result = _scanned(x, axis, dtype)
    wide = accumulated(result)
    whole: Tensor = run(filled(x, result, x.shape, 0), None, stream)
    last: Tensor | None = None
    for along, start, length in cuts(x, range(x.ndim), wide):
        part = plan_conversion(x.narrow(along, start, length), wide)
        found: Tensor = run(_along(CUMSUM, part, axis, axis + 1, part.shape), None, stream)
        if along == axis:
            if last is not None:
                binary(ADD, found, last, found, stream)
            last = found.narrow(axis, length - 1, 1).copy(stream=stream)
        run(plan_conversion(found, result), whole.narrow(along, start, length), stream)
    return whole if out is None else run(whole, out, stream)


def _scanned(x: Value, axis: int | None, dtype: DTypeLike | None) -> tuple[Value, int, DType]:
    """Return the tensor, the axis and dtype of its sums; without an axis, all form one row."""
    require_tensors(CUMSUM.name, x)
    if axis is None:
        x = reshaped(x, -1)
    axis = axis_of(CUMSUM.name, x._layout, 0 if axis is None else axis)
    return x, axis, _summed(x, dtype)


def _operand_of(op: Op, x: Value, result: DType) -> Value:
    """The elements in the type in which an operation computes a result."""
    if result is bool_:
        # A boolean sum of booleans is `any`, a boolean product is `all`.
        return plan_conversion(plan_conversion(x, bool_), i64)
    if x._dtype is result and result.name in op.dtypes:
        return x
    return plan_conversion(x, accumulated(result))


def _along(op: Op, x: Value, first: int, last: int, shape: Sequence[int]) -> Plan:
    """Plan an operation along axes from `first` up to `last`, seen as one axis."""
    lengths = x.shape
    sizes = [product_of(part) for part in (lengths[:first], lengths[first:last], lengths[last:])]
    return ask(op, (reshaped(contiguous(x), sizes),), x._dtype, Layout.contiguous(shape))


def _plan_judged(op: Op, of_none: Op, x: Value, axis: Axes = None, keepdims: bool = False) -> Value:
    """Plan the extreme of `x != 0`; without elements, compare their sum, 0, with 0."""
    require_tensors(op.name, x)
    if 0 in x.shape:
        axes = axes_of(op.name, x._layout, axis)
        return plan_binary(of_none, plan_total(x, i64, axes, keepdims), 0)
    if x._dtype is not bool_:
        x = plan_binary(NOT_EQUAL, x, 0)
    return plan_reduction(op, x, axis, keepdims)


_plan_any = partial(_plan_judged, MAX, NOT_EQUAL)
_plan_all = partial(_plan_judged, MIN, EQUAL)


@remembered(_plan_any)
def any(  # numpy's name
    x: Tensor,
    axis: Axes = None,
    keepdims: bool = False,
    *,
    out: Tensor | None = None,
    stream: StreamLike | None = None,
) -> Tensor:
    """Return whether some element over axes is not 0, as bool.

    The result is False for no elements.
    """
    return run(_plan_any(x, axis, keepdims), out, stream)


@remembered(_plan_all)
def all(  # numpy's name
    x: Tensor,
    axis: Axes = None,
    keepdims: bool = False,
    *,
    out: Tensor | None = None,
    stream: StreamLike | None = None,
) -> Tensor:
    """Return whether every element over axes is not 0, as bool.

    The result is True for no elements.
    """
    return run(_plan_all(x, axis, keepdims), out, stream)


def _summed(x: Tensor, dtype: DTypeLike | None) -> DType:
    """The dtype of sums and products of a tensor."""
    if dtype is not None:
        return element_of(SUM.name, dtype)
    return i64 if x._dtype is bool_ else x._dtype


__all__ = [
    "all",
    "any",
    "cumsum",
    "prod",
    "std",
    "var",
]
