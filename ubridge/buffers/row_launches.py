"""The floor's operations along the last axis: softmax, norms, rotary positions, sorting.

Their kernels take contiguous operands; what is strided is copied first.
"""

from __future__ import annotations

from math import prod

from ubridge.buffers import launches
from ubridge.buffers.indexed_launches import gathered
from ubridge.core.layout import Layout
from ubridge.core.op_table import OPS, Op
from ubridge.device.executor import DeviceExecutor
from uhal import DeviceBuffer
from uhal.dtypes import u32
from uhal.errors import ArgumentValueError
from uhal.interop import StreamLike

_LAYER_NORM = OPS["layer_norm"]
_LOG_SOFTMAX = OPS["log_softmax"]
_RMS_NORM = OPS["rms_norm"]
_SOFTMAX = OPS["softmax"]


def launch_softmax(
    buffer: DeviceBuffer,
    layout: Layout,
    *,
    out: DeviceBuffer | None = None,
    stream: StreamLike | None = None,
    executor: DeviceExecutor | None = None,
) -> DeviceBuffer:
    """Divide the powers of e along the last axis by their sum."""
    at = executor or DeviceExecutor.of(buffer.device)
    rows, columns = rows_of(_SOFTMAX, layout)
    out = target(at, _SOFTMAX, buffer, layout.size, out, stream)
    if layout.size:
        x = gathered(at, _SOFTMAX, "x", buffer, layout, stream)
        at.lowering.softmax(x, out, rows, columns, stream)
    return out


def launch_log_softmax(
    buffer: DeviceBuffer,
    layout: Layout,
    *,
    compensated: bool = False,
    out: DeviceBuffer | None = None,
    stream: StreamLike | None = None,
    executor: DeviceExecutor | None = None,
) -> DeviceBuffer:
    """Take the logarithm of the softmax along the last axis without taking that softmax.

    `compensated` keeps what each addition to a row's sum loses (Knuth's two-sum), so that the
    error does not grow with the row; GCUs refuse it.
    """
    at = executor or DeviceExecutor.of(buffer.device)
    rows, columns = rows_of(_LOG_SOFTMAX, layout)
    out = target(at, _LOG_SOFTMAX, buffer, layout.size, out, stream)
    if layout.size:
        x = gathered(at, _LOG_SOFTMAX, "x", buffer, layout, stream)
        at.lowering.log_softmax(x, out, rows, columns, compensated, stream)
    return out


def launch_norm(
    buffer: DeviceBuffer,
    layout: Layout,
    weight: DeviceBuffer,
    bias: DeviceBuffer | None,
    epsilon: float,
    *,
    out: DeviceBuffer | None = None,
    stream: StreamLike | None = None,
    executor: DeviceExecutor | None = None,
) -> DeviceBuffer:
    """Scale the last axis to unit size and by `weight`: RMS norm, or layer norm with a `bias`."""
    op = _RMS_NORM if bias is None else _LAYER_NORM
    at = executor or DeviceExecutor.of(buffer.device)
    rows, columns = rows_of(op, layout)
    launches.require_size(op, "weight", weight, columns)
    if bias is not None:
        launches.require_size(op, "bias", bias, columns)
    out = target(at, op, buffer, layout.size, out, stream)
    if layout.size:
        x = gathered(at, op, "x", buffer, layout, stream)
        at.lowering.norm(op, x, weight, bias, out, rows, columns, epsilon, stream)
    return out


def launch_argsort(
    kernel: Op | str,
    buffer: DeviceBuffer,
    layout: Layout,
    *,
    out: DeviceBuffer | None = None,
    stream: StreamLike | None = None,
    executor: DeviceExecutor | None = None,
) -> DeviceBuffer:
    """Give the places of the last axis' elements in order, as u32; equal ones in any order."""
    op = launches.named(kernel)
    at = executor or DeviceExecutor.of(buffer.device)
    rows, columns = rows_of(op, layout)
    if out is None:
        out = at.allocate(layout.size, u32, stream)
    elif out.size < layout.size:
        launches.require_size(op, "out", out, layout.size)
    if layout.size:
        x = gathered(at, op, "x", buffer, layout, stream)
        at.lowering.argsort(op, x, out, rows, columns, stream)
    return out


def launch_rope(
    kernel: Op | str,
    buffer: DeviceBuffer,
    layout: Layout,
    cos: DeviceBuffer,
    sin: DeviceBuffer,
    *,
    per_batch: bool = False,
    out: DeviceBuffer | None = None,
    stream: StreamLike | None = None,
    executor: DeviceExecutor | None = None,
) -> DeviceBuffer:
    """Rotate pairs of the last axis by angles whose `cos` and `sin` are given for each position.

    They hold (positions, width / 2) elements, or with `per_batch` as many for each batch. `rope`
    and `rope_i` take (batch, heads, positions, width), `rope_thd` (batch, positions, heads, width).
    """
    op = launches.named(kernel)
    at = executor or DeviceExecutor.of(buffer.device)
    if layout.rank != 4 or layout.shape[3] % 2:
        raise ArgumentValueError(
            f"{op.name}: expected four axes, the last of an even length, got {layout.shape}"
        )
    positions = layout.shape[1 if op.name == "rope_thd" else 2]
    angles = positions * layout.shape[3] // 2 * (layout.shape[0] if per_batch else 1)
    launches.require_size(op, "cos", cos, angles)
    launches.require_size(op, "sin", sin, angles)
    out = target(at, op, buffer, layout.size, out, stream)
    if layout.size:
        x = gathered(at, op, "x", buffer, layout, stream)
        at.lowering.rope(op, x, layout.shape, cos, sin, per_batch, out, stream)
    return out


def rows_of(op: Op, layout: Layout) -> tuple[int, int]:
    """Return how many rows there are and how long they are."""
    if not layout.shape:
        raise ArgumentValueError(f"{op.name}: expected at least one axis, got shape ()")
    columns = layout.shape[-1]
    return (layout.size // columns if columns else prod(layout.shape[:-1])), columns


def target(
    at: DeviceExecutor,
    op: Op,
    like: DeviceBuffer,
    size: int,
    out: DeviceBuffer | None,
    stream: StreamLike | None,
) -> DeviceBuffer:
    """Return `out`, large enough, or a new buffer."""
    if out is None:
        return at.allocate(size, like.dtype, stream)
    if out.size < size:
        launches.require_size(op, "out", out, size)
    return out
