"""Variance, products, running sums, `any` and `all` over axes, made of operations with kernels.

All take numpy's `axis` and `keepdims`, `out=` and `stream=`, enqueue and return at once. Halves are
computed in f32 and rounded once, as `mean` does.
"""

from __future__ import annotations

from functools import partial
from math import prod as product_of

from ubridge.core.operand_checks import axes_of, axis_of, require_number
from ubridge.core.operation import Op
from ubridge.definitions.calls import named
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
from ubridge.definitions.rows import MAX, MIN, SUM
from ubridge.ops.elementwise import binary, converted, plan_binary, plan_conversion, unary
from ubridge.ops.engine import Value, filled, run
from ubridge.ops.reductions import (
    Axes,
    accumulated,
    averaged,
    cuts,
    pieces,
    plan_reduction,
    plan_total,
    reduced,
)
from ubridge.ops.remembering import remembered
from ubridge.ops.results import require_tensors
from ubridge.ops.strided import Tensor
from uhal import DType, as_dtype
from uhal.dtypes import DTypeLike, bool_, i64
from uhal.errors import ArgumentValueError
from uhal.interop import StreamLike


@named
def var(
    x: Tensor,
    axis: Axes = None,
    ddof: float = 0,
    keepdims: bool = False,
    *,
    out: Tensor | None = None,
    stream: StreamLike | None = None,
) -> Tensor:
    """Return the variance over axes: sum((x - mean)**2) / (count - ddof).

    The mean is computed first, so that a large mean costs no digits. Integers give f64. Raises
    `ArgumentValueError` where there are no more than `ddof` elements.
    """
    found = _variance("var", x, axis, ddof, keepdims, stream)
    return run(plan_conversion(found, averaged(x._dtype)), out, stream)


@named
def std(
    x: Tensor,
    axis: Axes = None,
    ddof: float = 0,
    keepdims: bool = False,
    *,
    out: Tensor | None = None,
    stream: StreamLike | None = None,
) -> Tensor:
    """Return the standard deviation over axes: the root of `var`."""
    variance = _variance("std", x, axis, ddof, keepdims, stream)
    found = unary(SQRT, variance, None, None, stream)
    return run(plan_conversion(found, averaged(x._dtype)), out, stream)


def _variance(
    name: str, x: Tensor, axis: Axes, ddof: float, keepdims: bool, stream: StreamLike | None
) -> Tensor:
    """The variance, of halves as f32."""
    require_tensors(name, x)
    axes = axes_of(name, x._layout, axis)
    count = product_of(x.shape[one] for one in axes)
    require_number(f"{name}, ddof", ddof)
    if count <= ddof:
        raise ArgumentValueError(
            f"{name}: expected more elements than ddof along the axes, got {count} and {ddof}"
        )
    wide = accumulated(averaged(x._dtype))
    middle: Tensor = run(plan_binary(DIVIDE, plan_total(x, wide, axes, True), count), None, stream)

    def squares_of(part: Tensor) -> Tensor:
        apart: Tensor = binary(SUBTRACT, converted(part, wide, stream=stream), middle, None, stream)
        squares: Tensor = unary(SQUARE, apart, None, None, stream)
        return reduced(SUM, squares, axes, keepdims, None, stream)

    first, *others = pieces(x, axes, wide)
    total = squares_of(first)
    for part in others:
        binary(ADD, total, squares_of(part), total, stream)
    return binary(DIVIDE, total, count - ddof, None, stream)


@named
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

    The dtype is the tensor's unless `dtype` is given; booleans become i64.

    One half of the elements is multiplied by the other until one is left: a launch or two for each
    doubling of their number; errors grow with the number of doublings. The product of no elements
    is 1.
    """
    require_tensors("prod", x)
    axes = axes_of("prod", x._layout, axis)
    result = _summed(x, dtype)
    wide = accumulated(result)
    kept = [one for one in range(x.ndim) if one not in axes]
    shape = [1 if one in axes else length for one, length in enumerate(x.shape)]
    left = [x.shape[one] for one in kept]
    if 0 in x.shape:
        total = reduced(SUM, converted(x, wide, stream=stream), axes, True, None, stream)
        found: Tensor = binary(ADD, total, 1, None, stream)
    else:
        rows = x.permute(*kept, *axes).reshape(*left, -1)
        factors = [
            _folded(converted(part, wide, stream=stream), stream)
            for part in pieces(rows, (rows.ndim - 1,), wide)
        ]
        found = factors[0]
        for factor in factors[1:]:
            found = binary(MULTIPLY, found, factor, None, stream)
        found = found.reshape(shape)
    if not keepdims:
        found = found.reshape(left)
    return run(plan_conversion(found, result), out, stream)


def _folded(x: Tensor, stream: StreamLike | None) -> Tensor:
    """The products along the last axis, which has one element or more."""
    if x.shape[-1] == 1:
        return x.copy(stream=stream)
    while x.shape[-1] > 1:
        count = x.shape[-1]
        half = count // 2
        left, right = x.narrow(-1, 0, half), x.narrow(-1, half, half)
        made: Tensor = binary(MULTIPLY, left, right, None, stream)
        if count % 2:
            first = made.narrow(-1, 0, 1)
            binary(MULTIPLY, first, x.narrow(-1, count - 1, 1), first, stream)
        x = made
    return x


@named
def cumsum(
    x: Tensor,
    axis: int | None = None,
    dtype: DTypeLike | None = None,
    *,
    out: Tensor | None = None,
    stream: StreamLike | None = None,
) -> Tensor:
    """Return the cumulative sums along an axis.

    Without an axis, all elements form one row.

    The result has the tensor's dtype unless `dtype` names another; booleans are counted as i64.
    Sums of pairs of neighbours are summed up first. Then the elements between them are added (Brent
    and Kung, "A regular layout for parallel adders", 1982). This takes two additions for each
    element, and four launches for each doubling of an axis' length. Errors grow with the logarithm
    of the length. A large tensor that is summed in a wider type is converted in pieces of 64 MiB.
    """
    require_tensors("cumsum", x)
    if axis is None:
        x = x.reshape(-1)
        axis = 0
    axis = axis_of("cumsum", x._layout, axis)
    result = _summed(x, dtype)
    wide = accumulated(result)
    parts = cuts(x, range(x.ndim), wide)
    if not parts:
        found = _running(x, wide, axis, stream)
        return run(plan_conversion(found, result), out, stream)
    whole: Tensor = run(filled(x, result, x.shape, 0), None, stream)
    last: Tensor | None = None
    for along, start, length in parts:
        found = _running(x.narrow(along, start, length), wide, axis, stream)
        if along == axis:
            if last is not None:
                binary(ADD, found, last, found, stream)
            last = found.narrow(axis, length - 1, 1).copy(stream=stream)
        target = whole.narrow(along, start, length)
        run(plan_conversion(found, result), target, stream)
    return whole if out is None else run(whole, out, stream)


def _running(x: Tensor, dtype: DType, axis: int, stream: StreamLike | None) -> Tensor:
    """The sums along an axis, in new memory of a dtype."""
    made: Tensor = converted(x, dtype, stream=stream)
    made = x.copy(stream=stream) if made is x else made
    _sum_up(made.swapaxes(axis, -1), stream)
    return made


def _sum_up(x: Tensor, stream: StreamLike | None) -> None:
    """Replace elements by their sums along the last axis."""
    pairs = x.shape[-1] // 2
    if not pairs or not x.size:
        return
    odd = x[..., 1::2]
    sums: Tensor = binary(ADD, x[..., 0 : 2 * pairs : 2], odd, None, stream)
    _sum_up(sums, stream)
    converted(sums, sums._dtype, out=odd, stream=stream)
    between = x[..., 2::2]
    count = between.shape[-1]
    if count:
        binary(ADD, between, sums.narrow(-1, 0, count), between, stream)


def _plan_judged(op: Op, of_none: Op, x: Value, axis: Axes = None, keepdims: bool = False) -> Value:
    """Plan the extreme of `x != 0`; of no elements, how their sum, 0, compares with 0."""
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

    It is False for no elements.
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

    It is True for no elements.
    """
    return run(_plan_all(x, axis, keepdims), out, stream)


def _summed(x: Tensor, dtype: DTypeLike | None) -> DType:
    """The dtype of sums and products of a tensor."""
    if dtype is not None:
        return as_dtype(dtype)
    return i64 if x._dtype is bool_ else x._dtype


__all__ = [
    "all",
    "any",
    "cumsum",
    "prod",
    "std",
    "var",
]
