"""Convolutions, pooling and resizing of tensors.

Shapes are (batch, channels, length) or (batch, channels, rows, columns). Kernels take strides.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from ubridge.core.fits import require
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
from ubridge.ops.engine import Plan, Value, ask, contiguous, run
from ubridge.ops.remembering import remembered
from ubridge.ops.results import require_tensors
from ubridge.ops.strided import Tensor
from uhal.dtypes import bool_
from uhal.errors import ArgumentTypeError
from uhal.interop import StreamLike


def plan_convolved(
    op: Op,
    x: Value,
    weight: Value,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
    groups: int = 1,
    out_padding: int = 0,
) -> Plan:
    """Plan a convolution; only a transposed convolution has an `out_padding`."""
    require_tensors(op.name, x, weight)
    require_one_kind(op.name, x, weight)
    _require_numbers(op.name, x)
    window = _window(op, stride, padding, dilation)
    if op in (CONV_TRANSPOSE1D, CONV_TRANSPOSE2D):
        window["out_padding"] = whole_number(f"{op.name}, out_padding", out_padding)
    window["groups"] = whole_number(f"{op.name}, groups", groups, 1)
    return ask(op, (x, weight), x._dtype, **window)


@remembered(partial(plan_convolved, CONV1D))
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

    Each of the `groups` of channels makes one group of results.
    """
    return run(plan_convolved(CONV1D, x, weight, stride, padding, dilation, groups), None, stream)


@remembered(partial(plan_convolved, CONV2D))
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
    return run(plan_convolved(CONV2D, x, weight, stride, padding, dilation, groups), None, stream)


@remembered(partial(plan_convolved, CONV_TRANSPOSE1D))
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
    """Add up a window at each element's position.

    The windows are (channels, results / groups, window).
    """
    return run(
        plan_convolved(CONV_TRANSPOSE1D, x, weight, stride, padding, dilation, groups, out_padding),
        None,
        stream,
    )


@remembered(partial(plan_convolved, CONV_TRANSPOSE2D))
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
    """Add up a two-dimensional window at each element's position.

    The windows are (channels, results / groups, rows, columns).
    """
    return run(
        plan_convolved(CONV_TRANSPOSE2D, x, weight, stride, padding, dilation, groups, out_padding),
        None,
        stream,
    )


def plan_pool2d(
    op: Op,
    x: Value,
    window: int | tuple[int, int],
    stride: int | tuple[int, int] | None = None,
) -> Plan:
    """Plan the mean or the largest element of each window; all windows lie inside."""
    require_tensors(op.name, x)
    _require_numbers(op.name, x)
    window = _pair(f"{op.name}, window", window)
    stride = window if stride is None else _pair(f"{op.name}, stride", stride)
    return ask(op, (x,), x._dtype, window=window, stride=stride)


def _plan_resized(op: Op, x: Value, rows: int, columns: int, **attributes: Any) -> Plan:
    require_tensors(op.name, x)
    sizes = whole_number(f"{op.name}, rows", rows), whole_number(f"{op.name}, columns", columns)
    return ask(op, (x,), x._dtype, asked=Layout.contiguous((1, 1, *sizes)), **attributes)


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
    op = IM2COL1D if len(window) == 1 else IM2COL
    sizes = [whole_number(f"{op.name}, window", one, 1) for one in window]
    asked = Layout.contiguous((*[1] * (len(sizes) + 2), *sizes))
    return ask(op, (x,), x._dtype, asked=asked, **_window(op, stride, padding, dilation))


def plan_col2im1d(x: Value, stride: int = 1) -> Plan:
    """Plan the sum of windows (batch, positions, channels, window)."""
    stride = whole_number(f"{COL2IM1D.name}, stride", stride, 1)
    return ask(COL2IM1D, (contiguous(x),), x._dtype, stride=stride)


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

    The four are weighted in f64 and summed, even with a weight of 0. Beside an infinity the result
    may be NaN or infinite. Other libraries round weights to f32 and may give a number there.
    """
    return run(plan_bilinear(x, rows, columns, align_corners, scale), None, stream)


def _require_numbers(name: str, x: Tensor) -> None:
    """Refuse booleans: their sums and means are not booleans."""
    if x._dtype is bool_:
        raise ArgumentTypeError(
            f'{name}: expected numbers, got bool. Cast first, for example x.astype("f32").'
        )


def _window(op: Op, stride: int, padding: int, dilation: int) -> dict[str, Any]:
    """Return stride, padding and dilation as ints; refuse others."""
    return {
        "stride": whole_number(f"{op.name}, stride", stride, 1),
        "padding": whole_number(f"{op.name}, padding", padding),
        "dilation": whole_number(f"{op.name}, dilation", dilation, 1),
    }


def _scale(op: Op, scale: tuple[float, float] | None) -> tuple[float, float] | None:
    """Return the scale of each axis; refuse anything but two numbers."""
    if scale is None:
        return None
    if not isinstance(scale, (tuple, list)) or len(scale) != 2:
        raise ArgumentTypeError(f"{op.name}, scale: expected two numbers, got {scale!r:.80}")
    for one in scale:
        require_number(f"{op.name}, scale", one)
    return float(scale[0]), float(scale[1])


def _pair(name: str, given: int | tuple[int, int]) -> tuple[int, int]:
    """Return two ints of at least 1, given as two ints or as one for both."""
    both = given if isinstance(given, (tuple, list)) else (given, given)
    require(
        len(both) == 2,
        f"{name}: expected an int or two, got {given!r}",
    )
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
