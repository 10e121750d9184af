"""Several operations of transformers in one pass over memory: gates and masks, on tensors."""

from __future__ import annotations

from typing import Any

from ubridge.core.operand_checks import require_one_device, require_one_kind
from ubridge.core.promotion import checked_number, with_number
from ubridge.definitions.elementwise import MASKED_FILL, SILU_MUL
from ubridge.ops.choices import plan_where
from ubridge.ops.elementwise import broadcast, plan_conversion
from ubridge.ops.engine import Plan, Value, contiguous, of_each, run
from ubridge.ops.remembering import remembered
from ubridge.ops.results import require_tensors
from ubridge.ops.strided import Tensor
from uhal.dtypes import bool_
from uhal.errors import ArgumentTypeError
from uhal.interop import StreamLike


def plan_silu_mul(gate: Value, up: Value) -> Plan:
    """Plan `silu(gate) * up`; strided operands are copied first."""
    require_tensors(SILU_MUL.name, gate, up)
    require_one_kind(SILU_MUL.name, gate, up)
    return of_each(SILU_MUL, (contiguous(gate), contiguous(up)), gate._dtype)


@remembered(plan_silu_mul)
def silu_mul(
    gate: Tensor,
    up: Tensor,
    *,
    out: Tensor | None = None,
    stream: StreamLike | None = None,
) -> Tensor:
    """Return `silu(gate) * up` of one shape and dtype, rounded once."""
    return run(plan_silu_mul(gate, up), out, stream)


def plan_masked_fill(x: Value, mask: Value, value: Any) -> Plan:
    """Plan a number where the mask is not 0, else `x`."""
    require_tensors(MASKED_FILL.name, x, mask)
    require_one_device(MASKED_FILL.name, x, mask)
    if with_number(MASKED_FILL.name, x._dtype, value) is not x._dtype:
        raise ArgumentTypeError(
            f"masked_fill: expected a value that {x._dtype} holds, got {value!r}; astype the tensor"
        )
    number = checked_number(MASKED_FILL.name, x._dtype, value)
    if x._dtype.name not in MASKED_FILL.dtypes:
        return plan_where(mask, number, x)
    chosen = plan_conversion(mask, bool_)
    return of_each(MASKED_FILL, broadcast(MASKED_FILL.name, x, chosen), x._dtype, (number,))


@remembered(plan_masked_fill)
def masked_fill(
    x: Tensor,
    mask: Tensor,
    value: Any,
    *,
    out: Tensor | None = None,
    stream: StreamLike | None = None,
) -> Tensor:
    """Return a number where the mask is not 0, else `x`.

    The result has the dtype of `x`.

    The mask and `x` are broadcast to one shape. Raises `ArgumentTypeError` for a number that the
    dtype of `x` does not hold.
    """
    return run(plan_masked_fill(x, mask, value), out, stream)


__all__ = [
    "masked_fill",
    "silu_mul",
]
