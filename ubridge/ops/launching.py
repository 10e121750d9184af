"""`launch_*`: operations on buffers with layouts, for frameworks that have tensors of their own.

Each function enqueues one operation and returns the buffer of its result. A layout selects elements
of a buffer; kernels handle strides and broadcasts. A buffer has the dtype; nothing is promoted,
cast or broadcast unless the caller asks for it.

`out` is a buffer that the result is written to from its first element, in row-major order; without
`out` a buffer is allocated. An elementwise operation may overwrite its operands; an operation on
rows may overwrite its first operand. The result and this operand must begin at the same address,
with the same layout and item size. With any other overlap the result is written through a
temporary. `stream` is by default the device's default stream. An operation is named as in `OPS`, or
is an `Op`. Wrong dtypes, sizes and devices are refused before anything is launched.
"""

from __future__ import annotations

from ubridge.core.layout import Layout
from ubridge.core.operand_checks import axes_of, require_number
from ubridge.core.operation import Op
from ubridge.definitions.attention import ROPE_I, ROPE_THD, angles_of
from ubridge.definitions.elementwise import (
    AFFINE,
    ASTYPE,
    COMPARISON,
    MASKED_FILL,
    SILU_MUL,
    WHERE,
    WITH_NUMBER,
)
from ubridge.definitions.indexing import GATHER, INDEX_SELECT
from ubridge.definitions.rows import ARGSORT_DESCENDING, LAYER_NORM, LOG_SOFTMAX, RMS_NORM, SOFTMAX
from ubridge.definitions.table import OPS
from ubridge.device.executor import DeviceExecutor, Executor
from ubridge.device.tensor_data import make
from ubridge.ops import reductions, rows, selection
from ubridge.ops.engine import Value, contiguous, of_each, run_into
from ubridge.ops.results import require_size
from ubridge.ops.strided import StridedTensor
from uhal import DeviceBuffer, as_dtype
from uhal.dtypes import DTypeLike, u8
from uhal.errors import ArgumentTypeError, NotFoundError
from uhal.interop import StreamLike


def named_op(kernel: Op | str) -> Op:
    """Return the operation of a name; `NotFoundError` for an unknown name."""
    if isinstance(kernel, Op):
        return kernel
    found = OPS.get(kernel)
    if found is None:
        raise NotFoundError(f"no operation {kernel!r}; there are {', '.join(OPS)}")
    return found


def tensor_of(
    op: Op, name: str, buffer: DeviceBuffer, layout: Layout, executor: Executor | None
) -> Value:
    """Return the elements as a tensor; refuse a buffer that is too short."""
    require_size(op, name, buffer, layout.extent)
    at = executor or DeviceExecutor.of(buffer.device)
    return make(StridedTensor, buffer, layout, buffer.dtype, at)


def operands_of(
    op: Op, executor: Executor | None, *given: tuple[DeviceBuffer, Layout]
) -> list[Value]:
    """Return the operands as tensors; an error for a short buffer names its operand."""
    names = op.family.operands.split()
    return [tensor_of(op, name, *one, executor) for name, one in zip(names, given, strict=False)]


def launch_unary(
    kernel: Op | str,
    buffer: DeviceBuffer,
    layout: Layout,
    *,
    parameter: float | None = None,
    out: DeviceBuffer | None = None,
    stream: StreamLike | None = None,
    executor: Executor | None = None,
) -> DeviceBuffer:
    """Apply `kernel` to every element.

    `parameter` is the number of `elu` and `power`.
    """
    op = named_op(kernel)
    x = tensor_of(op, "x", buffer, layout, executor)
    if (parameter is not None) != (op.family is WITH_NUMBER):
        require_number(f"{op.name}, parameter", parameter)
        raise ArgumentTypeError(f"{op.name}: expected no parameter, got {parameter!r:.80}")
    numbers = () if parameter is None else (parameter,)
    return run_into(of_each(op, (x,), x._dtype, numbers), out, stream)


def launch_binary(
    kernel: Op | str,
    lhs: DeviceBuffer,
    lhs_layout: Layout,
    rhs: DeviceBuffer,
    rhs_layout: Layout,
    *,
    out: DeviceBuffer | None = None,
    stream: StreamLike | None = None,
    executor: Executor | None = None,
) -> DeviceBuffer:
    """Apply `kernel` to pairs of elements of two layouts.

    Both layouts must have the same shape; broadcast them first.

    A comparison's result is of u8.
    """
    op = named_op(kernel)
    x, y = operands_of(op, executor, (lhs, lhs_layout), (rhs, rhs_layout))
    return run_into(of_each(op, (x, y), u8 if op.family is COMPARISON else x._dtype), out, stream)


def launch_ternary(
    condition: DeviceBuffer,
    condition_layout: Layout,
    on_true: DeviceBuffer,
    true_layout: Layout,
    on_false: DeviceBuffer,
    false_layout: Layout,
    *,
    out: DeviceBuffer | None = None,
    stream: StreamLike | None = None,
    executor: Executor | None = None,
) -> DeviceBuffer:
    """Choose from `on_true` where the condition is not 0, else from `on_false`."""
    choices = (on_true, true_layout), (on_false, false_layout)
    given = operands_of(WHERE, executor, (condition, condition_layout), *choices)
    return run_into(of_each(WHERE, given, on_true.dtype), out, stream)


def launch_affine(
    buffer: DeviceBuffer,
    layout: Layout,
    multiplier: float,
    addend: float,
    *,
    out: DeviceBuffer | None = None,
    stream: StreamLike | None = None,
    executor: Executor | None = None,
) -> DeviceBuffer:
    """Compute `x * multiplier + addend`.

    Both numbers are rounded to the elements' type first.
    """
    x = tensor_of(AFFINE, "x", buffer, layout, executor)
    return run_into(of_each(AFFINE, (x,), x._dtype, (multiplier, addend)), out, stream)


def launch_cast(
    buffer: DeviceBuffer,
    layout: Layout,
    dtype: DTypeLike,
    *,
    out: DeviceBuffer | None = None,
    stream: StreamLike | None = None,
    executor: Executor | None = None,
) -> DeviceBuffer:
    """Convert to another element type. Floats are truncated and clamped to integers."""
    x = tensor_of(ASTYPE, "x", buffer, layout, executor)
    return run_into(of_each(ASTYPE, (x,), as_dtype(dtype)), out, stream)


def launch_reduce(
    kernel: Op | str,
    buffer: DeviceBuffer,
    layout: Layout,
    axes: tuple[int, ...],
    *,
    out: DeviceBuffer | None = None,
    stream: StreamLike | None = None,
    executor: Executor | None = None,
) -> DeviceBuffer:
    """Reduce over `axes`; the result has the other axes in their order.

    A sum has the elements' type; `argmin` and `argmax` take one axis and give u32. Raises
    `ArgumentValueError` for an empty axis, except of a sum.
    """
    op = named_op(kernel)
    x = tensor_of(op, "x", buffer, layout, executor)
    return run_into(reductions.plan_reduction(op, x, axes_of(op.name, layout, axes)), out, stream)


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
    given = operands_of(SILU_MUL, executor, (gate, gate_layout), (up, up_layout))
    return run_into(of_each(SILU_MUL, [*map(contiguous, given)], gate.dtype), out, stream)


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
    """Return `value` where a mask is not 0, else `x`.

    The mask is u8; both have the same shape.
    """
    given = operands_of(MASKED_FILL, executor, (buffer, layout), (mask, mask_layout))
    return run_into(of_each(MASKED_FILL, given, buffer.dtype, (value,)), out, stream)


# -- along an axis --------------------------------------------------------------------------------


def launch_softmax(
    buffer: DeviceBuffer,
    layout: Layout,
    *,
    out: DeviceBuffer | None = None,
    stream: StreamLike | None = None,
    executor: Executor | None = None,
) -> DeviceBuffer:
    """Compute exp(x) / sum(exp(x)) along the last axis."""
    x = tensor_of(SOFTMAX, "x", buffer, layout, executor)
    return run_into(rows.plan_softmax(x), out, stream)


def launch_log_softmax(
    buffer: DeviceBuffer,
    layout: Layout,
    *,
    compensated: bool = False,
    out: DeviceBuffer | None = None,
    stream: StreamLike | None = None,
    executor: Executor | None = None,
) -> DeviceBuffer:
    """Compute the logarithm of the softmax along the last axis.

    The softmax itself is not computed.

    `compensated` also sums up the rounding errors of a row's sum (Knuth's two-sum), so that the
    error does not grow with the row; GCUs refuse it.
    """
    x = tensor_of(LOG_SOFTMAX, "x", buffer, layout, executor)
    return run_into(rows.plan_log_softmax(x, -1, compensated), out, stream)


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
    """Normalize the last axis, and scale it by `weight`.

    With a `bias` this is a layer norm, otherwise an RMS norm.
    """
    op = RMS_NORM if bias is None else LAYER_NORM
    row = Layout.contiguous(layout.shape[-1:])
    weights = [(one, row) for one in (weight, bias) if one is not None]
    given = operands_of(op, executor, (buffer, layout), *weights)
    return run_into(rows.plan_norm(op, *given, epsilon=epsilon), out, stream)


def launch_argsort(
    kernel: Op | str,
    buffer: DeviceBuffer,
    layout: Layout,
    *,
    out: DeviceBuffer | None = None,
    stream: StreamLike | None = None,
    executor: Executor | None = None,
) -> DeviceBuffer:
    """Compute the indices that sort the last axis, as u32.

    Equal elements are ordered as in `argsort`.
    """
    op = named_op(kernel)
    x = tensor_of(op, "x", buffer, layout, executor)
    return run_into(rows.plan_argsort(x, -1, op is ARGSORT_DESCENDING), out, stream)


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
    """Rotate pairs of the last axis by angles.

    `cos` and `sin` give the angles of each position.

    Both are (positions, width / 2), or with `per_batch` (batch, positions, width / 2). `rope` and
    `rope_i` take (batch, heads, positions, width), `rope_thd` (batch, positions, heads, width).
    """
    op = named_op(kernel)
    along = 1 if op is ROPE_THD else 2
    angles = Layout.contiguous(angles_of(op.name, layout.shape, along, per_batch))
    operands = (buffer, layout), (cos, angles), (sin, angles)
    x, cosines, sines = operands_of(op, executor, *operands)
    return run_into(rows.plan_rope(x, cosines, sines, op is ROPE_I, op is ROPE_THD), out, stream)


# -- by ids ---------------------------------------------------------------------------------------


def launch_index_select(
    buffer: DeviceBuffer,
    layout: Layout,
    ids: DeviceBuffer,
    ids_layout: Layout,
    axis: int,
    *,
    out: DeviceBuffer | None = None,
    stream: StreamLike | None = None,
    executor: Executor | None = None,
) -> DeviceBuffer:
    """Take the slices of an axis at ids.

    The ids have one axis, which replaces the axis they choose from. As in Candle, the highest id of
    its type selects 0; GCUs refuse it.
    """
    x, chosen = operands_of(INDEX_SELECT, executor, (buffer, layout), (ids, ids_layout))
    return run_into(selection.plan_slices(x, chosen, axis, has_none=True), out, stream)


def launch_gather(
    buffer: DeviceBuffer,
    layout: Layout,
    ids: DeviceBuffer,
    ids_layout: Layout,
    axis: int,
    *,
    out: DeviceBuffer | None = None,
    stream: StreamLike | None = None,
    executor: Executor | None = None,
) -> DeviceBuffer:
    """Take an element at each id of an axis.

    The ids have the layout's shape except along the axis. The highest id of its type selects 0, as
    in `launch_index_select`.
    """
    x, chosen = operands_of(GATHER, executor, (buffer, layout), (ids, ids_layout))
    return run_into(selection.plan_elements(x, chosen, axis, has_none=True), out, stream)


__all__ = [
    "launch_affine",
    "launch_argsort",
    "launch_binary",
    "launch_cast",
    "launch_gather",
    "launch_index_select",
    "launch_log_softmax",
    "launch_masked_fill",
    "launch_norm",
    "launch_reduce",
    "launch_rope",
    "launch_silu_mul",
    "launch_softmax",
    "launch_ternary",
    "launch_unary",
]
