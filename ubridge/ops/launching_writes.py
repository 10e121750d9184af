"""`launch_*` of operations in place: fills, copies, writes at ids and into caches.

If kernels cannot change memory in place, it is copied first, then copied back.
"""

from __future__ import annotations

from ubridge.core.fits import require
from ubridge.core.layout import Layout
from ubridge.core.operand_checks import whole_number
from ubridge.core.operation import Op
from ubridge.definitions.attention import KV_APPEND
from ubridge.definitions.elementwise import COPY, require_one_shape
from ubridge.definitions.indexing import INDEX_ADD
from ubridge.definitions.memory import COPY2D, FILL
from ubridge.device.executor import Executor
from ubridge.ops import caches, selection
from ubridge.ops.engine import change, write
from ubridge.ops.launching import named_op, operands_of, tensor_of
from uhal import DeviceBuffer
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
    change(FILL, tensor_of(FILL, "x", buffer, layout, executor), (), stream, (value,))


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
    """Copy `rows` of `columns` elements.

    A pitch is the elements from one row to the next.
    """
    rows, columns, source_pitch, destination_pitch = (
        whole_number(COPY2D.name, one) for one in (rows, columns, source_pitch, destination_pitch)
    )
    read, written = (Layout((rows, columns), (one, 1)) for one in (source_pitch, destination_pitch))
    x = tensor_of(COPY2D, "source", source, read, executor)
    target = tensor_of(COPY2D, "destination", destination, written, executor)
    change(COPY2D, target, (x,), stream)


def launch_copy(
    source: DeviceBuffer,
    source_layout: Layout,
    destination: DeviceBuffer,
    destination_layout: Layout,
    *,
    stream: StreamLike | None = None,
    executor: Executor | None = None,
) -> None:
    """Copy between layouts of one shape and dtype.

    They may be strided and must not overlap.

    Kernels read strides but write rows, so a strided destination takes a launch for each of its
    outer elements. Raises `ArgumentValueError` if they overlap.
    """
    require_one_shape(COPY.name, [source_layout.shape, destination_layout.shape])
    require(
        not destination_layout.may_alias,
        "copy: the destination has several elements at one address",
    )
    target = tensor_of(COPY, "destination", destination, destination_layout, executor)
    write(tensor_of(COPY, "x", source, source_layout, executor), target, stream)


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
    """Write or add each element of a source at its id.

    `scatter` writes and `scatter_add` adds, in place. As in Candle, nothing is written at the
    highest id of its type; GCUs refuse it.
    """
    op = named_op(kernel)
    others = (ids, ids_layout), (source, source_layout)
    x, where, values = operands_of(op, executor, (buffer, layout), *others)
    selection.change_at_ids(op, x, where, values, axis, stream, has_none=True)


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
    """Add a source's slices at ids of an axis, in place."""
    operands = (buffer, layout, ids, ids_layout, source, source_layout)
    launch_scatter(INDEX_ADD, *operands, axis, stream=stream, executor=executor)


def launch_kv_append(
    cache: DeviceBuffer,
    cache_layout: Layout,
    source: DeviceBuffer,
    source_layout: Layout,
    position: DeviceBuffer,
    position_layout: Layout,
    *,
    stream: StreamLike | None = None,
    executor: Executor | None = None,
) -> None:
    """Write (…, tokens, width) into (…, capacity, width).

    The first token goes to the index in `position`.
    """
    x = tensor_of(KV_APPEND, "cache", cache, cache_layout, executor)
    tokens = tensor_of(KV_APPEND, "source", source, source_layout, executor)
    start = tensor_of(KV_APPEND, "position", position, position_layout, executor)
    caches.append(x, tokens, start, stream)


__all__ = [
    "launch_copy",
    "launch_copy2d",
    "launch_fill",
    "launch_index_add",
    "launch_kv_append",
    "launch_scatter",
]
