"""The floor's operations with ids: index_select, gather, scatter, index_add.

Kernels of these take contiguous operands: what is strided is copied first, and what is changed in
place is copied back.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod

from ubridge.buffers import launches
from ubridge.core.layout import Layout
from ubridge.core.op_table import OPS, Op
from ubridge.core.operand_checks import axis_of
from ubridge.device.executor import DeviceExecutor
from uhal import DeviceBuffer
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
    executor: DeviceExecutor | None = None,
) -> DeviceBuffer:
    """Take the slices of an axis at ids of one axis: the ids stand where the axis was."""
    at = executor or DeviceExecutor.of(buffer.device)
    place = axis_of(_INDEX_SELECT.name, layout, axis)
    left, length, right = split_at(layout, place)
    size = left * ids_layout.size * right
    if out is None:
        out = at.allocate(size, buffer.dtype, stream)
    elif out.size < size:
        launches.require_size(_INDEX_SELECT, "out", out, size)
    if size:
        require_axis(_INDEX_SELECT, place, length)
        x = gathered(at, _INDEX_SELECT, "x", buffer, layout, stream)
        wanted = gathered(at, _INDEX_SELECT, "ids", ids, ids_layout, stream)
        sizes = (left, length, ids_layout.size, right)
        at.lowering.index_select(x, wanted, sizes, out, stream)
    return out


def launch_gather(
    buffer: DeviceBuffer,
    layout: Layout,
    ids: DeviceBuffer,
    ids_layout: Layout,
    axis: int,
    *,
    out: DeviceBuffer | None = None,
    stream: StreamLike | None = None,
    executor: DeviceExecutor | None = None,
) -> DeviceBuffer:
    """Take an element at each id; ids have the layout's shape but along the axis."""
    at = executor or DeviceExecutor.of(buffer.device)
    place = axis_of(_GATHER.name, layout, axis)
    require_same_but(_GATHER, layout, ids_layout, place)
    left, length, right = split_at(layout, place)
    size = ids_layout.size
    if out is None:
        out = at.allocate(size, buffer.dtype, stream)
    elif out.size < size:
        launches.require_size(_GATHER, "out", out, size)
    if size:
        require_axis(_GATHER, place, length)
        x = gathered(at, _GATHER, "x", buffer, layout, stream)
        wanted = gathered(at, _GATHER, "ids", ids, ids_layout, stream)
        sizes = (left, length, ids_layout.shape[place], right)
        at.lowering.gather(x, wanted, sizes, out, stream)
    return out


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
    executor: DeviceExecutor | None = None,
) -> None:
    """Write (`scatter`) or add (`scatter_add`) each element of a source at its id, in place."""
    op = launches.named(kernel)
    at = executor or DeviceExecutor.of(buffer.device)
    place = axis_of(op.name, layout, axis)
    launches.require_one_shape(op, source_layout, ids_layout)
    require_same_but(op, layout, ids_layout, place)
    left, length, right = split_at(layout, place)
    if ids_layout.size == 0:
        return
    require_axis(op, place, length)
    values = gathered(at, op, "source", source, source_layout, stream)
    wanted = gathered(at, op, "ids", ids, ids_layout, stream)
    target = gathered(at, op, "x", buffer, layout, stream)
    sizes = (left, source_layout.shape[place], length, right)
    at.lowering.scatter(op, wanted, values, target, sizes, stream)
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
    executor: DeviceExecutor | None = None,
) -> None:
    """Add the slices of a source to those at ids of an axis, in place."""
    at = executor or DeviceExecutor.of(buffer.device)
    place = axis_of(_INDEX_ADD.name, layout, axis)
    expected = (*layout.shape[:place], ids_layout.size, *layout.shape[place + 1 :])
    if source_layout.shape != expected:
        raise ArgumentValueError(
            f"index_add: expected a source of shape {expected}, got {source_layout.shape}"
        )
    left, length, right = split_at(layout, place)
    if source_layout.size == 0:
        return
    require_axis(_INDEX_ADD, place, length)
    values = gathered(at, _INDEX_ADD, "source", source, source_layout, stream)
    wanted = gathered(at, _INDEX_ADD, "ids", ids, ids_layout, stream)
    target = gathered(at, _INDEX_ADD, "x", buffer, layout, stream)
    sizes = (left, ids_layout.size, length, right)
    at.lowering.index_add(wanted, values, target, sizes, stream)
    give_back(at, target, buffer, layout, stream)


@lru_cache(maxsize=4096)
def split_at(layout: Layout, axis: int) -> tuple[int, int, int]:
    """Return the elements before an axis, along it and after it."""
    shape = layout.shape
    return prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])


def gathered(
    at: DeviceExecutor,
    op: Op,
    name: str,
    buffer: DeviceBuffer,
    layout: Layout,
    stream: StreamLike | None,
) -> DeviceBuffer:
    """Return the elements in row-major order from the start of a buffer, copied if need be."""
    start = launches.place(op, name, buffer, layout)
    if layout.is_contiguous:
        return start
    return launches.launch_unary(_COPY, buffer, layout, stream=stream, executor=at)


def give_back(
    at: DeviceExecutor,
    changed: DeviceBuffer,
    buffer: DeviceBuffer,
    layout: Layout,
    stream: StreamLike | None,
) -> None:
    """Copy what was changed in a contiguous copy to where it belongs."""
    if not layout.is_contiguous:
        whole = Layout.contiguous(layout.shape)
        launches.launch_copy(changed, whole, buffer, layout, stream=stream, executor=at)


def require_axis(op: Op, axis: int, length: int) -> None:
    """Refuse to choose from nothing."""
    if length == 0:
        raise IndexError(f"{op.name}: cannot take from axis {axis}, which has size 0")


def require_same_but(op: Op, layout: Layout, ids: Layout, axis: int) -> None:
    """Refuse ids whose other axes differ."""
    same = len(ids.shape) == len(layout.shape) and all(
        one == two
        for place, (one, two) in enumerate(zip(layout.shape, ids.shape, strict=True))
        if place != axis
    )
    if not same:
        raise ArgumentValueError(
            f"{op.name}: expected ids of shape {layout.shape} but for axis {axis}, got {ids.shape}"
        )
