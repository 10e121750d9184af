"""The floor beneath tensors: an operation on buffers with layouts, for frameworks of their own.

Each function enqueues one operation and returns the buffer its result will be in. Buffers hold
elements and layouts say which; strides and broadcasts are the kernels' business. Dtypes are the
buffers'; nothing is promoted, cast or broadcast that the caller did not say.

`out` is a buffer the result is written to from its first element, in row-major order; without it
one is allocated. It may be an operand itself where both are contiguous and begin together, and must
not overlap one otherwise. `stream` is the device's default stream unless given. An operation is
named as in `op_table`, or is an `Op`. Wrong dtypes, sizes and devices are refused before anything
is launched.
"""

from __future__ import annotations

import math
from functools import lru_cache

from ubridge.core.layout import Layout
from ubridge.core.op_table import OPS, Op
from ubridge.core.operand_checks import axis_of
from ubridge.core.rows import rows_of
from ubridge.device.executor import DeviceExecutor
from uhal import DeviceBuffer, as_dtype
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
    executor: DeviceExecutor | None = None,
) -> DeviceBuffer:
    """Apply `kernel` to every element; `parameter` is what `elu` and `power` take besides."""
    op = kernel if type(kernel) is Op else named(kernel)
    at = executor or DeviceExecutor.of(buffer.device)
    start = place(op, "x", buffer, layout)
    if out is None:
        out = at.allocate(layout.size, buffer.dtype, stream)
    elif out.size < layout.size:
        require_size(op, "out", out, layout.size)
    if layout.size:
        at.lowering.unary(op, start, layout, out, parameter, stream)
    return out


def launch_binary(
    kernel: Op | str,
    lhs: DeviceBuffer,
    lhs_layout: Layout,
    rhs: DeviceBuffer,
    rhs_layout: Layout,
    *,
    out: DeviceBuffer | None = None,
    stream: StreamLike | None = None,
    executor: DeviceExecutor | None = None,
) -> DeviceBuffer:
    """Apply `kernel` to pairs of elements of two layouts of one shape, as broadcast makes them.

    A comparison's result is of u8.
    """
    op = kernel if type(kernel) is Op else named(kernel)
    at = executor or DeviceExecutor.of(lhs.device)
    require_one_shape(op, lhs_layout, rhs_layout)
    lhs_start = place(op, "x", lhs, lhs_layout)
    rhs_start = place(op, "y", rhs, rhs_layout)
    size = lhs_layout.size
    if out is None:
        result = u8 if op.family.name == "compare" else lhs.dtype
        out = at.allocate(size, result, stream)
    elif out.size < size:
        require_size(op, "out", out, size)
    if size:
        at.lowering.binary(op, lhs_start, lhs_layout, rhs_start, rhs_layout, out, stream)
    return out


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
    executor: DeviceExecutor | None = None,
) -> DeviceBuffer:
    """Choose from `on_true` where the condition is not 0, else from `on_false`."""
    at = executor or DeviceExecutor.of(on_true.device)
    require_one_shape(_WHERE, condition_layout, true_layout, false_layout)
    condition_start = place(_WHERE, "condition", condition, condition_layout)
    true_start = place(_WHERE, "x", on_true, true_layout)
    false_start = place(_WHERE, "y", on_false, false_layout)
    size = true_layout.size
    if out is None:
        out = at.allocate(size, on_true.dtype, stream)
    elif out.size < size:
        require_size(_WHERE, "out", out, size)
    if size:
        at.lowering.where(
            (condition_start, true_start, false_start),
            (condition_layout, true_layout, false_layout),
            out,
            stream,
        )
    return out


def launch_affine(
    buffer: DeviceBuffer,
    layout: Layout,
    multiplier: float,
    addend: float,
    *,
    out: DeviceBuffer | None = None,
    stream: StreamLike | None = None,
    executor: DeviceExecutor | None = None,
) -> DeviceBuffer:
    """Compute `x * multiplier + addend`; both are rounded to the elements' type first."""
    at = executor or DeviceExecutor.of(buffer.device)
    start = place(_AFFINE, "x", buffer, layout)
    size = layout.size
    if out is None:
        out = at.allocate(size, buffer.dtype, stream)
    elif out.size < size:
        require_size(_AFFINE, "out", out, size)
    if size:
        at.lowering.affine(start, layout, out, multiplier, addend, stream)
    return out


def launch_cast(
    buffer: DeviceBuffer,
    layout: Layout,
    dtype: DTypeLike,
    *,
    out: DeviceBuffer | None = None,
    stream: StreamLike | None = None,
    executor: DeviceExecutor | None = None,
) -> DeviceBuffer:
    """Convert to another element type. Floats are cut to integers, and to the nearest in range."""
    at = executor or DeviceExecutor.of(buffer.device)
    target = as_dtype(dtype)
    start = place(_ASTYPE, "x", buffer, layout)
    size = layout.size
    if out is None:
        out = at.allocate(size, target, stream)
    elif out.size < size:
        require_size(_ASTYPE, "out", out, size)
    if size:
        at.lowering.cast(start, layout, target, out, stream)
    return out


def launch_fill(
    buffer: DeviceBuffer,
    layout: Layout,
    value: float,
    *,
    stream: StreamLike | None = None,
    executor: DeviceExecutor | None = None,
) -> None:
    """Set every element of a layout, strided or not, to `value`."""
    at = executor or DeviceExecutor.of(buffer.device)
    start = place(_FILL, "x", buffer, layout)
    if layout.size:
        at.lowering.fill(start, layout, value, stream)


def launch_copy2d(
    source: DeviceBuffer,
    destination: DeviceBuffer,
    rows: int,
    columns: int,
    source_pitch: int,
    destination_pitch: int,
    *,
    stream: StreamLike | None = None,
    executor: DeviceExecutor | None = None,
) -> None:
    """Copy `rows` of `columns` elements; a pitch is from one row to the next, in elements."""
    if rows == 0 or columns == 0:
        return
    at = executor or DeviceExecutor.of(source.device)
    for name, buffer, pitch in (
        ("source", source, source_pitch),
        ("destination", destination, destination_pitch),
    ):
        require_size(_COPY2D, name, buffer, (rows - 1) * pitch + columns)
    at.lowering.copy2d(source, destination, rows, columns, source_pitch, destination_pitch, stream)


def launch_copy(
    source: DeviceBuffer,
    source_layout: Layout,
    destination: DeviceBuffer,
    destination_layout: Layout,
    *,
    stream: StreamLike | None = None,
    executor: DeviceExecutor | None = None,
) -> None:
    """Copy between layouts of one shape and dtype, strided or not. They must not overlap.

    Kernels read strides but write rows, so a strided destination takes a launch for each of its
    outer elements.
    """
    at = executor or DeviceExecutor.of(source.device)
    require_one_shape(_COPY, source_layout, destination_layout)
    if destination_layout.may_alias:
        raise ArgumentValueError("copy: the destination has several elements in one place")
    target = place(_COPY, "destination", destination, destination_layout)
    if destination_layout.size == 0:
        return
    if destination_layout.is_contiguous:
        launch_unary(_COPY, source, source_layout, out=target, stream=stream, executor=at)
        return
    if not source_layout.is_contiguous:
        source = launch_unary(_COPY, source, source_layout, stream=stream, executor=at)
        source_layout = Layout.contiguous(source_layout.shape)
    _scatter_rows(at, source, source_layout, destination, destination_layout, stream)


def _scatter_rows(
    at: DeviceExecutor,
    source: DeviceBuffer,
    source_layout: Layout,
    destination: DeviceBuffer,
    layout: Layout,
    stream: StreamLike | None,
) -> None:
    """Copy rows of a contiguous source to where they belong: two axes a launch."""
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
    executor: DeviceExecutor | None = None,
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
    places: tuple[int, ...],
    out: DeviceBuffer | None,
    stream: StreamLike | None,
    at: DeviceExecutor,
) -> DeviceBuffer:
    """Do what `launch_reduce` does, over axes that `reduced_axes` has seen."""
    ordered, results, elements = _reduction(layout, places)
    start = place(op, "x", buffer, layout)
    if out is None:
        result = u32 if op.family.name == "arg_reduce" else buffer.dtype
        out = at.allocate(results, result, stream)
    elif out.size < results:
        require_size(op, "out", out, results)
    if results == 0:
        return out
    if elements == 0:
        if op.name != "sum":
            raise ArgumentValueError(
                f"{op.name}: zero-size array to reduction operation {op.name} which has no identity"
            )
        launch_fill(out, Layout.contiguous(results), 0, stream=stream, executor=at)
        return out
    at.lowering.reduce(op, start, ordered, results, elements, out, stream)
    return out


@lru_cache(maxsize=4096)
def _reduction(layout: Layout, places: tuple[int, ...]) -> tuple[Layout, int, int]:
    """The layout with the reduced axes last, how many results there are, and elements of each."""
    kept = tuple(axis for axis in range(layout.rank) if axis not in places)
    elements = math.prod(layout.shape[axis] for axis in places)
    results = math.prod(layout.shape[axis] for axis in kept)
    return layout.permute((*kept, *places)), results, elements


# -- checks --------------------------------------------------------------------------------------


def named(kernel: Op | str) -> Op:
    """Return the operation of a name; `NotFoundError` when there is none."""
    if isinstance(kernel, Op):
        return kernel
    found = OPS.get(kernel)
    if found is None:
        raise NotFoundError(f"no operation {kernel!r}; there are {', '.join(OPS)}")
    return found


def place(op: Op, name: str, buffer: DeviceBuffer, layout: Layout) -> DeviceBuffer:
    """Return the buffer from the layout's first element on; refuse one that is too short."""
    if layout.extent > buffer.size:
        require_size(op, name, buffer, layout.extent)
    start = layout.start_offset
    return buffer[start:] if start else buffer


def require_size(op: Op, name: str, buffer: DeviceBuffer, elements: int) -> None:
    """Refuse a buffer of fewer elements."""
    if not isinstance(buffer, DeviceBuffer):
        raise ArgumentTypeError(
            f"{op.name}, {name!r}: expected a DeviceBuffer, got {type(buffer).__name__}"
        )
    if buffer.size < elements:
        raise ArgumentValueError(
            f"{op.name}, {name!r}: expected a buffer of at least {elements} elements, which the "
            f"layout reaches, got one of {buffer.size}"
        )


def require_one_shape(op: Op, first: Layout, *others: Layout) -> None:
    """Refuse operands of different shapes."""
    for other in others:
        if other.shape is not first.shape and other.shape != first.shape:
            shapes = " ".join(str(one.shape) for one in (first, *others))
            raise ArgumentValueError(
                f"{op.name}: expected operands of one shape, got {shapes}; broadcast_to makes it"
            )


def reduced_axes(op: Op, layout: Layout, axes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the axes counted from the front; refuse repeated ones and several for a place."""
    places = tuple(axis_of(op.name, layout, axis) for axis in axes)
    if len(set(places)) != len(places):
        raise ArgumentValueError(f"{op.name}: duplicate value in 'axis'")
    if op.family.name == "arg_reduce" and len(places) != 1:
        raise ArgumentTypeError(f"{op.name}: expected one axis, got {axes}")
    return places


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
