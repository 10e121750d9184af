"""`launch_*` of writes at ids: scatter, index_add.

Their kernels take contiguous operands: a strided operand is copied first, and copied back if it was
changed in place.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod

from ubridge.buffers import launches
from ubridge.core.layout import Layout
from ubridge.core.operand_checks import axis_of
from ubridge.core.operation import Op
from ubridge.core.question import Question
from ubridge.definitions.indexing import INDEX_ADD
from ubridge.device.executor import DeviceExecutor, Executor
from uhal import DeviceBuffer
from uhal.errors import ArgumentValueError
from uhal.interop import StreamLike


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
    op = launches.named_op(kernel)
    at = executor or DeviceExecutor.of(buffer.device)
    axis = axis_of(op.name, layout, axis)
    launches.require_one_shape(op, source_layout, ids_layout)
    require_same_but(op, layout, ids_layout, axis)
    left, length, right = split_at(layout, axis)
    if ids_layout.size == 0:
        return
    require_axis(op, axis, length)
    values = launches.gathered(at, op, "source", source, source_layout, stream)
    wanted = launches.gathered(at, op, "ids", ids, ids_layout, stream)
    target = launches.gathered(at, op, "x", buffer, layout, stream)
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
    axis = axis_of(INDEX_ADD.name, layout, axis)
    expected = (*layout.shape[:axis], ids_layout.size, *layout.shape[axis + 1 :])
    if source_layout.shape != expected:
        raise ArgumentValueError(
            f"index_add: expected a source of shape {expected}, got {source_layout.shape}"
        )
    left, length, right = split_at(layout, axis)
    if source_layout.size == 0:
        return
    require_axis(INDEX_ADD, axis, length)
    values = launches.gathered(at, INDEX_ADD, "source", source, source_layout, stream)
    wanted = launches.gathered(at, INDEX_ADD, "ids", ids, ids_layout, stream)
    target = launches.gathered(at, INDEX_ADD, "x", buffer, layout, stream)
    of_ids = Layout.contiguous(ids_layout.size)
    slices = Layout.contiguous((left, ids_layout.size, right))
    whole = (buffer.dtype, Layout.contiguous((left, length, right)))
    question = Question(INDEX_ADD, ((ids.dtype, of_ids), (source.dtype, slices)), whole)
    at.run(question, stream, target, wanted, values)
    give_back(at, target, buffer, layout, stream)


@lru_cache(maxsize=4096)
def split_at(layout: Layout, axis: int) -> tuple[int, int, int]:
    """Return the elements before an axis, along it and after it."""
    shape = layout.shape
    return prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])


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
