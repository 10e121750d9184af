"""`launch_*` of operations on windows: convolutions, pooling, resizing.

Layouts are (batch, channels, length) or (batch, channels, rows, columns). Kernels take strides.
Every function returns the result's buffer and shape.
"""

from __future__ import annotations

from ubridge.core.layout import Layout, Shape
from ubridge.core.operation import Op
from ubridge.definitions.windows import COL2IM1D, IM2COL, UPSAMPLE_BILINEAR2D
from ubridge.device.executor import Executor
from ubridge.ops import windows
from ubridge.ops.engine import Plan, run_into
from ubridge.ops.launching import named_op, operands_of, tensor_of
from uhal import DeviceBuffer
from uhal.interop import StreamLike

Result = tuple[DeviceBuffer, Shape]


def _launched(plan: Plan, out: DeviceBuffer | None, stream: StreamLike | None) -> Result:
    return run_into(plan, out, stream), plan.shape


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
    group of channels makes one group of results.
    """
    op = named_op(kernel)
    x, kernels = operands_of(op, executor, (buffer, layout), (weight, weight_layout))
    plan = windows.plan_convolved(op, x, kernels, stride, padding, dilation, groups, out_padding)
    return _launched(plan, out, stream)


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
    op = named_op(kernel)
    x = tensor_of(op, "x", buffer, layout, executor)
    return _launched(windows.plan_pool2d(op, x, window, stride), out, stream)


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

    For bilinear, `scale` replaces the ratio of the sizes.
    """
    op = named_op(kernel)
    x = tensor_of(op, "x", buffer, layout, executor)
    if op is UPSAMPLE_BILINEAR2D:
        plan = windows.plan_bilinear(x, rows, columns, align_corners, scale)
    else:
        plan = windows.plan_nearest(x, rows, columns)
    return _launched(plan, out, stream)


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
    x = tensor_of(IM2COL, "x", buffer, layout, executor)
    plan = windows.plan_im2col(x, window, stride, padding, dilation)
    return _launched(plan, out, stream)


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
    x = tensor_of(COL2IM1D, "x", buffer, layout, executor)
    return _launched(windows.plan_col2im1d(x, stride), out, stream)


__all__ = [
    "launch_col2im1d",
    "launch_convolution",
    "launch_im2col",
    "launch_pool2d",
    "launch_upsample2d",
]
