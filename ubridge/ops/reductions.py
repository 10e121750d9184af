"""Sums, extremes and their indices along axes, and means."""

from __future__ import annotations

from builtins import max as largest
from builtins import min as smallest
from collections.abc import Iterable, Sequence
from functools import lru_cache, partial
from math import prod
from typing import Any

from ubridge.core.layout import Layout
from ubridge.core.operand_checks import axes_of, element_of, require_indices_of_u32
from ubridge.core.operation import Op
from ubridge.definitions import composing
from ubridge.definitions.composing import accumulated
from ubridge.definitions.elementwise import ADD, BITWISE_XOR, DIVIDE
from ubridge.definitions.rows import ARG_REDUCTION, ARGMAX, ARGMIN, LOGSUMEXP, MAX, MIN, SUM
from ubridge.ops.elementwise import plan_binary, plan_conversion, plan_in_order
from ubridge.ops.engine import Plan, Value, ask, filled, plan_copy, reshaped, run
from ubridge.ops.remembering import remembered
from ubridge.ops.results import require_tensors
from ubridge.ops.strided import Tensor
from uhal.dtypes import DType, DTypeLike, bool_, f64, i64, u32, u64
from uhal.errors import ArgumentTypeError, ArgumentValueError
from uhal.interop import StreamLike

Axes = int | Iterable[int] | None


def plan_reduction(op: Op, x: Value, axis: Axes = None, keepdims: bool = False) -> Value:
    """Plan a reduction over axes, over all of them by default, in the tensor's dtype.

    Indices are u32, along one axis; without an axis they count elements in row-major order.
    """
    if not hasattr(x, "_layout"):
        require_tensors(op.name, x)
    is_index = op.family is ARG_REDUCTION
    if axis is None and is_index:
        shape = (1,) * x._layout.rank if keepdims else ()
        found = plan_reduction(op, reshaped(x, -1), 0)
        return found._viewed(Layout.contiguous(shape))
    if x._dtype is u64 and op is not SUM:
        found = plan_reduction(op, plan_in_order(x), axis, keepdims)
        if is_index:
            return found
        return plan_binary(BITWISE_XOR, plan_conversion(found, u64), 1 << 63)
    axes = axes_of(op.name, x._layout, axis)
    if is_index and len(axes) != 1:
        raise ArgumentTypeError(f"{op.name}: expected one axis, got {axis}")
    if not axes:
        return plan_copy(x)
    ordered, result, kept, elements = _reduced(x._layout, axes, bool(keepdims))
    if elements == 0 and op is not SUM:
        # numpy raises this even if the result has no elements.
        raise ArgumentValueError(
            f"{op.name}: zero-size array to reduction operation {op.name} which has no identity"
        )
    if is_index:
        require_indices_of_u32(op.name, elements)
    dtype = u32 if is_index else x._dtype
    if elements == 0:
        return filled(x, dtype, result.shape, 0)
    return ask(op, (x._viewed(ordered),), dtype, result, asked=kept)


@lru_cache(maxsize=4096)
def _reduced(
    layout: Layout, axes: tuple[int, ...], keepdims: bool
) -> tuple[Layout, Layout, Layout, int]:
    """Layouts of x (reduced axes last), result and question; elements per result."""
    kept = [axis for axis in range(layout.rank) if axis not in axes]
    lengths = [layout.shape[axis] for axis in kept]
    spread = [1 if axis in axes else length for axis, length in enumerate(layout.shape)]
    result = Layout.contiguous(spread if keepdims else lengths)
    elements = prod(layout.shape[axis] for axis in axes)
    return layout.permute((*kept, *axes)), result, Layout.contiguous(lengths), elements


def reduced(
    op: Op,
    x: Tensor,
    axis: Axes = None,
    keepdims: bool = False,
    out: Tensor | None = None,
    stream: StreamLike | None = None,
) -> Tensor:
    """Reduce over axes, over all of them by default."""
    return run(plan_reduction(op, x, axis, keepdims), out, stream)


def plan_sum(
    x: Value, axis: Axes = None, dtype: DTypeLike | None = None, keepdims: bool = False
) -> Value:
    """Plan a sum; booleans are counted."""
    if not hasattr(x, "_layout"):
        require_tensors(SUM.name, x)
    if dtype is None and x._dtype is not bool_:
        return plan_reduction(SUM, x, axis, keepdims)
    return plan_total(x, i64 if dtype is None else element_of(SUM.name, dtype), axis, keepdims)


def plan_total(x: Value, dtype: DType, axis: Axes, keepdims: bool) -> Value:
    """Plan the sum of a converted tensor; only one converted piece is in memory at a time."""
    # A boolean sum of booleans is True if any element is True.
    op = MAX if dtype is bool_ and x._layout.size else SUM
    terms = [
        plan_reduction(op, plan_conversion(part, dtype), axis, keepdims)
        for part in pieces(x, axes_of(SUM.name, x._layout, axis), dtype)
    ]
    return plan_joined(ADD, terms)


def plan_joined(op: Op, terms: list[Value]) -> Value:
    """Plan a sum or product of tensors as a tree: a chain of thousands would nest too deep."""
    if len(terms) == 1:
        return terms[0]
    half = len(terms) // 2
    return plan_binary(op, plan_joined(op, terms[:half]), plan_joined(op, terms[half:]))


def pieces(x: Value, axes: Sequence[int], dtype: DType) -> list[Any]:
    """Return views of a tensor along a reduced axis; each view is converted separately.

    A tensor that is small, computed first or not widened is a single piece.
    """
    found = cuts(x, axes, dtype)
    return [x._viewed(x._layout.narrow(*cut)) for cut in found] if found else [x]


def cuts(x: Value, axes: Sequence[int], dtype: DType) -> list[tuple[int, int, int]]:
    """Return (axis, start, length) of the pieces along the longest axis, or none for one piece."""
    layout = x._layout
    whole = layout.size * dtype.itemsize
    if (
        whole <= composing.PIECE_BYTES
        or dtype.itemsize <= x._dtype.itemsize
        or not axes
        or type(x) is Plan
    ):
        return []
    axis = largest(axes, key=lambda one: layout.shape[one])
    length = layout.shape[axis]
    step = -(-length * composing.PIECE_BYTES // whole)
    return [(axis, start, smallest(step, length - start)) for start in range(0, length, step)]


@remembered(plan_sum)
def sum(  # numpy's name
    x: Tensor,
    axis: Axes = None,
    dtype: DTypeLike | None = None,
    keepdims: bool = False,
    *,
    out: Tensor | None = None,
    stream: StreamLike | None = None,
) -> Tensor:
    """Sum over axes.

    The dtype is the tensor's unless `dtype` is given; booleans are counted as i64. Sums of small
    integers may wrap around: `dtype="i64"` gives numpy's result.

    With a `dtype` of bool the result is True if any element is not 0.
    """
    return run(plan_sum(x, axis, dtype, keepdims), out, stream)


def plan_mean(x: Value, axis: Axes = None, keepdims: bool = False) -> Value:
    """Plan an average: a sum, then a division."""
    require_tensors("mean", x)
    count = prod(x._layout.shape[one] for one in axes_of("mean", x._layout, axis))
    if count == 0:
        raise ArgumentValueError("mean: of an empty slice")
    result = averaged(x._dtype)
    total = plan_total(x, accumulated(result), axis, keepdims)
    return plan_conversion(plan_binary(DIVIDE, total, count), result)


def averaged(dtype: DType) -> DType:
    """Return the dtype of averages: f64 for integers."""
    return dtype if dtype.kind == "float" else f64


@remembered(plan_mean)
def mean(
    x: Tensor,
    axis: Axes = None,
    keepdims: bool = False,
    *,
    out: Tensor | None = None,
    stream: StreamLike | None = None,
) -> Tensor:
    """Average over axes, summed in f32 or f64."""
    return run(plan_mean(x, axis, keepdims), out, stream)


@remembered(partial(plan_reduction, LOGSUMEXP))
def logsumexp(
    x: Tensor,
    axis: Axes = None,
    keepdims: bool = False,
    *,
    out: Tensor | None = None,
    stream: StreamLike | None = None,
) -> Tensor:
    """Return the logarithm of the sum of exp(x) over axes.

    It does not overflow.
    """
    return reduced(LOGSUMEXP, x, axis, keepdims, out, stream)


@remembered(partial(plan_reduction, MIN))
def min(  # numpy's name
    x: Tensor,
    axis: Axes = None,
    keepdims: bool = False,
    *,
    out: Tensor | None = None,
    stream: StreamLike | None = None,
) -> Tensor:
    """Return the smallest element over axes; NaN if there is a NaN."""
    return reduced(MIN, x, axis, keepdims, out, stream)


@remembered(partial(plan_reduction, MAX))
def max(  # numpy's name
    x: Tensor,
    axis: Axes = None,
    keepdims: bool = False,
    *,
    out: Tensor | None = None,
    stream: StreamLike | None = None,
) -> Tensor:
    """Return the largest element over axes; NaN if there is a NaN."""
    return reduced(MAX, x, axis, keepdims, out, stream)


@remembered(partial(plan_reduction, ARGMIN))
def argmin(
    x: Tensor,
    axis: int | None = None,
    keepdims: bool = False,
    *,
    out: Tensor | None = None,
    stream: StreamLike | None = None,
) -> Tensor:
    """Return the u32 index of the first smallest element along an axis.

    Without an axis, the index counts all elements.
    """
    return reduced(ARGMIN, x, axis, keepdims, out, stream)


@remembered(partial(plan_reduction, ARGMAX))
def argmax(
    x: Tensor,
    axis: int | None = None,
    keepdims: bool = False,
    *,
    out: Tensor | None = None,
    stream: StreamLike | None = None,
) -> Tensor:
    """Return the u32 index of the first largest element along an axis.

    Without an axis, the index counts all elements.
    """
    return reduced(ARGMAX, x, axis, keepdims, out, stream)


__all__ = [
    "argmax",
    "argmin",
    "logsumexp",
    "max",
    "mean",
    "min",
    "sum",
]
