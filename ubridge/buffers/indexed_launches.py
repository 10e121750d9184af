"""`launch_*` of operations with ids: index_select, gather, scatter, index_add.

Their kernels take contiguous operands: a strided operand is copied first, and copied back if it was
changed in place.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod

from ubridge.buffers import launches
from ubridge.core.layout import Layout
from ubridge.core.op_table import OPS, Op
from ubridge.core.operand_checks import axis_of
from ubridge.core.question import Question
from ubridge.device.executor import DeviceExecutor, Executor
from uhal import DeviceBuffer, DType
from uhal.errors import ArgumentValueError
from uhal.interop import StreamLike

_COPY = OPS["copy"]
_GATHER = OPS["gather"]
_INDEX_ADD = OPS["index_add"]
_INDEX_SELECT = OPS["index_select"]


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
    """Take the slices of an axis at ids of one axis, which replaces the axis they choose from."""
    at = executor or DeviceExecutor.of(buffer.device)
    axis = axis_of(_INDEX_SELECT.name, layout, axis)
    left, length, right = split_at(layout, axis)
    question = selection(buffer.dtype, (left, length, right), ids.dtype, ids_layout.size)
    launches.require_room(_INDEX_SELECT, out, question.shape.size)
    if question.shape.size:
        require_axis(_INDEX_SELECT, axis, length)
    x = gathered(at, _INDEX_SELECT, "x", buffer, layout, stream)
    wanted = gathered(at, _INDEX_SELECT, "ids", ids, ids_layout, stream)
    return launches.enqueued(at, question, stream, out, x, wanted)


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
    """Take an element at each id; the ids have the layout's shape except along the axis."""
    at = executor or DeviceExecutor.of(buffer.device)
    axis = axis_of(_GATHER.name, layout, axis)
    require_same_but(_GATHER, layout, ids_layout, axis)
    left, length, right = split_at(layout, axis)
    count = ids_layout.shape[axis]
    question = gathering(buffer.dtype, (left, length, right), ids.dtype, count)
    launches.require_room(_GATHER, out, question.shape.size)
    if question.shape.size:
        require_axis(_GATHER, axis, length)
    x = gathered(at, _GATHER, "x", buffer, layout, stream)
    wanted = gathered(at, _GATHER, "ids", ids, ids_layout, stream)
    return launches.enqueued(at, question, stream, out, x, wanted)


def launch_scatter(
    kernel: Op | str,
    buffer: DeviceBuffer,
    layout: Layout,
    ids: DeviceBuffer,
    ids_layout: Layout,
    source: DeviceBuffer,
    source_layout: Layout,
    axis: int,
    *,
    stream: StreamLike | None = None,
    executor: Executor | None = None,
) -> None:
    """Write (`scatter`) or add (`scatter_add`) each element of a source at its id, in place."""
    op = launches.named(kernel)
    at = executor or DeviceExecutor.of(buffer.device)
    axis = axis_of(op.name, layout, axis)
    launches.require_one_shape(op, source_layout, ids_layout)
    require_same_but(op, layout, ids_layout, axis)
    left, length, right = split_at(layout, axis)
    if ids_layout.size == 0:
        return
    require_axis(op, axis, length)
    values = gathered(at, op, "source", source, source_layout, stream)
    wanted = gathered(at, op, "ids", ids, ids_layout, stream)
    target = gathered(at, op, "x", buffer, layout, stream)
    of_ids = Layout.contiguous((left, source_layout.shape[axis], right))
    whole = (buffer.dtype, Layout.contiguous((left, length, right)))
    question = Question(op, ((ids.dtype, of_ids), (source.dtype, of_ids)), whole)
    at.run(question, stream, target, wanted, values)
    give_back(at, target, buffer, layout, stream)


def launch_index_add(
    buffer: DeviceBuffer,
    layout: Layout,
    ids: DeviceBuffer,
    ids_layout: Layout,
    source: DeviceBuffer,
    source_layout: Layout,
    axis: int,
    *,
    stream: StreamLike | None = None,
    executor: Executor | None = None,
) -> None:
    """Add the slices of a source to those at ids of an axis, in place."""
    at = executor or DeviceExecutor.of(buffer.device)
    axis = axis_of(_INDEX_ADD.name, layout, axis)
    expected = (*layout.shape[:axis], ids_layout.size, *layout.shape[axis + 1 :])
    if source_layout.shape != expected:
        raise ArgumentValueError(
            f"index_add: expected a source of shape {expected}, got {source_layout.shape}"
        )
    left, length, right = split_at(layout, axis)
    if source_layout.size == 0:
        return
    require_axis(_INDEX_ADD, axis, length)
    values = gathered(at, _INDEX_ADD, "source", source, source_layout, stream)
    wanted = gathered(at, _INDEX_ADD, "ids", ids, ids_layout, stream)
    target = gathered(at, _INDEX_ADD, "x", buffer, layout, stream)
    of_ids = Layout.contiguous(ids_layout.size)
    slices = Layout.contiguous((left, ids_layout.size, right))
    whole = (buffer.dtype, Layout.contiguous((left, length, right)))
    question = Question(_INDEX_ADD, ((ids.dtype, of_ids), (source.dtype, slices)), whole)
    at.run(question, stream, target, wanted, values)
    give_back(at, target, buffer, layout, stream)


@lru_cache(maxsize=4096)
def selection(dtype: DType, sizes: tuple[int, int, int], kind: DType, count: int) -> Question:
    """Ask for slices of (left, length, right) at `count` ids of dtype `kind`."""
    left, _, right = sizes
    operands = ((dtype, Layout.contiguous(sizes)), (kind, Layout.contiguous(count)))
    return Question(_INDEX_SELECT, operands, (dtype, Layout.contiguous((left, count, right))))


@lru_cache(maxsize=4096)
def gathering(dtype: DType, sizes: tuple[int, int, int], kind: DType, count: int) -> Question:
    """Ask for elements of (left, length, right) at ids of dtype `kind`, `count` along the axis."""
    left, _, right = sizes
    chosen = Layout.contiguous((left, count, right))
    return Question(_GATHER, ((dtype, Layout.contiguous(sizes)), (kind, chosen)), (dtype, chosen))


@lru_cache(maxsize=4096)
def split_at(layout: Layout, axis: int) -> tuple[int, int, int]:
    """Return the elements before an axis, along it and after it."""
    shape = layout.shape
    return prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])


def gathered(
    at: Executor,
    op: Op,
    name: str,
    buffer: DeviceBuffer,
    layout: Layout,
    stream: StreamLike | None,
) -> DeviceBuffer:
    """Return a buffer that begins with the elements in row-major order, copied if need be."""
    start = launches.checked_operand(op, name, buffer, layout)
    if layout.is_contiguous:
        return start
    return launches.launch_unary(_COPY, buffer, layout, stream=stream, executor=at)


def give_back(
    at: Executor,
    changed: DeviceBuffer,
    buffer: DeviceBuffer,
    layout: Layout,
    stream: StreamLike | None,
) -> None:
    """Copy the changed elements from a contiguous copy back to the strided buffer."""
    if not layout.is_contiguous:
        whole = Layout.contiguous(layout.shape)
        launches.launch_copy(changed, whole, buffer, layout, stream=stream, executor=at)


def require_axis(op: Op, axis: int, length: int) -> None:
    """Refuse to choose from an axis of length 0."""
    if length == 0:
        raise IndexError(f"{op.name}: cannot take from axis {axis}, which has size 0")


def require_same_but(op: Op, layout: Layout, ids: Layout, axis: int) -> None:
    """Refuse ids whose other axes differ."""
    same = len(ids.shape) == len(layout.shape) and all(
        one == two
        for number, (one, two) in enumerate(zip(layout.shape, ids.shape, strict=True))
        if number != axis
    )
    if not same:
        raise ArgumentValueError(
            f"{op.name}: expected ids of shape {layout.shape} but for axis {axis}, got {ids.shape}"
        )
