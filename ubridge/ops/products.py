"""Products of tensors: matrices by matrices, attention, and joins of keys and values."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from ubridge.core.layout import Layout, Shape
from ubridge.core.operand_checks import axis_of, one_shape, require_one_device, require_one_kind
from ubridge.core.product import MatmulChoice
from ubridge.core.promotion import promoted
from ubridge.definitions.attention import ATTENTION, KV_CONCAT, scores_of
from ubridge.definitions.calls import named
from ubridge.definitions.products import MATMUL, multiplied
from ubridge.ops.elementwise import plan_conversion
from ubridge.ops.engine import Plan, Value, ask, contiguous, filled, run
from ubridge.ops.remembering import remembered
from ubridge.ops.results import require_tensors
from ubridge.ops.strided import Tensor
from uhal import DType
from uhal.dtypes import bool_
from uhal.errors import ArgumentTypeError, ArgumentValueError
from uhal.interop import StreamLike


def plan_matmul(x: Value, y: Value, batch_invariant: bool = False) -> Plan:
    """Plan a matrix product of the last two axes; leading axes are broadcast."""
    require_tensors(MATMUL.name, x, y)
    require_one_device(MATMUL.name, x, y)
    if not x.shape or not y.shape:
        raise ArgumentValueError(
            "matmul: input operand does not have enough dimensions (has 0, gufunc core with "
            "signature (n?,k),(k,m?)->(n?,m?) requires 1)"
        )
    dtype = promoted(MATMUL.name, x._dtype, y._dtype)
    if dtype is bool_:
        raise ArgumentTypeError(
            'matmul: expected numbers, got bool. Cast first, for example x.astype("f32").'
        )
    flags = {"batch_invariant": True} if batch_invariant else {}
    return plan_product(plan_conversion(x, dtype), plan_conversion(y, dtype), dtype, **flags)


def plan_product(x: Value, y: Value, dtype: DType, **flags: Any) -> Plan:
    """Plan a matrix product of elements of one dtype."""
    left, right, result = _matrices(x._layout, y._layout)
    if result.size and left.shape[-1] == 0:
        return filled(x, dtype, result.shape, 0)
    return ask(MATMUL, (x._viewed(left), y._viewed(right)), dtype, result, **flags)


@lru_cache(maxsize=4096)
def _matrices(x: Layout, y: Layout) -> tuple[Layout, Layout, Layout]:
    """Return both operands as matrices of one batch, and the result's layout."""
    batch, m, k, n = multiplied(x.shape, y.shape)
    left = x if x.rank > 1 else x.expanded(0)
    right = y if y.rank > 1 else y.expanded(1)
    rows = (m,) if x.rank > 1 else ()
    columns = (n,) if y.rank > 1 else ()
    return (
        left.broadcast_to((*batch, m, k)),
        right.broadcast_to((*batch, k, n)),
        Layout.contiguous((*batch, *rows, *columns)),
    )


@remembered(plan_matmul)
def matmul(
    x: Tensor,
    y: Tensor,
    *,
    batch_invariant: bool = False,
    out: Tensor | None = None,
    stream: StreamLike | None = None,
) -> Tensor:
    """Return the matrix product of the last two axes.

    Leading axes are broadcast.

    An operand of one axis is a row on the left and a column on the right, as in numpy. Transposed
    views cost no copy where kernels take strides.

    The order of a result's sum may depend on the number of rows and columns. With `batch_invariant`
    this order is fixed, so a row gives the same bits in every batch; no library is called then.
    """
    return run(plan_matmul(x, y, batch_invariant), out, stream)


@named
def matmul_choice(x: Tensor, y: Tensor) -> MatmulChoice:
    """Say which kernel `matmul(x, y)` goes to, and why; nothing is launched.

    `DeviceExecutor.of(device).matmul_launches` counts the products of each kernel.
    """
    return x._executor.explain(plan_matmul(x, y).question)


def plan_attention(
    query: Value,
    key: Value,
    value: Value,
    mask: Value | None = None,
    causal: bool = False,
    scale: float | None = None,
) -> Plan:
    """Plan `softmax(query @ key.mT * scale + mask) @ value`."""
    operands = [query, key, value] if mask is None else [query, key, value, mask]
    require_tensors(ATTENTION.name, *operands)
    require_one_kind(ATTENTION.name, *operands)
    scores = scores_of(query.shape, key.shape, value.shape)
    given = [contiguous(one) for one in (query, key, value)]
    if mask is not None:
        given.append(_mask(mask, scores))
    factor = (query.shape[-1] or 1) ** -0.5 if scale is None else scale
    return ask(ATTENTION, given, query._dtype, None, (factor,), causal=bool(causal))


def _mask(mask: Value, scores: Shape) -> Value:
    """The mask in the form for kernels: contiguous rows for each query and key."""
    if one_shape(ATTENTION.name, mask.shape, scores) != scores:
        raise ArgumentValueError(
            f"attention: expected a mask that broadcasts to {scores}, got {mask.shape}"
        )
    spread = mask._viewed(mask._layout.broadcast_to(scores))
    rows = Layout(scores[2:], spread._layout.strides[2:])
    return spread if rows.is_contiguous else contiguous(spread)


@named
def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    mask: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
    out: Tensor | None = None,
    stream: StreamLike | None = None,
) -> Tensor:
    """Return `softmax(query @ key.mT * scale + mask) @ value`.

    Queries are (batch, heads, queries, width), keys and values (batch, kv heads, keys, width), the
    mask broadcasts to (batch, heads, queries, keys). `scale` is by default 1 / sqrt(width). With
    `causal` the last query sees every key, and each query sees one key less than the next query. A
    query gets zeros if the mask hides all keys by -inf.
    """
    return run(plan_attention(query, key, value, mask, causal, scale), out, stream)


def plan_kv_concat(x: Value, y: Value, axis: int) -> Plan:
    """Plan a join of two tensors along an axis."""
    require_tensors(KV_CONCAT.name, x, y)
    require_one_kind(KV_CONCAT.name, x, y)
    axis = axis_of(KV_CONCAT.name, x._layout, axis)
    return ask(KV_CONCAT, (contiguous(x), contiguous(y)), x._dtype, axis=axis)


@remembered(plan_kv_concat)
def kv_concat(
    x: Tensor,
    y: Tensor,
    axis: int,
    *,
    out: Tensor | None = None,
    stream: StreamLike | None = None,
) -> Tensor:
    """Join two tensors of one dtype along an axis in one launch."""
    return run(plan_kv_concat(x, y, axis), out, stream)


__all__ = [
    "attention",
    "kv_concat",
    "matmul",
    "matmul_choice",
]
