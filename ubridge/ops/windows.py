"""Convolutions, pooling and resizing of tensors."""

from __future__ import annotations

from ubridge.buffers import window_launches
from ubridge.core.layout import Layout
from ubridge.core.operand_checks import require_one_kind
from ubridge.definitions.calls import named
from ubridge.definitions.windows import (
    AVG_POOL2D,
    CONV1D,
    CONV2D,
    CONV_TRANSPOSE1D,
    CONV_TRANSPOSE2D,
    MAX_POOL2D,
    UPSAMPLE_BILINEAR2D,
    UPSAMPLE_NEAREST2D,
)
from ubridge.ops.results import require_tensors
from ubridge.ops.strided import Tensor
from uhal.dtypes import bool_
from uhal.errors import ArgumentTypeError
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
    return _convolved(CONV1D.name, x, weight, stride, padding, dilation, 0, groups, stream)


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
    return _convolved(CONV2D.name, x, weight, stride, padding, dilation, 0, groups, stream)


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
    return _convolved(CONV_TRANSPOSE1D.name, x, weight, *window, groups, stream)


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
    return _convolved(CONV_TRANSPOSE2D.name, x, weight, *window, groups, stream)


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
        name,
        x._buffer,
        x._layout,
        weight._buffer,
        weight._layout,
        stride=stride,
        padding=padding,
        dilation=dilation,
        out_padding=out_padding,
        groups=groups,
        stream=stream,
        executor=x._executor,
    )
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
    return _pooled(AVG_POOL2D.name, x, window, stride, stream)


@named
def max_pool2d(
    x: Tensor,
    window: int | tuple[int, int],
    stride: int | tuple[int, int] | None = None,
    *,
    stream: StreamLike | None = None,
) -> Tensor:
    """Return the largest of each window of (batch, channels, rows, columns)."""
    return _pooled(MAX_POOL2D.name, x, window, stride, stream)


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
    require_tensors(UPSAMPLE_NEAREST2D.name, x)
    buffer, shape = window_launches.launch_upsample2d(
        UPSAMPLE_NEAREST2D.name,
        x._buffer,
        x._layout,
        rows,
        columns,
        stream=stream,
        executor=x._executor,
    )
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
    require_tensors(UPSAMPLE_BILINEAR2D.name, x)
    _require_numbers(UPSAMPLE_BILINEAR2D.name, x)
    buffer, shape = window_launches.launch_upsample2d(
        UPSAMPLE_BILINEAR2D.name,
        x._buffer,
        x._layout,
        rows,
        columns,
        align_corners=align_corners,
        scale=scale,
        stream=stream,
        executor=x._executor,
    )
    return x._made(buffer, Layout.contiguous(shape), x.dtype)


def _require_numbers(name: str, x: Tensor) -> None:
    """Refuse booleans: sums and means of them are none."""
    if x._dtype is bool_:
        raise ArgumentTypeError(
            f'{name}: expected numbers, got bool. Cast first, for example x.astype("f32").'
        )


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
