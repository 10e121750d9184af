"""Convolutions, pooling and resizing of tensors.

Shapes are (batch, channels, length) or (batch, channels, rows, columns). Kernels take strides.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from ubridge.core.layout import Layout
from ubridge.core.operand_checks import require_number, require_one_kind, whole_number
from ubridge.core.operation import Op
from ubridge.definitions.calls import named
from ubridge.definitions.windows import (
    AVG_POOL2D,
    COL2IM1D,
    CONV1D,
    CONV2D,
    CONV_TRANSPOSE1D,
    CONV_TRANSPOSE2D,
    IM2COL,
    IM2COL1D,
    MAX_POOL2D,
    UPSAMPLE_BILINEAR2D,
    UPSAMPLE_NEAREST2D,
)
from ubridge.device.tensor_data import make
from ubridge.ops.engine import Plan, Value, ask, contiguous, plan_copy, run
from ubridge.ops.remembering import remembered
from ubridge.ops.results import require_room, require_tensors
from ubridge.ops.strided import Tensor
from uhal import DeviceBuffer
from uhal.dtypes import bool_
from uhal.errors import ArgumentTypeError, ArgumentValueError
from uhal.interop import StreamLike


@named
def conv1d(
    x: Tensor,
    weight: Tensor,
    *,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
    groups: int = 1,
    stream: StreamLike | None = None,
) -> Tensor:
    """Convolve (batch, channels, length) with (results, channels / groups, window), not flipped.

    Each of the `groups` of channels makes one group of results, by one launch.
    """
    return _convolved(CONV1D, x, weight, (stride, padding, dilation, 0, groups), stream)


@named
def conv2d(
    x: Tensor,
    weight: Tensor,
    *,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
    groups: int = 1,
    stream: StreamLike | None = None,
) -> Tensor:
    """Convolve images with (results, channels / groups, rows, columns), otherwise as `conv1d`."""
    return _convolved(CONV2D, x, weight, (stride, padding, dilation, 0, groups), stream)


@named
def conv_transpose1d(
    x: Tensor,
    weight: Tensor,
    *,
    stride: int = 1,
    padding: int = 0,
    out_padding: int = 0,
    dilation: int = 1,
    groups: int = 1,
    stream: StreamLike | None = None,
) -> Tensor:
    """Add up a window (channels, results / groups, window) at each element's position."""
    window = (stride, padding, dilation, out_padding, groups)
    return _convolved(CONV_TRANSPOSE1D, x, weight, window, stream)


@named
def conv_transpose2d(
    x: Tensor,
    weight: Tensor,
    *,
    stride: int = 1,
    padding: int = 0,
    out_padding: int = 0,
    dilation: int = 1,
    groups: int = 1,
    stream: StreamLike | None = None,
) -> Tensor:
    """Add up a window (channels, results / groups, rows, columns) at each element's position."""
    window = (stride, padding, dilation, out_padding, groups)
    return _convolved(CONV_TRANSPOSE2D, x, weight, window, stream)


def _convolved(
    op: Op,
    x: Tensor,
    weight: Tensor,
    window: tuple[int, int, int, int, int],
    stream: StreamLike | None,
) -> Tensor:
    require_tensors(op.name, x, weight)
    require_one_kind(op.name, x, weight)
    _require_numbers(op.name, x)
    return convolved(op, x, weight, *window, None, stream)


def convolved(
    op: Op,
    x: Tensor,
    weight: Tensor,
    stride: int,
    padding: int,
    dilation: int,
    out_padding: int,
    groups: int,
    out: DeviceBuffer | None = None,
    stream: StreamLike | None = None,
) -> Tensor:
    """Convolve each group of channels, by its own launch."""
    transposed = op in (CONV_TRANSPOSE1D, CONV_TRANSPOSE2D)
    axes = 2 if op in (CONV2D, CONV_TRANSPOSE2D) else 1
    layout, weights = x._layout, weight._layout
    _require_axes(op, "x", layout, axes + 2)
    _require_axes(op, "kernel", weights, axes + 2)
    stride, padding, dilation = _window(op, stride, padding, dilation)
    out_padding = whole_number(f"{op.name}, out_padding", out_padding)
    groups = whole_number(f"{op.name}, groups", groups, 1)
    _require_groups(op, layout, weights, groups, transposed)
    positions = [
        _transposed_positions(length, size, stride, padding, dilation, out_padding)
        if transposed
        else _positions(op, length, size, stride, padding, dilation)
        for length, size in zip(layout.shape[2:], weights.shape[2:], strict=True)
    ]
    results = weights.shape[1] * groups if transposed else weights.shape[0]
    batch, each = layout.shape[0], results // groups
    window: dict[str, Any] = {"stride": stride, "padding": padding, "dilation": dilation}
    if transposed:
        window["out_padding"] = out_padding
    whole = Layout.contiguous((batch, results, *positions))
    require_room(op, out, whole.size)
    target = None if out is None else make(type(x), out, whole, x._dtype, x._executor)
    made: Tensor
    if groups == 1 or whole.size == 0:
        made = run(ask(op, (x, weight), x._dtype, whole, **window), target, stream)
        return made
    # The results of one group after those of another; with one batch that is the result.
    of_group = Layout.contiguous((batch, each, *positions))
    room = target
    if room is None or batch > 1:
        memory = x._executor.allocate(whole.size, x._dtype, stream)
        room = x._made(memory, whole, x._dtype)
    channels, some = layout.shape[1] // groups, weights.shape[0] // groups
    for group in range(groups):
        of_x = x._viewed(layout.narrow(1, group * channels, channels))
        of_weight = weight._viewed(weights.narrow(0, group * some, some))
        start = room._layout.start_offset + group * of_group.size
        part = room._viewed(Layout.contiguous(of_group.shape, start))
        run(ask(op, (of_x, of_weight), x._dtype, of_group, **window), part, stream)
    if batch == 1:
        return room
    order = (1, 0, *range(2, of_group.rank + 1))
    turned = Layout.contiguous((groups, *of_group.shape)).permute(order)
    joined = plan_copy(room._viewed(turned))._viewed(whole)
    made = run(joined, target, stream)
    return made


def plan_pool2d(
    op: Op,
    x: Value,
    window: int | tuple[int, int],
    stride: int | tuple[int, int] | None = None,
) -> Plan:
    """Plan a mean or largest of windows that lie inside."""
    require_tensors(op.name, x)
    _require_numbers(op.name, x)
    layout = x._layout
    _require_axes(op, "x", layout, 4)
    window = _pair(f"{op.name}, window", window)
    stride = window if stride is None else _pair(f"{op.name}, stride", stride)
    positions = [
        _positions(op, length, size, step, 0, 1)
        for length, size, step in zip(layout.shape[2:], window, stride, strict=True)
    ]
    result = Layout.contiguous((*layout.shape[:2], *positions))
    return ask(op, (x,), x._dtype, result, window=window, stride=stride)


def _plan_resized(op: Op, x: Value, rows: int, columns: int, **attributes: Any) -> Plan:
    require_tensors(op.name, x)
    layout = x._layout
    _require_axes(op, "x", layout, 4)
    rows = whole_number(f"{op.name}, rows", rows)
    columns = whole_number(f"{op.name}, columns", columns)
    result = Layout.contiguous((*layout.shape[:2], rows, columns))
    if result.size and layout.size == 0:
        raise ArgumentValueError(f"{op.name}: nothing to enlarge in shape {layout.shape}")
    return ask(op, (x,), x._dtype, result, **attributes)


plan_nearest = partial(_plan_resized, UPSAMPLE_NEAREST2D)


def plan_bilinear(
    x: Value,
    rows: int,
    columns: int,
    align_corners: bool = False,
    scale: tuple[float, float] | None = None,
) -> Plan:
    """Plan an interpolation of the nearest four elements."""
    op = UPSAMPLE_BILINEAR2D
    require_tensors(op.name, x)
    _require_numbers(op.name, x)
    told = _scale(op, scale)
    return _plan_resized(op, x, rows, columns, align_corners=bool(align_corners), scale=told)


def plan_im2col(
    x: Value, window: tuple[int, ...], stride: int = 1, padding: int = 0, dilation: int = 1
) -> Plan:
    """Plan windows as rows, (batch, positions…, channels, window…)."""
    if not isinstance(window, (tuple, list)) or len(window) not in (1, 2):
        raise ArgumentTypeError(f"im2col, window: expected one or two ints, got {window!r:.80}")
    op, layout = IM2COL1D if len(window) == 1 else IM2COL, x._layout
    _require_axes(op, "x", layout, len(window) + 2)
    window = tuple(whole_number(f"{op.name}, window", one, 1) for one in window)
    stride, padding, dilation = _window(op, stride, padding, dilation)
    positions = [
        _positions(op, length, size, stride, padding, dilation)
        for length, size in zip(layout.shape[2:], window, strict=True)
    ]
    result = Layout.contiguous((layout.shape[0], *positions, layout.shape[1], *window))
    lies: dict[str, Any] = {"stride": stride, "padding": padding, "dilation": dilation}
    return ask(op, (x,), x._dtype, result, **lies)


def plan_col2im1d(x: Value, stride: int = 1) -> Plan:
    """Plan the sum of windows (batch, positions, channels, window)."""
    _require_axes(COL2IM1D, "x", x._layout, 4)
    stride, _, _ = _window(COL2IM1D, stride, 0, 1)
    batch, length, channels, window = x._layout.shape
    whole = (length - 1) * stride + window if length else 0
    result = Layout.contiguous((batch, channels, whole))
    return ask(COL2IM1D, (contiguous(x),), x._dtype, result, stride=stride)


@remembered(partial(plan_pool2d, AVG_POOL2D))
def avg_pool2d(
    x: Tensor,
    window: int | tuple[int, int],
    stride: int | tuple[int, int] | None = None,
    *,
    stream: StreamLike | None = None,
) -> Tensor:
    """Return the mean of each window of (batch, channels, rows, columns)."""
    return run(plan_pool2d(AVG_POOL2D, x, window, stride), None, stream)


@remembered(partial(plan_pool2d, MAX_POOL2D))
def max_pool2d(
    x: Tensor,
    window: int | tuple[int, int],
    stride: int | tuple[int, int] | None = None,
    *,
    stream: StreamLike | None = None,
) -> Tensor:
    """Return the largest of each window of (batch, channels, rows, columns)."""
    return run(plan_pool2d(MAX_POOL2D, x, window, stride), None, stream)


@remembered(plan_nearest)
def upsample_nearest2d(
    x: Tensor, rows: int, columns: int, *, stream: StreamLike | None = None
) -> Tensor:
    """Resize (batch, channels, rows, columns) by taking the nearest element."""
    return run(plan_nearest(x, rows, columns), None, stream)


@named
def upsample_bilinear2d(
    x: Tensor,
    rows: int,
    columns: int,
    *,
    align_corners: bool = False,
    scale: tuple[float, float] | None = None,
    stream: StreamLike | None = None,
) -> Tensor:
    """Resize (batch, channels, rows, columns) by interpolating the nearest four elements.

    The four are weighted in f64 and summed, also where a weight is 0: beside an infinity the result
    may be NaN or infinite where other libraries, which round weights to f32, have a number.
    """
    plan = plan_bilinear(x, rows, columns, align_corners, scale)
    return run(plan, None, stream)


def _require_numbers(name: str, x: Tensor) -> None:
    """Refuse booleans: sums and means of them are none."""
    if x._dtype is bool_:
        raise ArgumentTypeError(
            f'{name}: expected numbers, got bool. Cast first, for example x.astype("f32").'
        )


def _require_groups(op: Op, x: Layout, weight: Layout, groups: int, transposed: bool) -> None:
    """Refuse channels that do not fit the weight's, or are no multiple of the groups."""
    expected = weight.shape[0] if transposed else weight.shape[1] * groups
    if x.shape[1] != expected:
        raise ArgumentValueError(
            f"{op.name}: expected as many channels in both, got shapes {x.shape} and "
            f"{weight.shape}{f' in {groups} groups' if groups > 1 else ''}"
        )
    if weight.shape[0] % groups:
        raise ArgumentValueError(
            f"{op.name}: expected a multiple of the {groups} groups in the first axis of the "
            f"kernel, got {weight.shape}"
        )


def _positions(op: Op, length: int, window: int, stride: int, padding: int, dilation: int) -> int:
    reach = dilation * (window - 1) + 1
    if window < 1 or length + 2 * padding < reach:
        raise ArgumentValueError(
            f"{op.name}: expected a window of 1 to {length + 2 * padding} elements with its gaps, "
            f"which an axis of {length} has with its padding, got {reach}"
        )
    return (length + 2 * padding - reach) // stride + 1


def _transposed_positions(
    length: int, window: int, stride: int, padding: int, dilation: int, out_padding: int
) -> int:
    if length == 0:
        return 0
    whole = (length - 1) * stride + dilation * (window - 1) + out_padding + 1
    return max(whole - 2 * padding, 0)


def _require_axes(op: Op, name: str, layout: Layout, axes: int) -> None:
    if layout.rank != axes:
        raise ArgumentValueError(
            f"{op.name}, {name!r}: expected {axes} axes, got shape {layout.shape}"
        )


def _window(op: Op, stride: int, padding: int, dilation: int) -> tuple[int, int, int]:
    """Return stride, padding and dilation as ints; refuse others."""
    return (
        whole_number(f"{op.name}, stride", stride, 1),
        whole_number(f"{op.name}, padding", padding),
        whole_number(f"{op.name}, dilation", dilation, 1),
    )


def _scale(op: Op, scale: tuple[float, float] | None) -> tuple[float, float] | None:
    """Return how much larger the result is, of each axis; refuse other than two numbers."""
    if scale is None:
        return None
    if not isinstance(scale, (tuple, list)) or len(scale) != 2:
        raise ArgumentTypeError(f"{op.name}, scale: expected two numbers, got {scale!r:.80}")
    for one in scale:
        require_number(f"{op.name}, scale", one)
    return scale[0], scale[1]


def _pair(name: str, given: int | tuple[int, int]) -> tuple[int, int]:
    """Return two ints of at least 1, of one that stands for both or of two."""
    both = given if isinstance(given, (tuple, list)) else (given, given)
    if len(both) != 2:
        raise ArgumentValueError(f"{name}: expected an int or two, got {given!r}")
    return whole_number(name, both[0], 1), whole_number(name, both[1], 1)


__all__ = [
    "avg_pool2d",
    "conv1d",
    "conv2d",
    "conv_transpose1d",
    "conv_transpose2d",
    "max_pool2d",
    "upsample_bilinear2d",
    "upsample_nearest2d",
]
