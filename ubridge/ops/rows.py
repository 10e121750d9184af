"""Operations along an axis of tensors: softmax, norms, sorting, and rotary positions."""

from __future__ import annotations

from math import prod
from typing import Any

from ubridge.core.layout import Layout
from ubridge.core.operand_checks import (
    axis_of,
    require_indices_of_u32,
    require_number,
    require_one_kind,
    whole_number,
)
from ubridge.core.operation import Op
from ubridge.definitions.attention import ROPE, ROPE_I, ROPE_THD
from ubridge.definitions.rows import (
    ARGSORT,
    ARGSORT_DESCENDING,
    GROUP_NORM,
    LAYER_NORM,
    LOG_SOFTMAX,
    RMS_NORM,
    SOFTMAX,
    SORT,
    SORT_DESCENDING,
    require_groups,
)
from ubridge.ops.elementwise import plan_in_order
from ubridge.ops.engine import Plan, Value, ask, contiguous, run
from ubridge.ops.remembering import remembered
from ubridge.ops.results import require_tensors
from ubridge.ops.strided import Tensor
from uhal.dtypes import u32
from uhal.errors import ArgumentValueError
from uhal.interop import StreamLike


def _of_rows(
    op: Op,
    operands: tuple[Value, ...],
    dtype: Any = None,
    numbers: tuple[Any, ...] = (),
    **attributes: Any,
) -> Plan:
    """Plan an operation on each row of the first operand, with weights of a row's length."""
    x, *weights = operands
    shape = x._layout.shape
    if not shape:
        raise ArgumentValueError(f"{op.name}: expected at least one axis, got shape ()")
    columns = shape[-1]
    x, lies = contiguous(x), (x._layout.size // columns if columns else 0, columns)
    rows = x._viewed(Layout.contiguous(lies, x._layout.start_offset))
    whole = Layout.contiguous(shape)
    return ask(op, (rows, *weights), dtype or x._dtype, whole, numbers, **attributes)


def _along(op: Op, x: Value, axis: int, dtype: Any = None, **attributes: Any) -> Value:
    """Plan an operation along any axis, swapped with the last axis before and after."""
    require_tensors(op.name, x)
    axis = axis_of(op.name, x._layout, axis)
    last = x._layout.rank - 1
    if axis == last:
        return _of_rows(op, (x,), dtype, **attributes)
    turned = _of_rows(op, (x._viewed(x._layout.transpose(axis, last)),), dtype, **attributes)
    return turned._viewed(turned._layout.transpose(axis, last))


def plan_softmax(x: Value, axis: int = -1) -> Value:
    """Plan a softmax along an axis."""
    return _along(SOFTMAX, x, axis)


@remembered(plan_softmax)
def softmax(
    x: Tensor,
    axis: int = -1,
    *,
    out: Tensor | None = None,
    stream: StreamLike | None = None,
) -> Tensor:
    """Return exp(x) divided by the sum of exp(x) along an axis."""
    return run(plan_softmax(x, axis), out, stream)


def plan_log_softmax(x: Value, axis: int = -1, compensated: bool = False) -> Value:
    """Plan the logarithm of the softmax along an axis."""
    return _along(LOG_SOFTMAX, x, axis, compensated=bool(compensated))


@remembered(plan_log_softmax)
def log_softmax(
    x: Tensor,
    axis: int = -1,
    *,
    compensated: bool = False,
    out: Tensor | None = None,
    stream: StreamLike | None = None,
) -> Tensor:
    """Return x - log(sum(exp(x))) along an axis.

    `compensated` sums with Knuth's two-sum, whose error does not grow with the axis; GCUs refuse
    it.
    """
    return run(plan_log_softmax(x, axis, compensated), out, stream)


def plan_argsort(x: Value, axis: int = -1, descending: bool = False) -> Value:
    """Plan the indices that sort an axis."""
    require_tensors(ARGSORT.name, x)
    axis = axis_of(ARGSORT.name, x._layout, axis)
    require_indices_of_u32(ARGSORT.name, x._layout.shape[axis])
    return _along(ARGSORT_DESCENDING if descending else ARGSORT, plan_in_order(x), axis, u32)


@remembered(plan_argsort)
def argsort(
    x: Tensor,
    axis: int = -1,
    descending: bool = False,
    *,
    out: Tensor | None = None,
    stream: StreamLike | None = None,
) -> Tensor:
    """Return the indices that sort an axis, as u32.

    Equal elements keep their order, also in descending order, and NaN is the largest; GCUs
    guarantee neither. Rows too long for one block are sorted in runs, which are joined in pairs.
    This takes log2(runs) more launches, and memory for another result.
    """
    return run(plan_argsort(x, axis, descending), out, stream)


def plan_elements_in_order(x: Value, axis: int = -1, descending: bool = False) -> Value:
    """Plan the elements of an axis in order, of a dtype with kernels."""
    return _along(SORT_DESCENDING if descending else SORT, x, axis)


def plan_norm(op: Op, x: Value, *weights: Value, epsilon: float) -> Plan:
    """Plan a norm along the last axis."""
    require_tensors(op.name, x, *weights)
    require_number(f"{op.name}, epsilon", epsilon)
    require_one_kind(op.name, x, *weights)
    return _of_rows(op, (x, *map(contiguous, weights)), None, (epsilon,))


def plan_rms_norm(x: Value, weight: Value, epsilon: float = 1e-5) -> Plan:
    """Plan an RMS norm along the last axis."""
    return plan_norm(RMS_NORM, x, weight, epsilon=epsilon)


def plan_layer_norm(x: Value, weight: Value, bias: Value, epsilon: float = 1e-5) -> Plan:
    """Plan a layer norm along the last axis."""
    return plan_norm(LAYER_NORM, x, weight, bias, epsilon=epsilon)


@remembered(plan_rms_norm)
def rms_norm(
    x: Tensor,
    weight: Tensor,
    epsilon: float = 1e-5,
    *,
    out: Tensor | None = None,
    stream: StreamLike | None = None,
) -> Tensor:
    """Return the RMS norm along the last axis.

    The result is `x / sqrt(mean(x * x) + epsilon) * weight`.
    """
    return run(plan_rms_norm(x, weight, epsilon), out, stream)


@remembered(plan_layer_norm)
def layer_norm(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    epsilon: float = 1e-5,
    *,
    out: Tensor | None = None,
    stream: StreamLike | None = None,
) -> Tensor:
    """Return the layer norm along the last axis.

    The result is `(x - mean) / sqrt(variance + epsilon) * weight + bias`.
    """
    return run(plan_layer_norm(x, weight, bias, epsilon), out, stream)


def plan_group_norm(
    x: Value, weight: Value, bias: Value, groups: int, epsilon: float = 1e-5
) -> Plan:
    """Plan a layer norm of groups of channels, the second axis."""
    name = GROUP_NORM.name
    require_tensors(name, x, weight, bias)
    require_number(f"{name}, epsilon", epsilon)
    groups = whole_number(f"{name}, groups", groups, 1)
    require_groups(name, x.shape, groups)
    require_one_kind(name, x, weight, bias)
    x, whole = contiguous(x), Layout.contiguous(x.shape)
    joined = Layout.contiguous((*x.shape[:2], prod(x.shape[2:])), x._layout.start_offset)
    given = (x._viewed(joined), contiguous(weight), contiguous(bias))
    return ask(GROUP_NORM, given, x._dtype, whole, (epsilon,), groups=groups)


@remembered(plan_group_norm)
def group_norm(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    groups: int,
    epsilon: float = 1e-5,
    *,
    out: Tensor | None = None,
    stream: StreamLike | None = None,
) -> Tensor:
    """Return the layer norm of each group of channels.

    Each channel is scaled and shifted.

    `x` is (batch, channels, …), `weight` and `bias` are (channels,).
    """
    return run(plan_group_norm(x, weight, bias, groups, epsilon), out, stream)


def plan_rope(
    x: Value, cos: Value, sin: Value, interleaved: bool = False, heads_last: bool = False
) -> Plan:
    """Plan a rotation of pairs of the last axis by angles of their positions."""
    if interleaved and heads_last:
        raise ArgumentValueError("rope: no kernel takes interleaved pairs with heads last")
    op = ROPE_I if interleaved else ROPE_THD if heads_last else ROPE
    require_tensors(op.name, x, cos, sin)
    require_one_kind(op.name, x, cos, sin)
    return ask(op, tuple(map(contiguous, (x, cos, sin))), x._dtype)


@remembered(plan_rope)
def rope(
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    *,
    interleaved: bool = False,
    heads_last: bool = False,
    out: Tensor | None = None,
    stream: StreamLike | None = None,
) -> Tensor:
    """Return x with pairs of its last axis rotated.

    The angles depend on the pairs' positions.

    `x` is (batch, heads, positions, width), or with `heads_last` (batch, positions, heads, width).
    `cos` and `sin` are (positions, width / 2), or (batch, positions, width / 2). A pair is two
    elements half a width apart; with `interleaved`, two neighbours.
    """
    return run(plan_rope(x, cos, sin, interleaved, heads_last), out, stream)


__all__ = [
    "argsort",
    "group_norm",
    "layer_norm",
    "log_softmax",
    "rms_norm",
    "rope",
    "softmax",
]
