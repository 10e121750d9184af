"""`launch_*` of operations along the last axis: softmax, norms, rotary positions, sorting.

Their kernels take contiguous operands; a strided operand is copied first.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod

from ubridge.buffers import launches
from ubridge.buffers.indexed_launches import gathered
from ubridge.core.layout import Layout
from ubridge.core.op_table import OPS, Op
from ubridge.core.operand_checks import require_indices_of_u32
from ubridge.core.question import Question
from ubridge.device.executor import DeviceExecutor, Executor
from uhal import DeviceBuffer, DType
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
    executor: Executor | None = None,
) -> DeviceBuffer:
    """Compute exp(x) / sum(exp(x)) along the last axis."""
    at = executor or DeviceExecutor.of(buffer.device)
    rows, columns = rows_of(_SOFTMAX, layout)
    launches.require_room(_SOFTMAX, out, layout.size)
    x = gathered(at, _SOFTMAX, "x", buffer, layout, stream)
    question = of_rows(_SOFTMAX, buffer.dtype, rows, columns)
    return launches.enqueued(at, question, stream, out, x)


def launch_log_softmax(
    buffer: DeviceBuffer,
    layout: Layout,
    *,
    compensated: bool = False,
    out: DeviceBuffer | None = None,
    stream: StreamLike | None = None,
    executor: Executor | None = None,
) -> DeviceBuffer:
    """Compute the logarithm of the softmax along the last axis, without computing the softmax.

    `compensated` keeps what each addition to a row's sum loses (Knuth's two-sum), so that the
    error does not grow with the row; GCUs refuse it.
    """
    at = executor or DeviceExecutor.of(buffer.device)
    rows, columns = rows_of(_LOG_SOFTMAX, layout)
    launches.require_room(_LOG_SOFTMAX, out, layout.size)
    x = gathered(at, _LOG_SOFTMAX, "x", buffer, layout, stream)
    attributes = (("compensated", compensated),)
    question = of_rows(_LOG_SOFTMAX, buffer.dtype, rows, columns, attributes=attributes)
    return launches.enqueued(at, question, stream, out, x)


def launch_norm(
    buffer: DeviceBuffer,
    layout: Layout,
    weight: DeviceBuffer,
    bias: DeviceBuffer | None,
    epsilon: float,
    *,
    out: DeviceBuffer | None = None,
    stream: StreamLike | None = None,
    executor: Executor | None = None,
) -> DeviceBuffer:
    """Scale the last axis to unit size and by `weight`: RMS norm, or layer norm with a `bias`."""
    op = _RMS_NORM if bias is None else _LAYER_NORM
    at = executor or DeviceExecutor.of(buffer.device)
    rows, columns = rows_of(op, layout)
    launches.require_size(op, "weight", weight, columns)
    if bias is not None:
        launches.require_size(op, "bias", bias, columns)
    launches.require_room(op, out, layout.size)
    x = gathered(at, op, "x", buffer, layout, stream)
    weights = (weight,) if bias is None else (weight, bias)
    question = of_rows(op, buffer.dtype, rows, columns, len(weights), 1)
    return launches.enqueued(at, question, stream, out, x, *weights, epsilon)


def launch_argsort(
    kernel: Op | str,
    buffer: DeviceBuffer,
    layout: Layout,
    *,
    out: DeviceBuffer | None = None,
    stream: StreamLike | None = None,
    executor: Executor | None = None,
) -> DeviceBuffer:
    """Compute the indices that sort the last axis, as u32; equal elements as in `nn.argsort`."""
    op = launches.named(kernel)
    at = executor or DeviceExecutor.of(buffer.device)
    rows, columns = rows_of(op, layout)
    require_indices_of_u32(op.name, columns)
    launches.require_room(op, out, layout.size)
    x = gathered(at, op, "x", buffer, layout, stream)
    question = of_rows(op, buffer.dtype, rows, columns, result=u32)
    return launches.enqueued(at, question, stream, out, x)


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
    executor: Executor | None = None,
) -> DeviceBuffer:
    """Rotate pairs of the last axis by angles, given as `cos` and `sin` for each position.

    These hold (positions, width / 2) elements, or with `per_batch` as many for each batch. `rope`
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
    launches.require_room(op, out, layout.size)
    x = gathered(at, op, "x", buffer, layout, stream)
    whole = (buffer.dtype, Layout.contiguous(layout.shape))
    batches = layout.shape[:1] if per_batch else ()
    of_angles = (cos.dtype, Layout.contiguous((*batches, positions, layout.shape[3] // 2)))
    question = Question(op, (whole, of_angles, of_angles), whole)
    return launches.enqueued(at, question, stream, out, x, cos, sin)


def rows_of(op: Op, layout: Layout) -> tuple[int, int]:
    """Return how many rows there are and how long they are."""
    if not layout.shape:
        raise ArgumentValueError(f"{op.name}: expected at least one axis, got shape ()")
    columns = layout.shape[-1]
    return (layout.size // columns if columns else prod(layout.shape[:-1])), columns


@lru_cache(maxsize=4096)
def of_rows(
    op: Op,
    dtype: DType,
    rows: int,
    columns: int,
    weights: int = 0,
    numbers: int = 0,
    result: DType | None = None,
    attributes: tuple[tuple[str, object], ...] = (),
) -> Question:
    """Ask for an operation on each contiguous row, with as many weights of a row's length."""
    whole, row = Layout.contiguous((rows, columns)), (dtype, Layout.contiguous(columns))
    operands = ((dtype, whole), *(row for _ in range(weights)))
    return Question(op, operands, (result or dtype, whole), attributes, numbers)
