"""`launch_*` of operations on windows: convolutions, pooling, resizing.

Layouts are (batch, channels, length) or (batch, channels, rows, columns). Kernels take strides.
Every function returns the result's buffer and shape.
"""

from __future__ import annotations

from ubridge.buffers import launches
from ubridge.core.layout import Layout, Shape
from ubridge.core.operand_checks import require_number, whole_number
from ubridge.core.operation import Op
from ubridge.core.question import Question
from ubridge.definitions.windows import COL2IM1D, IM2COL, IM2COL1D, UPSAMPLE_BILINEAR2D
from ubridge.device.executor import DeviceExecutor, Executor
from uhal import DeviceBuffer
from uhal.errors import ArgumentTypeError, ArgumentValueError
from uhal.interop import StreamLike

Result = tuple[DeviceBuffer, Shape]


def launch_convolution(
    kernel: Op | str,
    buffer: DeviceBuffer,
    layout: Layout,
    weight: DeviceBuffer,
    weight_layout: Layout,
    *,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
    out_padding: int = 0,
    groups: int = 1,
    out: DeviceBuffer | None = None,
    stream: StreamLike | None = None,
    executor: Executor | None = None,
) -> Result:
    """Enqueue `conv1d`, `conv2d`, `conv_transpose1d` or `conv_transpose2d`.

    A weight is (results, channels / groups, …), transposed (channels, results / groups, …). Each
    group of channels makes one group of results, by its own launch.
    """
    op = launches.named_op(kernel)
    at = executor or DeviceExecutor.of(buffer.device)
    axes = 2 if op.name.endswith("2d") else 1
    transposed = "transpose" in op.name
    _require_axes(op, "x", layout, axes + 2)
    _require_axes(op, "kernel", weight_layout, axes + 2)
    stride, padding, dilation = _window(op, stride, padding, dilation)
    out_padding = whole_number(f"{op.name}, out_padding", out_padding)
    groups = whole_number(f"{op.name}, groups", groups, 1)
    _require_groups(op, layout, weight_layout, groups, transposed)
    positions = [
        _transposed_positions(length, size, stride, padding, dilation, out_padding)
        if transposed
        else _positions(op, length, size, stride, padding, dilation)
        for length, size in zip(layout.shape[2:], weight_layout.shape[2:], strict=True)
    ]
    results = weight_layout.shape[1] * groups if transposed else weight_layout.shape[0]
    shape = Shape((layout.shape[0], results, *positions))
    launches.require_room(op, out, shape.size)
    window: dict[str, int] = {"stride": stride, "padding": padding, "dilation": dilation}
    if transposed:
        window["out_padding"] = out_padding
    attributes = tuple(window.items())

    def convolved(
        x_layout: Layout, of_weight: Layout, result: Layout, output: DeviceBuffer | None
    ) -> DeviceBuffer:
        question = Question(
            op,
            ((buffer.dtype, x_layout.from_start), (weight.dtype, of_weight.from_start)),
            (buffer.dtype, result),
            attributes,
        )
        x = launches.checked_operand(op, "x", buffer, x_layout)
        weights = launches.checked_operand(op, "kernel", weight, of_weight)
        return launches.enqueued(at, question, stream, output, x, weights)

    whole = Layout.contiguous(shape)
    if groups == 1 or shape.size == 0:
        return convolved(layout, weight_layout, whole, out), shape
    # The results of one group after those of another; with one batch that is the result.
    of_group = Layout.contiguous((shape[0], shape[1] // groups, *positions))
    room = out
    if room is None or shape[0] > 1:
        room = at.allocate(shape.size, buffer.dtype, stream)
    channels, some = layout.shape[1] // groups, weight_layout.shape[0] // groups
    for group in range(groups):
        convolved(
            layout.narrow(1, group * channels, channels),
            weight_layout.narrow(0, group * some, some),
            of_group,
            room[group * of_group.size :],
        )
    if shape[0] == 1:
        return room, shape
    of_groups = Layout.contiguous((groups, *of_group.shape))
    order = (1, 0, *range(2, of_groups.rank))
    turned = of_groups.permute(order)
    return launches.copied(at, room, turned, stream, out), shape


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


def launch_pool2d(
    kernel: Op | str,
    buffer: DeviceBuffer,
    layout: Layout,
    window: int | tuple[int, int],
    stride: int | tuple[int, int],
    *,
    out: DeviceBuffer | None = None,
    stream: StreamLike | None = None,
    executor: Executor | None = None,
) -> Result:
    """Enqueue `avg_pool2d` or `max_pool2d` over windows that lie inside."""
    op = launches.named_op(kernel)
    at = executor or DeviceExecutor.of(buffer.device)
    _require_axes(op, "x", layout, 4)
    window, stride = _pair(f"{op.name}, window", window), _pair(f"{op.name}, stride", stride)
    positions = [
        _positions(op, length, size, step, 0, 1)
        for length, size, step in zip(layout.shape[2:], window, stride, strict=True)
    ]
    shape = Shape((*layout.shape[:2], *positions))
    attributes = (("window", window), ("stride", stride))
    return _enqueued(at, op, buffer, layout, shape, attributes, out, stream), shape


def launch_upsample2d(
    kernel: Op | str,
    buffer: DeviceBuffer,
    layout: Layout,
    rows: int,
    columns: int,
    *,
    align_corners: bool = False,
    scale: tuple[float, float] | None = None,
    out: DeviceBuffer | None = None,
    stream: StreamLike | None = None,
    executor: Executor | None = None,
) -> Result:
    """Enqueue `upsample_nearest2d` or `upsample_bilinear2d` to `rows` x `columns`.

    `scale` says for bilinear how much larger the result is, instead of the ratio of the sizes.
    """
    op = launches.named_op(kernel)
    at = executor or DeviceExecutor.of(buffer.device)
    _require_axes(op, "x", layout, 4)
    rows = whole_number(f"{op.name}, rows", rows)
    columns = whole_number(f"{op.name}, columns", columns)
    shape = Shape((*layout.shape[:2], rows, columns))
    if shape.size and layout.size == 0:
        raise ArgumentValueError(f"{op.name}: nothing to enlarge in shape {layout.shape}")
    attributes: tuple[tuple[str, object], ...] = ()
    if op is UPSAMPLE_BILINEAR2D:
        attributes = (("align_corners", bool(align_corners)), ("scale", _scale(op, scale)))
    return _enqueued(at, op, buffer, layout, shape, attributes, out, stream), shape


def launch_im2col(
    buffer: DeviceBuffer,
    layout: Layout,
    window: tuple[int, ...],
    *,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
    out: DeviceBuffer | None = None,
    stream: StreamLike | None = None,
    executor: Executor | None = None,
) -> Result:
    """Enqueue `im2col1d` or `im2col`: windows as rows, (batch, positions…, channels, window…)."""
    if not isinstance(window, (tuple, list)) or len(window) not in (1, 2):
        raise ArgumentTypeError(f"im2col, window: expected one or two ints, got {window!r:.80}")
    op = IM2COL1D if len(window) == 1 else IM2COL
    at = executor or DeviceExecutor.of(buffer.device)
    _require_axes(op, "x", layout, len(window) + 2)
    window = tuple(whole_number(f"{op.name}, window", one, 1) for one in window)
    stride, padding, dilation = _window(op, stride, padding, dilation)
    positions = [
        _positions(op, length, size, stride, padding, dilation)
        for length, size in zip(layout.shape[2:], window, strict=True)
    ]
    shape = Shape((layout.shape[0], *positions, layout.shape[1], *window))
    attributes = (("stride", stride), ("padding", padding), ("dilation", dilation))
    return _enqueued(at, op, buffer, layout, shape, attributes, out, stream), shape


def launch_col2im1d(
    buffer: DeviceBuffer,
    layout: Layout,
    *,
    stride: int = 1,
    out: DeviceBuffer | None = None,
    stream: StreamLike | None = None,
    executor: Executor | None = None,
) -> Result:
    """Enqueue `col2im1d`: add up windows (batch, positions, channels, window)."""
    op = COL2IM1D
    at = executor or DeviceExecutor.of(buffer.device)
    _require_axes(op, "x", layout, 4)
    stride, _, _ = _window(op, stride, 0, 1)
    batch, length, channels, window = layout.shape
    whole = (length - 1) * stride + window if length else 0
    shape = Shape((batch, channels, whole))
    x = launches.gathered(at, op, "x", buffer, layout, stream)
    windows = Layout.contiguous(layout.shape)
    return _enqueued(at, op, x, windows, shape, (("stride", stride),), out, stream), shape


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


def _enqueued(
    at: Executor,
    op: Op,
    buffer: DeviceBuffer,
    layout: Layout,
    shape: Shape,
    attributes: tuple[tuple[str, object], ...],
    out: DeviceBuffer | None,
    stream: StreamLike | None,
) -> DeviceBuffer:
    """Enqueue an operation on one operand with a result of another shape."""
    launches.require_room(op, out, shape.size)
    operands = ((buffer.dtype, layout.from_start),)
    question = Question(op, operands, (buffer.dtype, Layout.contiguous(shape)), attributes)
    x = launches.checked_operand(op, "x", buffer, layout)
    return launches.enqueued(at, question, stream, out, x)
