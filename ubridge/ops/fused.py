"""Several operations of transformers in one pass over memory: gates and masks, on tensors."""

from __future__ import annotations

from typing import Any

from ubridge.buffers import fused_launches
from ubridge.core.calls import named
from ubridge.core.op_table import OPS
from ubridge.core.operand_checks import one_shape, require_one_device, require_one_kind
from ubridge.core.promotion import checked_number, with_number
from ubridge.ops import choices, elementwise
from ubridge.ops.results import delivered, require_tensors
from ubridge.ops.strided import Tensor
from uhal import DeviceBuffer
from uhal.dtypes import bool_
from uhal.errors import ArgumentTypeError
from uhal.interop import StreamLike

_MASKED_FILL = OPS["masked_fill"]
_SILU_MUL = OPS["silu_mul"]


@named
def silu_mul(
    gate: Tensor,
    up: Tensor,
    *,
    out: Tensor | None = None,
    stream: StreamLike | None = None,
) -> Tensor:
    """Return `silu(gate) * up` of one shape and dtype, rounded once."""
    require_tensors("silu_mul", gate, up)
    require_one_kind("silu_mul", gate, up)

    def enqueue(output: DeviceBuffer | None) -> DeviceBuffer:
        return fused_launches.launch_silu_mul(
            gate._buffer, gate._layout, up._buffer, up._layout,
            out=output, stream=stream, executor=gate._executor,
        )  # fmt: skip

    return delivered(_SILU_MUL, gate.shape, gate.dtype, out, (gate, up), stream, enqueue)


@named
def masked_fill(
    x: Tensor,
    mask: Tensor,
    value: Any,
    *,
    out: Tensor | None = None,
    stream: StreamLike | None = None,
) -> Tensor:
    """Return a number where the mask is not 0, else `x`, in the dtype of `x`.

    The mask and `x` are broadcast to one shape. Raises `ArgumentTypeError` for a number that the
    dtype of `x` does not hold.
    """
    require_tensors("masked_fill", x, mask)
    require_one_device("masked_fill", x, mask)
    if with_number("masked_fill", x.dtype, value) is not x.dtype:
        raise ArgumentTypeError(
            f"masked_fill: expected a value that {x.dtype} holds, got {value!r}; astype the tensor"
        )
    number = checked_number("masked_fill", x.dtype, value)
    if x.dtype.name not in _MASKED_FILL.dtypes:
        return choices.where(mask, number, x, out=out, stream=stream)
    chosen = elementwise.converted(mask, bool_, stream=stream)
    shape = one_shape("masked_fill", x.shape, mask.shape)
    layouts = [one._layout.broadcast_to(shape) for one in (x, chosen)]

    def enqueue(output: DeviceBuffer | None) -> DeviceBuffer:
        return fused_launches.launch_masked_fill(
            x._buffer, layouts[0], chosen._buffer, layouts[1], number,
            out=output, stream=stream, executor=x._executor,
        )  # fmt: skip

    return delivered(_MASKED_FILL, shape, x.dtype, out, (x, chosen), stream, enqueue)


__all__ = ["masked_fill", "silu_mul"]
