"""`launch_*` of fused operations element by element: gates and masks."""

from __future__ import annotations

from ubridge.buffers import launches
from ubridge.buffers.indexed_launches import gathered
from ubridge.core.layout import Layout
from ubridge.core.op_table import OPS
from ubridge.core.question import Question
from ubridge.device.executor import DeviceExecutor, Executor
from uhal import DeviceBuffer
from uhal.interop import StreamLike

_MASKED_FILL = OPS["masked_fill"]
_SILU_MUL = OPS["silu_mul"]


def launch_silu_mul(
    gate: DeviceBuffer,
    gate_layout: Layout,
    up: DeviceBuffer,
    up_layout: Layout,
    *,
    out: DeviceBuffer | None = None,
    stream: StreamLike | None = None,
    executor: Executor | None = None,
) -> DeviceBuffer:
    """Compute `silu(gate) * up`, rounded once; strided operands are copied first."""
    at = executor or DeviceExecutor.of(gate.device)
    launches.require_one_shape(_SILU_MUL, gate_layout, up_layout)
    whole = Layout.contiguous(gate_layout.shape)
    launches.require_room(_SILU_MUL, out, whole.size)
    x = gathered(at, _SILU_MUL, "x", gate, gate_layout, stream)
    y = gathered(at, _SILU_MUL, "y", up, up_layout, stream)
    question = launches.of_each(_SILU_MUL, gate.dtype, (whole, whole), gate.dtype)
    return launches.enqueued(at, question, stream, out, x, y)


def launch_masked_fill(
    buffer: DeviceBuffer,
    layout: Layout,
    mask: DeviceBuffer,
    mask_layout: Layout,
    value: float,
    *,
    out: DeviceBuffer | None = None,
    stream: StreamLike | None = None,
    executor: Executor | None = None,
) -> DeviceBuffer:
    """Return `value` where a mask of u8 is not 0, and `x` elsewhere; both have one shape."""
    at = executor or DeviceExecutor.of(buffer.device)
    launches.require_one_shape(_MASKED_FILL, layout, mask_layout)
    x = launches.checked_operand(_MASKED_FILL, "x", buffer, layout)
    masked = launches.checked_operand(_MASKED_FILL, "mask", mask, mask_layout)
    launches.require_room(_MASKED_FILL, out, layout.size)
    whole = Layout.contiguous(layout.shape)
    question = Question(
        _MASKED_FILL,
        ((buffer.dtype, layout.from_start), (mask.dtype, mask_layout.from_start)),
        (buffer.dtype, whole),
        numbers=1,
    )
    return launches.enqueued(at, question, stream, out, x, masked, value)


__all__ = ["launch_masked_fill", "launch_silu_mul"]
