"""Copies and fills of buffers with layouts, and checks of buffers that operations are given."""

from __future__ import annotations

from ubridge.core.layout import Layout
from ubridge.core.operand_checks import (
    whole_number,
)
from ubridge.core.operation import Op
from ubridge.core.question import Question
from ubridge.core.rows import rows_of
from ubridge.core.storage_view import Description
from ubridge.definitions.elementwise import COPY
from ubridge.definitions.memory import COPY2D, FILL
from ubridge.definitions.table import OPS
from ubridge.device.executor import DeviceExecutor, Executor
from ubridge.device.spans import require_no_conflict, span_of
from uhal import DeviceBuffer
from uhal.errors import ArgumentTypeError, ArgumentValueError, NotFoundError
from uhal.interop import StreamLike


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
    start = checked_operand(FILL, "x", buffer, layout)
    if layout.size:
        question = Question(FILL, (), (buffer.dtype, layout.from_start), numbers=1)
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
        whole_number(COPY2D.name, one) for one in (rows, columns, source_pitch, destination_pitch)
    )
    if rows == 0 or columns == 0:
        return
    at = executor or DeviceExecutor.of(source.device)
    for name, buffer, pitch in (
        ("source", source, source_pitch),
        ("destination", destination, destination_pitch),
    ):
        require_size(COPY2D, name, buffer, (rows - 1) * pitch + columns)
    shape = (rows, columns)
    question = Question(
        COPY2D,
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
    require_one_shape(COPY, source_layout, destination_layout)
    if destination_layout.may_alias:
        raise ArgumentValueError("copy: the destination has several elements at one address")
    target = checked_operand(COPY, "destination", destination, destination_layout)
    if destination_layout.size == 0:
        return
    if destination_layout.is_contiguous:
        copied(at, source, source_layout, stream, target)
        return
    if isinstance(source, DeviceBuffer) and isinstance(destination, DeviceBuffer):
        spans = (span_of(destination, destination_layout), span_of(source, source_layout))
        require_no_conflict(COPY2D, spans[0], spans[1:])
    if not source_layout.is_contiguous:
        source = copied(at, source, source_layout, stream)
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
            source[taken:],
            destination[start:],
            rows,
            columns,
            columns,
            pitch,
            stream=stream,
            executor=at,
        )
        taken += rows * columns


def copied(
    at: Executor,
    buffer: DeviceBuffer,
    layout: Layout,
    stream: StreamLike | None,
    out: DeviceBuffer | None = None,
) -> DeviceBuffer:
    """Return the elements in row-major order from the start of a buffer, copied."""
    known = (buffer.dtype, layout.from_start)
    question = Question(COPY, (known,), (buffer.dtype, Layout.contiguous(layout.shape)))
    start = checked_operand(COPY, "x", buffer, layout)
    return enqueued(at, question, stream, out, start)


def gathered(
    at: Executor,
    op: Op,
    name: str,
    buffer: DeviceBuffer,
    layout: Layout,
    stream: StreamLike | None,
) -> DeviceBuffer:
    """Return a buffer that begins with the elements in row-major order, copied if need be."""
    start = checked_operand(op, name, buffer, layout)
    return start if layout.is_contiguous else copied(at, buffer, layout, stream)


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


def named_op(kernel: Op | str) -> Op:
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


__all__ = ["launch_copy", "launch_copy2d", "launch_fill"]
