"""What neural networks are made of, on tensors: softmax, norms, rotary positions, convolutions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ubridge.buffers import row_launches, window_launches
from ubridge.buffers.launches import launch_unary
from ubridge.core.calls import named
from ubridge.core.layout import Layout
from ubridge.core.op_table import OPS, Op
from ubridge.core.operand_checks import axis_of, require_one_kind
from ubridge.device.executor import Answer
from ubridge.device.remembered import TensorData, launched, remembered
from ubridge.ops import answers
from ubridge.ops.results import delivered, require_tensors
from ubridge.ops.strided import StridedTensor, Tensor
from uhal import DeviceBuffer
from uhal.dtypes import bool_, u32
from uhal.errors import ArgumentTypeError, ArgumentValueError
from uhal.interop import StreamLike

_LAYER_NORM = OPS["layer_norm"]
_LOG_SOFTMAX = OPS["log_softmax"]
_RMS_NORM = OPS["rms_norm"]
_SOFTMAX = OPS["softmax"]


def _asked_for_softmax(x: TensorData, axis: Any = -1) -> Answer | None:
    layout, dtype, executor = x._layout, x._dtype, x._executor
    if type(axis) is not int or axis not in (-1, layout.rank - 1):
        return None
    key = (_SOFTMAX, dtype.code, layout.words)
    return executor.answer(key, answers.of_rows, _SOFTMAX, dtype, layout)


@remembered(_asked_for_softmax)
def softmax(
    x: Tensor,
    axis: int = -1,
    *,
    out: Tensor | None = None,
    stream: StreamLike | None = None,
) -> Tensor:
    """Return exp(x) divided by the sum of exp(x) along an axis."""
    if out is None and isinstance(x, StridedTensor):
        found = _asked_for_softmax(x, axis)
        if found is not None:
            made: Tensor = launched(found, stream, x)
            return made

    def along_last(one: Tensor, output: DeviceBuffer | None) -> DeviceBuffer:
        return row_launches.launch_softmax(
            one._buffer, one._layout, out=output, stream=stream, executor=one._executor
        )

    return _along(_SOFTMAX, x, axis, out, stream, along_last)


@named
def log_softmax(
    x: Tensor,
    axis: int = -1,
    *,
    compensated: bool = False,
    out: Tensor | None = None,
    stream: StreamLike | None = None,
) -> Tensor:
    """Return x - log(sum(exp(x))) along an axis.

    `compensated` sums with Knuth's two-sum, whose error does not grow with the axis; GCUs refuse
    it.
    """

    def along_last(one: Tensor, output: DeviceBuffer | None) -> DeviceBuffer:
        return row_launches.launch_log_softmax(
            one._buffer, one._layout,
            compensated=compensated, out=output, stream=stream, executor=one._executor,
        )  # fmt: skip

    return _along(_LOG_SOFTMAX, x, axis, out, stream, along_last)


@named
def argsort(
    x: Tensor,
    axis: int = -1,
    descending: bool = False,
    *,
    out: Tensor | None = None,
    stream: StreamLike | None = None,
) -> Tensor:
    """Return the indices that sort an axis, as u32.

    Equal elements keep their order, also in descending order, and NaN is the largest; on GCUs
    neither is promised. Rows longer than a block sorts at once are sorted in runs, which are joined
    in pairs: log2(runs) more launches, and memory for another result.
    """
    op = OPS["argsort_descending" if descending else "argsort"]

    def along_last(one: Tensor, output: DeviceBuffer | None) -> DeviceBuffer:
        return row_launches.launch_argsort(
            op, one._buffer, one._layout, out=output, stream=stream, executor=one._executor
        )

    return _along(op, x, axis, out, stream, along_last, is_indices=True)


def _along(
    op: Op,
    x: Tensor,
    axis: int,
    out: Tensor | None,
    stream: StreamLike | None,
    enqueue: Callable[[Tensor, DeviceBuffer | None], DeviceBuffer],
    is_indices: bool = False,
) -> Tensor:
    """Apply a function of the last axis to any axis: swap the two before and after it."""
    require_tensors(op.name, x)
    axis = axis_of(op.name, x.layout, axis)
    dtype = u32 if is_indices else x.dtype
    if axis == x.ndim - 1:
        return delivered(op, x.shape, dtype, out, (x,), stream, lambda target: enqueue(x, target))
    turned = x.swapaxes(axis, -1)
    found = turned._made(enqueue(turned, None), Layout.contiguous(turned.shape), dtype)
    result = found.swapaxes(axis, -1)
    if out is None:
        return result
    return delivered(
        op, x.shape, dtype, out, (result,), stream,
        lambda target: result.copy(stream=stream)._buffer if target is None
        else _copied(result, target, stream),
    )  # fmt: skip


def _copied(x: Tensor, output: DeviceBuffer, stream: StreamLike | None) -> DeviceBuffer:
    return launch_unary(
        OPS["copy"], x._buffer, x._layout, out=output, stream=stream, executor=x._executor
    )


def _asked_for_norm(op: Op, x: TensorData, *weights: Any, epsilon: Any) -> Answer | None:
    """Ask for a norm; None for wrong operands, which `_norm` then refuses."""
    layout, dtype, executor = x._layout, x._dtype, x._executor
    width = layout.shape[-1:]
    if type(epsilon) not in (int, float):
        return None
    for one in weights:
        if not isinstance(one, StridedTensor) or one._dtype is not dtype:
            return None
        lies = one._layout
        if one._executor is not executor or not lies.is_contiguous or lies.shape != width:
            return None
    key = (op, dtype.code, layout.words)
    found = executor.answer(key, answers.of_rows, op, dtype, layout, len(weights), 1)
    return None if found is None else found.passing(behind=(epsilon,))


def _asked_for_rms_norm(x: TensorData, weight: Any = None, epsilon: Any = 1e-5) -> Answer | None:
    return _asked_for_norm(_RMS_NORM, x, weight, epsilon=epsilon)


def _asked_for_layer_norm(
    x: TensorData, weight: Any = None, bias: Any = None, epsilon: Any = 1e-5
) -> Answer | None:
    return _asked_for_norm(_LAYER_NORM, x, weight, bias, epsilon=epsilon)


@remembered(_asked_for_rms_norm)
def rms_norm(
    x: Tensor,
    weight: Tensor,
    epsilon: float = 1e-5,
    *,
    out: Tensor | None = None,
    stream: StreamLike | None = None,
) -> Tensor:
    """Return `x / sqrt(mean(x * x) + epsilon) * weight` along the last axis."""
    return _norm(_RMS_NORM, x, weight, None, epsilon, out, stream)


@remembered(_asked_for_layer_norm)
def layer_norm(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    epsilon: float = 1e-5,
    *,
    out: Tensor | None = None,
    stream: StreamLike | None = None,
) -> Tensor:
    """Return `(x - mean) / sqrt(variance + epsilon) * weight + bias` along the last axis."""
    return _norm(_LAYER_NORM, x, weight, bias, epsilon, out, stream)


def _norm(
    op: Op,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    epsilon: float,
    out: Tensor | None,
    stream: StreamLike | None,
) -> Tensor:
    weights = [weight] if bias is None else [weight, bias]
    require_tensors(op.name, x, *weights)
    found = _asked_for_norm(op, x, *weights, epsilon=epsilon) if out is None else None
    if found is not None:
        made: Tensor = launched(found, stream, x, *weights)
        return made
    for one in weights:
        require_one_kind(op.name, x, one)
        if one.shape != x.shape[-1:]:
            raise ArgumentValueError(
                f"{op.name}: expected weights of shape {x.shape[-1:]}, got {one.shape}"
            )
    executor = x._executor
    starts = [_start(one, stream) for one in weights]

    def enqueue(output: DeviceBuffer | None) -> DeviceBuffer:
        return row_launches.launch_norm(
            x._buffer, x._layout, starts[0], starts[1] if bias is not None else None, epsilon,
            out=output, stream=stream, executor=executor,
        )  # fmt: skip

    return delivered(op, x.shape, x.dtype, out, (x, *weights), stream, enqueue)


@named
def rope(
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    *,
    interleaved: bool = False,
    heads_last: bool = False,
    out: Tensor | None = None,
    stream: StreamLike | None = None,
) -> Tensor:
    """Return x with pairs of its last axis rotated by angles of their positions.

    `x` is (batch, heads, positions, width), or with `heads_last` (batch, positions, heads, width).
    `cos` and `sin` are (positions, width / 2), or (batch, positions, width / 2). A pair is two
    elements half a width apart; with `interleaved`, two neighbours.
    """
    if interleaved and heads_last:
        raise ArgumentValueError("rope: no kernel takes interleaved pairs with heads last")
    op = OPS["rope_i" if interleaved else "rope_thd" if heads_last else "rope"]
    require_tensors(op.name, x, cos, sin)
    if x.ndim != 4 or x.shape[3] % 2:
        raise ArgumentValueError(
            f"{op.name}: expected four axes, the last of an even length, got {x.shape}"
        )
    positions = x.shape[1 if heads_last else 2]
    plain = (positions, x.shape[3] // 2)
    for one in (cos, sin):
        require_one_kind(op.name, x, one)
        if one.shape not in (plain, (x.shape[0], *plain)) or one.shape != cos.shape:
            raise ArgumentValueError(
                f"{op.name}: expected cos and sin of shape {plain} or {(x.shape[0], *plain)}, got "
                f"{cos.shape} and {sin.shape}"
            )
    angles = (_start(cos, stream), _start(sin, stream))
    executor = x._executor

    def enqueue(output: DeviceBuffer | None) -> DeviceBuffer:
        return row_launches.launch_rope(
            op, x._buffer, x._layout, *angles, per_batch=cos.ndim == 3,
            out=output, stream=stream, executor=executor,
        )  # fmt: skip

    return delivered(op, x.shape, x.dtype, out, (x, cos, sin), stream, enqueue)


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
    return _convolved("conv1d", x, weight, stride, padding, dilation, 0, groups, stream)


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
    return _convolved("conv2d", x, weight, stride, padding, dilation, 0, groups, stream)


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
    window = (stride, padding, dilation, out_padding)
    return _convolved("conv_transpose1d", x, weight, *window, groups, stream)


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
    window = (stride, padding, dilation, out_padding)
    return _convolved("conv_transpose2d", x, weight, *window, groups, stream)


def _convolved(
    name: str,
    x: Tensor,
    weight: Tensor,
    stride: int,
    padding: int,
    dilation: int,
    out_padding: int,
    groups: int,
    stream: StreamLike | None,
) -> Tensor:
    require_tensors(name, x, weight)
    require_one_kind(name, x, weight)
    _require_numbers(name, x)
    buffer, shape = window_launches.launch_convolution(
        name, x._buffer, x._layout, weight._buffer, weight._layout,
        stride=stride, padding=padding, dilation=dilation, out_padding=out_padding, groups=groups,
        stream=stream, executor=x._executor,
    )  # fmt: skip
    return x._made(buffer, Layout.contiguous(shape), x.dtype)


@named
def avg_pool2d(
    x: Tensor,
    window: int | tuple[int, int],
    stride: int | tuple[int, int] | None = None,
    *,
    stream: StreamLike | None = None,
) -> Tensor:
    """Return the mean of each window of (batch, channels, rows, columns)."""
    return _pooled("avg_pool2d", x, window, stride, stream)


@named
def max_pool2d(
    x: Tensor,
    window: int | tuple[int, int],
    stride: int | tuple[int, int] | None = None,
    *,
    stream: StreamLike | None = None,
) -> Tensor:
    """Return the largest of each window of (batch, channels, rows, columns)."""
    return _pooled("max_pool2d", x, window, stride, stream)


def _pooled(
    name: str,
    x: Tensor,
    window: int | tuple[int, int],
    step: int | tuple[int, int] | None,
    stream: StreamLike | None,
) -> Tensor:
    require_tensors(name, x)
    _require_numbers(name, x)
    steps = window if step is None else step
    buffer, shape = window_launches.launch_pool2d(
        name, x._buffer, x._layout, window, steps, stream=stream, executor=x._executor
    )
    return x._made(buffer, Layout.contiguous(shape), x.dtype)


@named
def upsample_nearest2d(
    x: Tensor, rows: int, columns: int, *, stream: StreamLike | None = None
) -> Tensor:
    """Resize (batch, channels, rows, columns) by taking the nearest element."""
    require_tensors("upsample_nearest2d", x)
    buffer, shape = window_launches.launch_upsample2d(
        "upsample_nearest2d", x._buffer, x._layout, rows, columns,
        stream=stream, executor=x._executor,
    )  # fmt: skip
    return x._made(buffer, Layout.contiguous(shape), x.dtype)


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
    require_tensors("upsample_bilinear2d", x)
    _require_numbers("upsample_bilinear2d", x)
    buffer, shape = window_launches.launch_upsample2d(
        "upsample_bilinear2d", x._buffer, x._layout, rows, columns,
        align_corners=align_corners, scale=scale, stream=stream, executor=x._executor,
    )  # fmt: skip
    return x._made(buffer, Layout.contiguous(shape), x.dtype)


def _require_numbers(name: str, x: Tensor) -> None:
    """Refuse booleans: sums and means of them are none."""
    if x._dtype is bool_:
        raise ArgumentTypeError(
            f'{name}: expected numbers, got bool. Cast first, for example x.astype("f32").'
        )


def _start(x: Tensor, stream: StreamLike | None) -> DeviceBuffer:
    """The buffer from a small operand's first element on, contiguous."""
    whole = x.contiguous(stream=stream)
    start = whole._layout.start_offset
    return whole._buffer[start:] if start else whole._buffer
