"""Operations on buffers with layouts, for frameworks that have tensors of their own.

Each function enqueues one operation and returns the buffer its result will be in. Buffers hold
elements and layouts say which; kernels handle strides and broadcasts. Dtypes are the buffers';
nothing is promoted, cast or broadcast unless the caller asks for it.

`out` is a buffer that the result is written to from its first element, in row-major order; without
it one is allocated. An operation element by element may write over its operands, and one of rows
over its first, where both begin together and have one layout and item size. Any other overlap is
an `ArgumentValueError`. `stream` is by default the device's default stream. An operation is named
as in `op_table`, or is an `Op`. Wrong dtypes, sizes and devices are refused before anything is
launched.
"""

from __future__ import annotations

import math
from functools import lru_cache

from ubridge.core.layout import Layout
from ubridge.core.op_table import OPS, Op
from ubridge.core.operand_checks import (
    axes_of,
    require_indices_of_u32,
    require_number,
    whole_number,
)
from ubridge.core.question import Question
from ubridge.core.rows import rows_of
from ubridge.core.storage_view import Description
from ubridge.device.executor import DeviceExecutor, Executor
from ubridge.device.spans import require_no_conflict, span_of
from uhal import DeviceBuffer, DType, as_dtype
from uhal.dtypes import DTypeLike, u8, u32
from uhal.errors import ArgumentTypeError, ArgumentValueError, NotFoundError
from uhal.interop import StreamLike

_COPY = OPS["copy"]
_ASTYPE = OPS["astype"]
_WHERE = OPS["where"]
_FILL = OPS["fill"]
_COPY2D = OPS["copy2d"]
_AFFINE = OPS["affine"]


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
    """Apply `kernel` to every element; `parameter` is the number that `elu` and `power` take."""
    op = kernel if type(kernel) is Op else named(kernel)
    at = executor or DeviceExecutor.of(buffer.device)
    start = checked_operand(op, "x", buffer, layout)
    require_room(op, out, layout.size)
    if (parameter is not None) != (op.family.name == "unary_scalar"):
        require_number(f"{op.name}, parameter", parameter)
        raise ArgumentTypeError(f"{op.name}: expected no parameter, got {parameter!r:.80}")
    numbers = () if parameter is None else (parameter,)
    question = of_each(op, buffer.dtype, (layout,), buffer.dtype, len(numbers))
    return enqueued(at, question, stream, out, start, *numbers)


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
    """Apply `kernel` to pairs of elements of two layouts of one shape; broadcast them first.

    A comparison's result is of u8.
    """
    op = kernel if type(kernel) is Op else named(kernel)
    at = executor or DeviceExecutor.of(lhs.device)
    require_one_shape(op, lhs_layout, rhs_layout)
    lhs_start = checked_operand(op, "x", lhs, lhs_layout)
    rhs_start = checked_operand(op, "y", rhs, rhs_layout)
    require_room(op, out, lhs_layout.size)
    result = u8 if op.family.name == "compare" else lhs.dtype
    question = of_each(op, lhs.dtype, (lhs_layout, rhs_layout), result)
    return enqueued(at, question, stream, out, lhs_start, rhs_start)


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
    at = executor or DeviceExecutor.of(on_true.device)
    require_one_shape(_WHERE, condition_layout, true_layout, false_layout)
    condition_start = checked_operand(_WHERE, "condition", condition, condition_layout)
    true_start = checked_operand(_WHERE, "x", on_true, true_layout)
    false_start = checked_operand(_WHERE, "y", on_false, false_layout)
    require_room(_WHERE, out, true_layout.size)
    layouts = (condition_layout, true_layout, false_layout)
    question = of_each(_WHERE, on_true.dtype, layouts, on_true.dtype, 0, condition.dtype)
    return enqueued(at, question, stream, out, condition_start, true_start, false_start)


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
    """Compute `x * multiplier + addend`; both are rounded to the elements' type first."""
    at = executor or DeviceExecutor.of(buffer.device)
    start = checked_operand(_AFFINE, "x", buffer, layout)
    require_room(_AFFINE, out, layout.size)
    question = of_each(_AFFINE, buffer.dtype, (layout,), buffer.dtype, 2)
    return enqueued(at, question, stream, out, start, multiplier, addend)


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
    at = executor or DeviceExecutor.of(buffer.device)
    target = as_dtype(dtype)
    start = checked_operand(_ASTYPE, "x", buffer, layout)
    require_room(_ASTYPE, out, layout.size)
    question = of_each(_ASTYPE, buffer.dtype, (layout,), target)
    return enqueued(at, question, stream, out, start)


def launch_fill(
    buffer: DeviceBuffer,
    layout: Layout,
    value: float,
    *,
    stream: StreamLike | None = None,
    executor: Executor | None = None,
) -> None:
    """Set every element of a layout, strided or not, to `value`."""
    at = executor or DeviceExecutor.of(buffer.device)
    start = checked_operand(_FILL, "x", buffer, layout)
    if layout.size:
        question = Question(_FILL, (), (buffer.dtype, layout.from_start), numbers=1)
        at.run(question, stream, start, value)


def launch_copy2d(
    source: DeviceBuffer,
    destination: DeviceBuffer,
    rows: int,
    columns: int,
    source_pitch: int,
    destination_pitch: int,
    *,
    stream: StreamLike | None = None,
    executor: Executor | None = None,
) -> None:
    """Copy `rows` of `columns` elements; a pitch is the elements from one row to the next."""
    rows, columns, source_pitch, destination_pitch = (
        whole_number("copy2d", one) for one in (rows, columns, source_pitch, destination_pitch)
    )
    if rows == 0 or columns == 0:
        return
    at = executor or DeviceExecutor.of(source.device)
    for name, buffer, pitch in (
        ("source", source, source_pitch),
        ("destination", destination, destination_pitch),
    ):
        require_size(_COPY2D, name, buffer, (rows - 1) * pitch + columns)
    shape = (rows, columns)
    question = Question(
        _COPY2D,
        ((source.dtype, Layout(shape, (source_pitch, 1))),),
        (destination.dtype, Layout(shape, (destination_pitch, 1))),
    )
    at.run(question, stream, destination, source)


def launch_copy(
    source: DeviceBuffer,
    source_layout: Layout,
    destination: DeviceBuffer,
    destination_layout: Layout,
    *,
    stream: StreamLike | None = None,
    executor: Executor | None = None,
) -> None:
    """Copy between layouts of one shape and dtype, strided or not. They must not overlap.

    Kernels read strides but write rows, so a strided destination takes a launch for each of its
    outer elements. Raises `ArgumentValueError` where they overlap.
    """
    at = executor or DeviceExecutor.of(source.device)
    require_one_shape(_COPY, source_layout, destination_layout)
    if destination_layout.may_alias:
        raise ArgumentValueError("copy: the destination has several elements at one address")
    target = checked_operand(_COPY, "destination", destination, destination_layout)
    if destination_layout.size == 0:
        return
    if destination_layout.is_contiguous:
        launch_unary(_COPY, source, source_layout, out=target, stream=stream, executor=at)
        return
    if isinstance(source, DeviceBuffer) and isinstance(destination, DeviceBuffer):
        spans = (span_of(destination, destination_layout), span_of(source, source_layout))
        require_no_conflict(_COPY2D, spans[0], spans[1:])
    if not source_layout.is_contiguous:
        source = launch_unary(_COPY, source, source_layout, stream=stream, executor=at)
        source_layout = Layout.contiguous(source_layout.shape)
    _scatter_rows(at, source, source_layout, destination, destination_layout, stream)


def _scatter_rows(
    at: Executor,
    source: DeviceBuffer,
    source_layout: Layout,
    destination: DeviceBuffer,
    layout: Layout,
    stream: StreamLike | None,
) -> None:
    """Copy rows of a contiguous source to a strided destination: two axes a launch."""
    rows, columns, pitch, starts = rows_of(layout)
    taken = source_layout.start_offset
    for start in starts:
        launch_copy2d(
            source[taken:], destination[start:], rows, columns, columns, pitch,
            stream=stream, executor=at,
        )  # fmt: skip
        taken += rows * columns


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
    op = kernel if type(kernel) is Op else named(kernel)
    at = executor or DeviceExecutor.of(buffer.device)
    return reduce_over(op, buffer, layout, reduced_axes(op, layout, axes), out, stream, at)


def reduce_over(
    op: Op,
    buffer: DeviceBuffer,
    layout: Layout,
    reduced: tuple[int, ...],
    out: DeviceBuffer | None,
    stream: StreamLike | None,
    at: Executor,
) -> DeviceBuffer:
    """Do what `launch_reduce` does, over axes that `reduced_axes` returned."""
    ordered, results, elements = _reduction(layout, reduced)
    if elements == 0 and op.name != "sum":
        # numpy raises this even if the result has no elements.
        raise ArgumentValueError(
            f"{op.name}: zero-size array to reduction operation {op.name} which has no identity"
        )
    start = checked_operand(op, "x", buffer, layout)
    require_room(op, out, results)
    result = u32 if op.family.name == "arg_reduce" else buffer.dtype
    if results and elements == 0:
        out = at.allocate(results, result, stream) if out is None else out
        launch_fill(out, Layout.contiguous(results), 0, stream=stream, executor=at)
        return out
    question = reduction(op, buffer.dtype, ordered, len(reduced))
    return enqueued(at, question, stream, out, start)


@lru_cache(maxsize=4096)
def _reduction(layout: Layout, reduced: tuple[int, ...]) -> tuple[Layout, int, int]:
    """The layout with the reduced axes last, the number of results, and the elements of each."""
    kept = tuple(axis for axis in range(layout.rank) if axis not in reduced)
    elements = math.prod(layout.shape[axis] for axis in reduced)
    results = math.prod(layout.shape[axis] for axis in kept)
    return layout.permute((*kept, *reduced)), results, elements


# -- questions -----------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def of_each(
    op: Op,
    dtype: DType,
    layouts: tuple[Layout, ...],
    result: DType,
    numbers: int = 0,
    first: DType | None = None,
) -> Question:
    """Ask for an operation element by element; the first operand may be of another dtype."""
    operands = [(dtype, layout.from_start) for layout in layouts]
    if first is not None:
        operands[0] = (first, operands[0][1])
    shape = Layout.contiguous(layouts[0].shape)
    return Question(op, tuple(operands), (result, shape), numbers=numbers)


@lru_cache(maxsize=4096)
def reduction(op: Op, dtype: DType, ordered: Layout, reduced: int) -> Question:
    """Ask for a reduction of the last axes."""
    kept = ordered.rank - reduced
    shape = ordered.shape[:kept]
    result = dtype
    if op.family.name == "arg_reduce":
        result = u32
        require_indices_of_u32(op.name, math.prod(ordered.shape[kept:]))
    return Question(op, ((dtype, ordered.from_start),), (result, Layout.contiguous(shape)))


def enqueued(
    at: Executor,
    question: Question,
    stream: StreamLike | None,
    out: DeviceBuffer | None,
    *given: object,
) -> DeviceBuffer:
    """Enqueue an operation unless it has no result; return its buffer."""
    dtype, layout = question.result
    if layout.size == 0:
        return at.allocate(0, dtype, stream) if out is None else out
    return at.run(question, stream, out, *given)


# -- checks --------------------------------------------------------------------------------------


def named(kernel: Op | str) -> Op:
    """Return the operation of a name; `NotFoundError` when there is none."""
    if isinstance(kernel, Op):
        return kernel
    found = OPS.get(kernel)
    if found is None:
        raise NotFoundError(f"no operation {kernel!r}; there are {', '.join(OPS)}")
    return found


def checked_operand(op: Op, name: str, buffer: DeviceBuffer, layout: Layout) -> DeviceBuffer:
    """Return the buffer from the layout's first element on; refuse one that is too short."""
    if layout.extent > buffer.size:
        require_size(op, name, buffer, layout.extent)
    start = layout.start_offset
    return buffer[start:] if start else buffer


def require_size(op: Op, name: str, buffer: DeviceBuffer, elements: int) -> None:
    """Refuse a buffer of fewer elements."""
    if not isinstance(buffer, (DeviceBuffer, Description)):
        raise ArgumentTypeError(
            f"{op.name}, {name!r}: expected a DeviceBuffer, got {type(buffer).__name__}"
        )
    if buffer.size < elements:
        raise ArgumentValueError(
            f"{op.name}, {name!r}: expected a buffer of at least {elements} elements, which the "
            f"layout reaches, got one of {buffer.size}"
        )


def require_room(op: Op, out: DeviceBuffer | None, elements: int) -> None:
    """Refuse an output of fewer elements than the result has."""
    if out is not None and out.size < elements:
        require_size(op, "out", out, elements)


def require_one_shape(op: Op, first: Layout, *others: Layout) -> None:
    """Refuse operands of different shapes."""
    for other in others:
        if other.shape is not first.shape and other.shape != first.shape:
            shapes = " ".join(str(one.shape) for one in (first, *others))
            raise ArgumentValueError(
                f"{op.name}: expected operands of one shape, got {shapes}; broadcast_to makes it"
            )


def reduced_axes(op: Op, layout: Layout, axes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the axes counted from the front; refuse repeated ones, and several for one index."""
    reduced = axes_of(op.name, layout, axes)
    if op.family.name == "arg_reduce" and len(reduced) != 1:
        raise ArgumentTypeError(f"{op.name}: expected one axis, got {axes}")
    return reduced


__all__ = [
    "launch_affine",
    "launch_binary",
    "launch_cast",
    "launch_copy",
    "launch_copy2d",
    "launch_fill",
    "launch_reduce",
    "launch_ternary",
    "launch_unary",
]
